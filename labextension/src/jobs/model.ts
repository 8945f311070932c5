/** The jobs of this person, kept up to date by the agent's event stream. No DOM, no requests of its own. */
import { Signal, type ISignal } from "@lumino/signaling";

import type { Act, ICluster, IFailure, IJob, IProblem, IPrompt } from "../common/api/objects";
import { RequestError, toProblem } from "../common/api/problem";
import {
  identity,
  isCluster,
  isJob,
  isReached,
  isUnknown,
  referenceOf,
  taskJobs,
} from "../common/api/records";
import { isFinished } from "../common/job_states";
import type { Connection, IJobsModel } from "../common/jobs_model";
import { Model } from "../common/observable_model";
import { Asked } from "../logins/prompt_queue";
import type { IAgentApi } from "./api";
import { Listening } from "./event_subscription";
import { Acts } from "./pending_actions";
import { JobStore, OLDER_KEPT } from "./store";

/** In this time changes of many jobs are told as one, in milliseconds. */
const TOGETHER = 50;

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

export class JobsModel extends Model implements IJobsModel {
  private readonly _settled = new Signal<this, IPrompt>(this);
  private readonly _asked: Asked;
  private readonly _options: Required<IModelOptions>;
  private readonly _store = new JobStore();
  private readonly _acts: Acts;
  private _clusters = new Map<string, ICluster>();
  private _returned: string | null = null;
  private _connection: Connection = "paused";
  private _problem: IProblem | null = null;
  private _isVisible = false;
  private _isKept = false;
  private readonly _listening: Listening;
  private readonly _ended = new AbortController();
  private _telling: ReturnType<typeof setTimeout> | null = null;

  constructor(options: IModelOptions) {
    super();
    this._options = {
      visible: true,
      sleep: defaultSleep,
      random: () => Math.random(),
      clock: () => Date.now() / 1000,
      ...options,
    };
    const changed = (): void => {
      this._changed.emit();
    };
    const settled = (prompt: IPrompt): void => {
      this._settled.emit(prompt);
    };
    this._asked = new Asked({ api: options.api, changed, settled });
    this._acts = new Acts({
      api: options.api,
      changed,
      take: (jobs) => {
        this._store.put(jobs);
      },
      isKnown: (job) => this._store.has(job),
    });
    this._listening = new Listening({
      ...{ api: options.api, asked: this._asked },
      ...{ sleep: this._options.sleep, random: this._options.random },
      told: (connection, problem = this._problem ?? undefined) => {
        this._set(connection, problem ?? null);
      },
      load: (signal) => this._load(signal),
      take: (event, data) => this._take(event, data),
    });
    this.setVisible(this._options.visible);
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
    return this._asked.prompts;
  }

  get returned(): ICluster | null {
    return this._clusters.get(this._returned ?? "") ?? null;
  }

  get jobs(): readonly IJob[] {
    return this._store.jobs;
  }

  get older(): boolean {
    return this._store.finished >= this._store.kept;
  }

  get running(): number {
    return this._store.count("running");
  }

  get pending(): number {
    return this._store.count("pending");
  }

  get failures(): readonly IFailure[] {
    return this._acts.failures;
  }

  get now(): number {
    return this._options.clock() + this._options.api.clockOffset;
  }

  override dispose(): void {
    super.dispose();
    this._ended.abort();
    this._listening.end();
    clearTimeout(this._telling ?? undefined);
  }

  setVisible(visible: boolean): void {
    this._isVisible = visible;
    this._listenWhereWanted();
  }

  setKept(kept: boolean): void {
    this._isKept = kept;
    this._listenWhereWanted();
  }

  private _listenWhereWanted(): void {
    if (!this.isDisposed) {
      this._listening.want(this._isVisible || this._isKept);
    }
  }

  refresh(): void {
    if (this._listening.signal !== null) {
      this._acts.forget();
      this._listening.want(false);
      this._listenWhereWanted();
    }
  }

