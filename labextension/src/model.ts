/** The jobs of this person, kept up to date by the agent's event stream. No DOM, no requests of its own. */
import { Signal, type ISignal } from "@lumino/signaling";

import { RequestError, toProblem } from "./problem";
import { identity, isCluster, isJob, isPrompt, isReached, isUnknown, newestFirst } from "./records";
import { isFinished, stateKind } from "./states";
import type {
  Connection,
  IAgentApi,
  ICluster,
  IJob,
  IJobsModel,
  IProblem,
  IPrompt,
} from "./tokens";

/** Waits between attempts to reach the agent, in milliseconds. */
const SHORTEST_RETRY = 2_000;
const LONGEST_RETRY = 120_000;
/** Finished jobs that are asked for and kept in view. */
export const FINISHED_KEPT = 1_000;

/** How long it is told that a lost link is back, in milliseconds. */
const BACK_TOLD = 15_000;

/** What the model takes from its surroundings; tests pass their own. */
export interface IModelOptions {
  readonly api: IAgentApi;
  readonly visible?: boolean;
  /** Resolves after so many milliseconds, or as soon as the signal is aborted. */
  readonly sleep?: (milliseconds: number, signal: AbortSignal) => Promise<void>;
  readonly random?: () => number;
  readonly clock?: () => number;
}

