/** Hears what the agent tells while somebody looks, and comes back by itself when the link was broken. No DOM. */
import type { IProblem } from "../common/api/objects";
import { toProblem } from "../common/api/problem";
import { isPrompt } from "../common/api/records";
import type { Connection } from "../common/jobs_model";
import type { Asked } from "../logins/prompt_queue";
import type { IAgentApi } from "./api";

/** Waits between attempts to reach the agent, in milliseconds. */
const SHORTEST_RETRY = 2_000;
const LONGEST_RETRY = 120_000;

interface IListeningOptions {
  readonly api: IAgentApi;
  readonly asked: Asked;
  readonly sleep: (milliseconds: number, signal: AbortSignal) => Promise<void>;
  readonly random: () => number;
  /** Is told how it stands; with `undefined`, what was wrong before still is. */
  readonly told: (connection: Connection, problem?: IProblem) => void;
  /** Asks for all that there is. */
  readonly load: (signal: AbortSignal) => Promise<void>;
  /** Takes in a change. */
  readonly take: (event: string, data: unknown) => Promise<void>;
}

export class Listening {
  private _watch: AbortController | null = null;

  constructor(private readonly _options: IListeningOptions) {}

  /** Aborted when nobody looks any more; null: nobody does. */
  get signal(): AbortSignal | null {
    return this._watch?.signal ?? null;
  }

  want(isWanted: boolean): void {
    if (isWanted === (this._watch !== null)) {
      return;
    }
    if (isWanted) {
      this._watch = new AbortController();
      void this._run(this._watch.signal);
    } else {
      this._watch?.abort();
      this._watch = null;
      this._options.told("paused");
    }
  }

  end(): void {
    this._watch?.abort();
  }

  /** Listen until nobody looks any more; come back by itself after a failure, ever more rarely while it lasts. */
  private async _run(signal: AbortSignal): Promise<void> {
    const { told, sleep, random } = this._options;
    for (let failures = 0; !signal.aborted; failures += 1) {
      told("connecting");
      const error = await this._listen(signal, () => {
        failures = -1;
      }).then(
        () => null, // a server that goes away in order is asked again after the shortest wait
        (error: unknown) => toProblem(error, "The connection is tried again by itself."),
      );
      if (this.signal !== signal) {
        return;
      }
      if (error !== null) {
        told("broken", error);
      }
      const wait = Math.min(LONGEST_RETRY, SHORTEST_RETRY * 2 ** Math.max(0, failures));
      await sleep(wait * (0.75 + random() / 2), signal);
    }
  }

  /**
   * Take the table once, then every change of it. The stream is opened before the table is asked for, or a change between
   * the two would be lost. Prompts wait for nothing: the table of a cluster may wait for the answer to one.
   */
  private async _listen(signal: AbortSignal, live: () => void): Promise<void> {
    const { api, asked, load, take } = this._options;
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
      asked.know(await api.prompts());
      next(() => load(signal).then(live));
      for await (const { event, data } of stream) {
        if (signal.aborted) {
          return;
        }
        if (event === "prompt" && isPrompt(data)) {
          asked.hear(data);
        } else {
          next(() => take(event, data));
        }
      }
    } finally {
      signal.removeEventListener("abort", end);
      await inOrder.finally(end); // what went wrong there says more than that the stream was broken off
    }
  }
}