  look(): void {
    const { signal } = this._listening;
    if (this._connection === "live" && signal !== null) {
      // What goes wrong is told by the stream, and what is new by its events, too.
      void Promise.allSettled(
        this.clusters.filter(isReached).map(async ({ id }) => {
          const jobs = await this._options.api.jobs(id, 0);
          if (!signal.aborted) {
            this._store.put(jobs);
            this._tellSoon();
          }
        }),
      );
    }
  }

  acting(job: IJob): Act | null {
    return this._acts.under(job);
  }

  isCancelling(job: IJob): boolean {
    return this.acting(job) === "cancel";
  }

  cancel(job: IJob): Promise<void> {
    return this.act("cancel", [job]);
  }

  async act(act: Act, jobs: readonly IJob[], limit?: string): Promise<void> {
    this._problem = await this._acts.act(act, jobs, limit);
    this._changed.emit();
  }

  dismiss(): void {
    this._acts.failures = [];
    this._changed.emit();
  }

  showOlder(): void {
    this._store.kept = OLDER_KEPT;
    this.refresh();
  }

  async parts(job: IJob): Promise<IJob[]> {
    const { api } = this._options;
    const reference = referenceOf(job) ?? "";
    return job.tasks === null
      ? api.steps(job.cluster, reference)
      : taskJobs(job, await api.tasks(job.cluster, reference));
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
    const problem = await this._asked.answer(prompt, answers);
    if (problem !== null) {
      this._problem = problem;
      this._changed.emit();
    }
  }

  private _set(connection: Connection, problem: IProblem | null): void {
    this._connection = connection;
    this._problem = problem;
    this._changed.emit();
  }

  private async _load(signal: AbortSignal): Promise<void> {
    const { api } = this._options;
    const clusters = await api.clusters();
    const reached = clusters.filter(isReached);
    // A cluster that does not answer takes nothing from the others.
    const tables = await Promise.allSettled(
      reached.map(({ id }) => api.jobs(id, this._store.kept)),
    );
    const failed = tables.find((each) => each.status === "rejected");
    if (failed !== undefined && tables.every(({ status }) => status === "rejected")) {
      throw failed.reason;
    }
    const table = tables.flatMap((each) => (each.status === "fulfilled" ? each.value : []));
    const present = new Set(table.map(identity));
    const gone = this._store.jobs.filter((job) => !present.has(identity(job)));
    const told = new Set(reached.filter((_, at) => tables[at]?.status === "fulfilled"));
    const lost = new Set(clusters.filter((each) => !told.has(each)).map(({ id }) => id));
    const ended = await Promise.all(
      gone.map(async (job) =>
        isFinished(job.state) || lost.has(job.cluster) ? job : this._lookUp(job),
      ),
    );
    if (signal.aborted) {
      return;
    }
    this._clusters = new Map();
    this._store.keep(() => false);
    this._store.put([...table, ...ended.filter((job) => job !== null)]);
    clusters.forEach((cluster) => {
      this._know(cluster);
    });
    this._set("live", null);
  }

  /** How a job is that left the table while nobody looked; null when the agent does not know it any more. */
  private async _lookUp(job: IJob): Promise<IJob | null> {
    const reference = referenceOf(job);
    try {
      return reference === null ? null : await this._options.api.job(job.cluster, reference);
    } catch {
      return null;
    }
  }

  private async _take(event: string, data: unknown): Promise<void> {
    if (event === "job" && isJob(data)) {
      this._store.put([data]);
      this._tellSoon();
      return;
    } else if (event === "cluster" && isCluster(data)) {
      const known = this._clusters.get(data.id);
      this._know(data);
      if (isReached(data) && !(known && isReached(known))) {
        this._store.put(await this._options.api.jobs(data.id, this._store.kept));
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
      this._store.keep((job) => job.cluster !== cluster.id);
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

  /** Tell of the changes of a moment together: the events of an array come by the thousand. */
  private _tellSoon(): void {
    this._telling ??= setTimeout(() => {
      this._telling = null;
      this._changed.emit();
    }, TOGETHER);
  }
}