export function defaultSleep(milliseconds: number, signal: AbortSignal): Promise<void> {
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

export class JobsModel implements IJobsModel {
  private readonly _changed = new Signal<this, void>(this);
  private readonly _settled = new Signal<this, IPrompt>(this);
  /** Prompts that were answered here, until the agent says that they are settled. */
  private readonly _answered = new Map<string, IPrompt>();
  private readonly _options: Required<IModelOptions>;
  private _jobs = new Map<string, IJob>();
  private _clusters = new Map<string, ICluster>();
  private _prompts = new Map<string, IPrompt>();
  private _returned: string | null = null;
  /** The state in which each job was cancelled: until another is told, it goes by that. */
  private readonly _cancelling = new Map<string, string>();
  private _connection: Connection = "paused";
  private _problem: IProblem | null = null;
  private _isVisible = false;
  private _isKept = false;
  private _watch: AbortController | null = null;
  private readonly _ended = new AbortController();

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

  get settled(): ISignal<this, IPrompt> {
    return this._settled;
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

  get prompts(): readonly IPrompt[] {
    return [...this._prompts.values()];
  }

  get returned(): ICluster | null {
    return this._clusters.get(this._returned ?? "") ?? null;
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
    return this._ended.signal.aborted;
  }

  dispose(): void {
    this._ended.abort();
    this._watch?.abort();
    Signal.clearData(this);
  }

  setVisible(visible: boolean): void {
    this._isVisible = visible;
    this._listenWhereWanted(visible || this._isKept);
  }

  setKept(kept: boolean): void {
    this._isKept = kept;
    this._listenWhereWanted(kept || this._isVisible);
  }

  private _listenWhereWanted(wanted: boolean): void {
    if (this.isDisposed || wanted === (this._watch !== null)) {
      return;
    }
    if (wanted) {
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
      this._listenWhereWanted(false);
      this._listenWhereWanted(true);
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

  async connect(cluster: ICluster): Promise<void> {
    this._problem = null;
    this._changed.emit();
    try {
      await this._options.api.connect(cluster.id);
    } catch (error) {
      // A proxy may give up a request that waits for a person; the log-in goes on, and the events tell of it.
      const isAnswer =
        error instanceof RequestError && error.problem.type?.startsWith("urn:jupyter-slurm:");
      if (isAnswer || this._clusters.get(cluster.id)?.connection?.state !== "connecting") {
        this._problem = toProblem(error, "Connect again.");
      }
    }
    this._changed.emit();
  }

  async disconnect(cluster: ICluster): Promise<void> {
    try {
      await this._options.api.disconnect(cluster.id);
      this._problem = null;
    } catch (error) {
      this._problem = toProblem(error, "Whether the log-in has ended is not known: look again.");
    }
    this._changed.emit();
  }

  async answer(prompt: IPrompt, answers: readonly string[] | null): Promise<void> {
    this._prompts.delete(prompt.id);
    this._answered.set(prompt.id, prompt);
    this._changed.emit();
    try {
      await this._options.api.answer(prompt.id, answers);
    } catch (error) {
      if (error instanceof RequestError && error.problem.type?.endsWith(":prompt-gone")) {
        return; // somebody else was quicker
      }
      this._problem = toProblem(error, "An answer can be given anew as long as it is waited for.");
      if (answers !== null && !(error instanceof RequestError)) {
        this._prompts.set(prompt.id, prompt); // it did not arrive; what was refused would be refused again
      }
      this._changed.emit();
    }
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
   * the two would be lost. Prompts wait for nothing: the table of a cluster may wait for the answer to one.
   */
  private async _listen(signal: AbortSignal, live: () => void): Promise<void> {
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
      const stream = await this._options.api.events(stop.signal);
      const prompts = await this._options.api.prompts();
      this._prompts = new Map(prompts.map((prompt) => [prompt.id, prompt]));
      this._changed.emit();
      next(() => this._load(signal).then(live));
      for await (const { event, data } of stream) {
        if (signal.aborted) {
          return;
        }
        if (event === "prompt" && isPrompt(data)) {
          this._ask(data);
        } else {
          next(() => this._take(event, data));
        }
      }
    } finally {
      signal.removeEventListener("abort", end);
      await inOrder.finally(end); // what went wrong there says more than that the stream was broken off
    }
  }

  private _ask(prompt: IPrompt): void {
    if (prompt.settled) {
      const asked = this._prompts.get(prompt.id) ?? this._answered.get(prompt.id);
      this._prompts.delete(prompt.id);
      this._answered.delete(prompt.id);
      if (asked !== undefined) {
        this._settled.emit(asked);
      }
    } else {
      this._prompts.set(prompt.id, prompt);
    }
    this._changed.emit();
  }

  private async _load(signal: AbortSignal): Promise<void> {
    const { api } = this._options;
    const clusters = await api.clusters();
    const reached = clusters.filter(isReached);
    const table = (await Promise.all(reached.map(({ id }) => api.jobs(id, FINISHED_KEPT)))).flat();
    const present = new Set(table.map(identity));
    const gone = [...this._jobs.values()].filter((job) => !present.has(identity(job)));
    const lost = new Set(clusters.filter((each) => !isReached(each)).map(({ id }) => id));
    const ended = await Promise.all(
      gone.map(async (job) =>
        isFinished(job.state) || lost.has(job.cluster) ? job : this._lookUp(job),
      ),
    );
    if (signal.aborted) {
      return;
    }
    this._clusters = new Map();
    this._jobs = new Map();
    this._put([...table, ...ended.filter((job) => job !== null)]);
    clusters.forEach((cluster) => {
      this._know(cluster);
    });
    this._set("live", null);
  }

  /** How a job is that left the table while nobody looked; null when the agent does not know it any more. */
  private async _lookUp(job: IJob): Promise<IJob | null> {
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
      const known = this._clusters.get(data.id);
      this._know(data);
      if (isReached(data) && !(known && isReached(known))) {
        this._put(await this._options.api.jobs(data.id, FINISHED_KEPT));
      }
    } else {
      return; // an event of a newer agent
    }
    this._changed.emit();
  }

  /** Take in what is told of a cluster: without a log-in nothing is known of its jobs. */
  private _know(cluster: ICluster): void {
    const before = this._clusters.get(cluster.id)?.connection?.state;
    this._clusters.set(cluster.id, cluster);
    if (isUnknown(cluster)) {
      for (const [key, job] of this._jobs) {
        if (job.cluster === cluster.id) {
          this._jobs.delete(key);
        }
      }
    }
    if (before === "lost" && cluster.connection?.state === "connected") {
      void this._tellOfReturn(cluster.id);
    } else if (this._returned === cluster.id && cluster.connection?.state !== "connected") {
      this._returned = null;
    }
  }

  private async _tellOfReturn(cluster: string): Promise<void> {
    this._returned = cluster;
    await this._options.sleep(BACK_TOLD, this._ended.signal);
    if (this._returned === cluster) {
      this._returned = null;
      this._changed.emit();
    }
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
