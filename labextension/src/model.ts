/** The jobs of this person, kept up to date by the agent's event stream. No DOM, no requests of its own. */
import { Signal, type ISignal } from "@lumino/signaling";

import { toProblem } from "./problem";
import { isFinished, stateKind } from "./states";
import type { Connection, IAgentApi, ICluster, IJob, IJobsModel, IProblem } from "./tokens";

/** Waits between attempts to reach the agent, in milliseconds. */
const SHORTEST_RETRY = 2_000;
const LONGEST_RETRY = 120_000;
/** Finished jobs that are asked for and kept in view. */
export const FINISHED_KEPT = 1_000;

/** What the model takes from its surroundings; tests pass their own. */
export interface IModelOptions {
  readonly api: IAgentApi;
  readonly visible?: boolean;
  /** Resolves after so many milliseconds, or as soon as the signal is aborted. */
  readonly sleep?: (milliseconds: number, signal: AbortSignal) => Promise<void>;
  readonly random?: () => number;
  readonly clock?: () => number;
}

function defaultSleep(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const finish = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", finish);
      resolve();
    };
    const timer = setTimeout(finish, milliseconds);
    signal.addEventListener("abort", finish);
  });
}

/** A job's identity on this page: Slurm's ids wrap, keys do not. */
function identity(job: IJob): string {
  return JSON.stringify([job.cluster, job.key ?? [job.id, job.submit_time]]);
}

/** A job without a time is just being submitted. Slurm tells whole seconds. */
function newestFirst(a: IJob, b: IJob): number {
  const time = (job: IJob): number => Math.floor(job.submit_time ?? Number.MAX_SAFE_INTEGER);
  return time(b) - time(a) || Number(b.id) - Number(a.id);
}

function isJob(data: unknown): data is IJob {
  return typeof data === "object" && data !== null && "cluster" in data && "state" in data;
}

function isCluster(data: unknown): data is ICluster {
  return typeof data === "object" && data !== null && "id" in data && "poll" in data;
}

export class JobsModel implements IJobsModel {
  private readonly _changed = new Signal<this, void>(this);
  private readonly _options: Required<IModelOptions>;
  private _jobs = new Map<string, IJob>();
  private _clusters = new Map<string, ICluster>();
  /** The state in which each job was cancelled: until another is told, it goes by that. */
  private readonly _cancelling = new Map<string, string>();
  private _connection: Connection = "paused";
  private _problem: IProblem | null = null;
  private _watch: AbortController | null = null;
  private _disposed = false;

