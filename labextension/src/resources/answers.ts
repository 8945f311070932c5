/** Answers of the agent about a cluster, loaded as long as a view shows them. No DOM. */
import type { IDisposable } from "@lumino/disposable";
import type { ISignal } from "@lumino/signaling";

import type { IProblem } from "../common/api/objects";
import { toProblem } from "../common/api/problem";
import { retryUntilAnswered } from "../common/api/retry";
import { Model } from "../common/observable_model";

/** An answer about one cluster, and the state of the request. */
export interface IAnswerState<T> {
  /** Null before the first answer. */
  readonly answer: T | null;
  readonly problem: IProblem | null;
  readonly isLoading: boolean;
}

/** Answers of one kind, by cluster. */
export interface IAnswers<T> extends IDisposable {
  readonly changed: ISignal<IAnswers<T>, void>;
  stateOf(cluster: string): IAnswerState<T>;
  /** Load the answer, after a click. The agent limits its own queries, and may return the last answer. */
  load(cluster: string): Promise<void>;
  /** Load the answer if the last request is older than the time for which the agent keeps one. */
  keepRecent(cluster: string): Promise<void>;
}

export class Answers<T> extends Model implements IAnswers<T> {
  private readonly _states = new Map<string, IAnswerState<T>>();
  /** End of the last request of each cluster, in milliseconds. */
  private readonly _ends = new Map<string, number>();

  /**
   * @param _ask - Sends the request; `newer` after a click.
   * @param _period - Milliseconds for which the agent keeps an answer.
   */
  constructor(
    private readonly _ask: (cluster: string, newer: boolean) => Promise<T>,
    private readonly _period: number,
    private readonly _clock: () => number = () => performance.now(),
  ) {
    super();
  }

  stateOf(cluster: string): IAnswerState<T> {
    return this._states.get(cluster) ?? { answer: null, problem: null, isLoading: false };
  }

  load(cluster: string): Promise<void> {
    return this._load(cluster, true);
  }

  async keepRecent(cluster: string): Promise<void> {
    if (this._clock() - (this._ends.get(cluster) ?? -Infinity) >= this._period) {
      await this._load(cluster, false);
    }
  }

  private async _load(cluster: string, newer: boolean): Promise<void> {
    const before = this.stateOf(cluster);
    if (before.isLoading) {
      return;
    }
    this._set(cluster, { ...before, isLoading: true });
    try {
      const answer = await retryUntilAnswered(
        () => this._ask(cluster, newer),
        (problem) => {
          this._set(cluster, { ...before, problem, isLoading: true });
        },
      );
      this._set(cluster, { answer, problem: null, isLoading: false });
    } catch (error) {
      this._set(cluster, { ...before, problem: toProblem(error, "Refresh."), isLoading: false });
    }
    this._ends.set(cluster, this._clock());
  }

  private _set(cluster: string, state: IAnswerState<T>): void {
    if (!this.isDisposed) {
      this._states.set(cluster, state);
      this._changed.emit();
    }
  }
}
