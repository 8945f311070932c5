/** Base class of the models. No DOM. */
import type { IDisposable } from "@lumino/disposable";
import { Signal, type ISignal } from "@lumino/signaling";

/** A model that emits a signal when it has changed, until it is disposed. */
export abstract class Model implements IDisposable {
  protected readonly _changed = new Signal<this, void>(this);
  private _isDisposed = false;

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    this._isDisposed = true;
    Signal.clearData(this);
  }
}