  constructor(options: IModelOptions) {
    this._options = {
      visible: true,
      sleep: defaultSleep,
      random: () => Math.random(),
      clock: () => Date.now() / 1000,
      ...options,
    };
    this.setVisible(this._options.visible);
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get connection(): Connection {
    return this._connection;
  }

  get problem(): IProblem | null {
    return this._problem;
  }

  get clusters(): readonly ICluster[] {
    return [...this._clusters.values()];
  }

  get jobs(): readonly IJob[] {
    const rank = ({ state }: IJob): number =>
      isFinished(state) ? 2 : Number(stateKind(state) === "pending");
    return [...this._jobs.values()].sort((a, b) => rank(a) - rank(b) || newestFirst(a, b));
  }

  get older(): boolean {
    return this._finished().length >= FINISHED_KEPT;
  }

  get running(): number {
    return this._count("running");
  }

  get pending(): number {
    return this._count("pending");
  }

  get now(): number {
    return this._options.clock() + this._options.api.clockOffset;
  }

  get isDisposed(): boolean {
    return this._disposed;
  }

  dispose(): void {
    this._disposed = true;
    this._watch?.abort();
    Signal.clearData(this);
  }

  setVisible(visible: boolean): void {
    if (this._disposed || visible === (this._watch !== null)) {
      return;
    }
    if (visible) {
      this._watch = new AbortController();
      void this._run(this._watch.signal);
    } else {
      this._watch?.abort();
      this._watch = null;
      this._set("paused", this._problem);
    }
  }

  refresh(): void {
    if (this._watch !== null) {
      this._cancelling.clear();
      this.setVisible(false);
      this.setVisible(true);
    }
  }

  isCancelling(job: IJob): boolean {
    return this._cancelling.get(identity(job)) === job.state;
  }

  async cancel(job: IJob): Promise<void> {
    const reference = job.key ?? job.id;
    if (reference === null || this.isCancelling(job)) {
      return;
    }
    this._cancelling.set(identity(job), job.state);
    this._changed.emit();
    try {
      this._put([await this._options.api.cancel(job.cluster, reference)]);
      this._problem = null;
    } catch (error) {
      this._cancelling.delete(identity(job));
      this._problem = toProblem(error, "Whether the job was cancelled is not known: look again.");
    }
    this._changed.emit();
  }

  private _count(kind: string): number {
    let count = 0;
    for (const job of this._jobs.values()) {
      count += Number(stateKind(job.state) === kind);
    }
    return count;
  }

  private _set(connection: Connection, problem: IProblem | null): void {
    this._connection = connection;
    this._problem = problem;
    this._changed.emit();
  }

  /** Listen until nobody looks any more; come back by itself after a failure, ever more rarely while it lasts. */
  private async _run(signal: AbortSignal): Promise<void> {
    for (let failures = 0; !signal.aborted; failures += 1) {
      this._set("connecting", this._problem);
      const error = await this._listen(signal, () => {
        failures = -1;
      }).then(
        () => null, // a server that goes away in order is asked again after the shortest wait
        (error: unknown) => toProblem(error, "The connection is tried again by itself."),
      );
      if (this._watch?.signal !== signal) {
        return;
      }
      if (error !== null) {
        this._set("broken", error);
      }
      const wait = Math.min(LONGEST_RETRY, SHORTEST_RETRY * 2 ** Math.max(0, failures));
      await this._options.sleep(wait * (0.75 + this._options.random() / 2), signal);
    }
  }

  /**
   * Take the table once, then every change of it. The stream is opened before the table is asked for, or a change between
   * the two would be lost.
   */
  private async _listen(signal: AbortSignal, live: () => void): Promise<void> {
    const stop = new AbortController();
    const forward = (): void => {
      stop.abort();
    };
    signal.addEventListener("abort", forward);
    try {
      const stream = await this._options.api.events(stop.signal);
      await this._load(signal);
      live();
      for await (const { event, data } of stream) {
        if (signal.aborted) {
          return;
        }
        await this._take(event, data);
      }
    } finally {
      stop.abort();
      signal.removeEventListener("abort", forward);
    }
  }

  private async _load(signal: AbortSignal): Promise<void> {
    const { api } = this._options;
    const clusters = await api.clusters();
    const table = (await Promise.all(clusters.map(({ id }) => api.jobs(id, FINISHED_KEPT)))).flat();
    const present = new Set(table.map(identity));
    const gone = [...this._jobs.values()].filter((job) => !present.has(identity(job)));
    const ended = await Promise.all(
      gone.map(async (job) => (isFinished(job.state) ? job : this._ask(job))),
    );
    if (signal.aborted) {
      return;
    }
    this._clusters = new Map(clusters.map((cluster) => [cluster.id, cluster]));
    this._jobs = new Map();
    this._put([...table, ...ended.filter((job) => job !== null)]);
    this._set("live", null);
  }

  /** How a job is that left the table while nobody looked; null when the agent does not know it any more. */
  private async _ask(job: IJob): Promise<IJob | null> {
    const reference = job.key ?? job.id;
    try {
      return reference === null ? null : await this._options.api.job(job.cluster, reference);
    } catch {
      return null;
    }
  }

  private async _take(event: string, data: unknown): Promise<void> {
    if (event === "job" && isJob(data)) {
      this._put([data]);
    } else if (event === "cluster" && isCluster(data)) {
      const isNew = !this._clusters.has(data.id);
      this._clusters.set(data.id, data);
      if (isNew) {
        this._put(await this._options.api.jobs(data.id, FINISHED_KEPT));
      }
    } else {
      return; // an event of a newer agent
    }
    this._changed.emit();
  }

  private _put(jobs: readonly IJob[]): void {
    for (const job of jobs) {
      this._jobs.set(identity(job), job);
    }
    const finished = this._finished();
    if (finished.length > FINISHED_KEPT) {
      for (const old of finished.sort(newestFirst).slice(FINISHED_KEPT)) {
        this._jobs.delete(identity(old));
      }
    }
  }

  private _finished(): IJob[] {
    return [...this._jobs.values()].filter(({ state }) => isFinished(state));
  }
}
