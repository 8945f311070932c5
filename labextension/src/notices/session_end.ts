/** Warning in the pages of a session before its end. No DOM. */
import type { IDisposable } from "@lumino/disposable";

import type { OwnSession } from "../sessions/own_session";
import type { INoticeSettings } from "./model";

/** Dependencies of the warning. */
export interface ISessionEndOptions {
  readonly settings: () => INoticeSettings;
  /** Show the warning; return a function that removes it. */
  readonly show: (end: number) => () => void;
}

/** Difference of two ends that are the same, in seconds: Slurm sends the exact times later. */
const SAME_END_S = 30;

/** Warns once of each end; when the time limit has been extended, the warning disappears. */
export class SessionEndWarning implements IDisposable {
  private _end: number | null = null;
  private _remove: (() => void) | null = null;
  private _isDisposed = false;

  constructor(
    private readonly _own: OwnSession,
    private readonly _options: ISessionEndOptions,
  ) {
    _own.changed.connect(this.check);
    this.check();
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    this._isDisposed = true;
    this._own.changed.disconnect(this.check);
  }

  /** Check for the end, whose coming no event reports. */
  readonly check = (): void => {
    const { nearLimit, nearLimitMinutes } = this._options.settings();
    const { end } = this._own;
    const isNear = nearLimit && this._own.isNearEnd(nearLimitMinutes);
    if (end !== null && this._end !== null && Math.abs(end - this._end) < SAME_END_S) {
      return;
    }
    if (end !== null && this._end !== null) {
      this._end = null;
      this._remove?.();
      this._remove = null;
    }
    if (end !== null && isNear) {
      this._end = end;
      this._remove = this._options.show(end);
    }
  };
}
