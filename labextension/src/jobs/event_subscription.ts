/** Subscription to the event stream of the agent, which reconnects after a failure. No DOM. */
import type { IProblem } from "../common/api/objects";
import { toProblem } from "../common/api/problem";
import { isPrompt } from "../common/api/records";
import type { Connection } from "../common/jobs_model";
import type { PromptQueue } from "../logins/prompt_queue";
import type { IJobsApi } from "./api";

/** Shortest and longest time between attempts to reach the agent, in milliseconds. */
const MIN_RETRY_MS = 2_000;
const MAX_RETRY_MS = 120_000;

interface ISubscriptionOptions {
  readonly api: IJobsApi;
  readonly prompts: PromptQueue;
  readonly sleep: (milliseconds: number, signal: AbortSignal) => Promise<void>;
  readonly random: () => number;
  /** Called with the state of the connection; without a problem, the problem before still holds. */
  readonly onConnection: (connection: Connection, problem?: IProblem) => void;
  /** Load all data. */
  readonly load: (signal: AbortSignal) => Promise<void>;
  /** Apply an event. */
  readonly onEvent: (event: string, data: unknown) => Promise<void>;
}

export class EventSubscription {
  private _watch: AbortController | null = null;

  constructor(private readonly _options: ISubscriptionOptions) {}

  /** Aborted when the subscription is no longer wanted; null: there is none. */
  get signal(): AbortSignal | null {
    return this._watch?.signal ?? null;
  }

  setWanted(isWanted: boolean): void {
    if (isWanted === (this._watch !== null)) {
      return;
    }
    if (isWanted) {
      this._watch = new AbortController();
      void this._run(this._watch.signal);
    } else {
      this._watch?.abort();
      this._watch = null;
      this._options.onConnection("paused");
    }
  }

  stop(): void {
    this._watch?.abort();
  }

  /** Listen until the subscription is no longer wanted; reconnect after failures, at increasing intervals. */
  private async _run(signal: AbortSignal): Promise<void> {
    const { onConnection, sleep, random } = this._options;
    for (let failures = 0; !signal.aborted; failures += 1) {
      onConnection("connecting");
      const error = await this._listen(signal, () => {
        failures = -1;
      }).then(
        () => null, // a server that ends the stream in order is asked again after the shortest wait
        (error: unknown) => toProblem(error, "The connection is retried automatically."),
      );
      if (this.signal !== signal) {
        return;
      }
      if (error !== null) {
        onConnection("broken", error);
      }
      const wait = Math.min(MAX_RETRY_MS, MIN_RETRY_MS * 2 ** Math.max(0, failures));
      await sleep(wait * (0.75 + random() / 2), signal);
    }
  }

  /**
   * Load the table once, then apply every change. The stream is opened before the table is requested, or a change
   * between the two would be lost. Prompts do not wait for the table: the table of a cluster may wait for the answer to
   * one.
   */
  private async _listen(signal: AbortSignal, live: () => void): Promise<void> {
    const { api, prompts, load, onEvent } = this._options;
    const stop = new AbortController();
    const end = (): void => {
      stop.abort();
    };
    signal.addEventListener("abort", end);
    let inOrder = Promise.resolve();
    const next = (act: () => Promise<void>): void => {
      inOrder = inOrder.then(() => (signal.aborted ? undefined : act()));
      inOrder.catch(end);
    };
    try {
      const stream = await api.events(stop.signal);
      prompts.replaceAll(await api.prompts());
      next(() => load(signal).then(live));
      for await (const { event, data } of stream) {
        if (signal.aborted) {
          return;
        }
        if (event === "prompt" && isPrompt(data)) {
          prompts.receive(data);
        } else {
          next(() => onEvent(event, data));
        }
      }
    } finally {
      signal.removeEventListener("abort", end);
      await inOrder.finally(end); // that failure says more than a stream that was aborted
    }
  }
}
