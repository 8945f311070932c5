/** Model of the jobs, kept up to date by the event stream of the agent. No DOM, no requests of its own. */
import { Signal, type ISignal } from "@lumino/signaling";

import type {
  Act,
  IActProgress,
  ICluster,
  IFailure,
  IJob,
  IProblem,
  IPrompt,
} from "../common/api/objects";
import { RequestError, toProblem } from "../common/api/problem";
import { defaultSleep } from "../common/api/retry";
import {
  identity,
  isActProgress,
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
import { PromptQueue } from "../logins/prompt_queue";
import type { IJobsApi } from "./api";
import { labelClusters } from "./cluster_names";
import { EventSubscription } from "./event_subscription";
import { PendingActions } from "./actions/pending_actions";
import { RunningActs } from "./actions/running_acts";
import { PollTimes } from "./poll_times";
import { JobStore, MAX_OLDER } from "./store";

/** Time in which changes of many jobs are gathered, in milliseconds. */
const CHANGE_DELAY_MS = 50;
/** Time for which a restored connection is shown, in milliseconds. */
const RECONNECTED_SHOWN_MS = 15_000;

/** Dependencies of the model. */
export interface IModelOptions {
  readonly api: IJobsApi;
  readonly visible?: boolean;
  readonly sleep?: (milliseconds: number, signal: AbortSignal) => Promise<void>;
  readonly random?: () => number;
  readonly clock?: () => number;
}

export class JobsModel extends Model implements IJobsModel {
  private readonly _settled = new Signal<this, IPrompt>(this);
  private readonly _promptQueue: PromptQueue;
  private readonly _options: Required<IModelOptions>;
  private readonly _store = new JobStore();
  private readonly _actions: PendingActions;
  private readonly _runningActs: RunningActs;
  private _clusters = new Map<string, ICluster>();
  private readonly _pollTimes: PollTimes;
  private _reconnected: string | null = null;
  private _connection: Connection = "paused";
  private _problem: IProblem | null = null;
  private _isVisible = false;
  private _isInBackground = false;
  private readonly _subscription: EventSubscription;
  private readonly _ended = new AbortController();
  private _changeTimer: ReturnType<typeof setTimeout> | null = null;

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
    this._promptQueue = new PromptQueue({ api: options.api, changed, settled });
    this._actions = new PendingActions({
      api: options.api,
      changed,
      update: (jobs) => {
        this._store.put(jobs);
      },
      isKnown: (job) => this._store.has(job),
    });
    this._runningActs = new RunningActs(options.api);
    this._pollTimes = new PollTimes(this._options.clock);
    this._subscription = new EventSubscription({
      ...{ api: options.api, prompts: this._promptQueue },
      ...{ sleep: this._options.sleep, random: this._options.random },
      onConnection: (connection, problem = this._problem ?? undefined) => {
        this._set(connection, problem ?? null);
      },
      load: (signal) => this._load(signal),
      onEvent: (event, data) => this._applyEvent(event, data),
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
    return this._promptQueue.prompts;
  }

  get reconnected(): ICluster | null {
    return this._clusters.get(this._reconnected ?? "") ?? null;
  }

  get jobs(): readonly IJob[] {
    return this._store.jobs;
  }

  get hasOlder(): boolean {
    return this._store.finished >= this._store.maxFinished;
  }

  get running(): number {
    return this._store.count("running");
  }

  get pending(): number {
    return this._store.count("pending");
  }

  get failures(): readonly IFailure[] {
    return this._actions.failures;
  }

  get runningActs(): readonly IActProgress[] {
    return this._runningActs.all;
  }

  get updatedAt(): number | null {
    return this._pollTimes.oldest(this._clusters.values());
  }

  refreshClusters(): void {
    if (this._connection === "live") {
      void this._options.api.clusters().then(
        (clusters) => {
          clusters.forEach(this._pollTimes.note);
          this._changed.emit();
        },
        () => undefined, // the stream reports failures
      );
    }
  }

  get now(): number {
    return this._options.clock() + this._options.api.clockOffset;
  }

  override dispose(): void {
    super.dispose();
    this._ended.abort();
    this._subscription.stop();
    clearTimeout(this._changeTimer ?? undefined);
  }

  setVisible(visible: boolean): void {
    this._isVisible = visible;
    this._updateSubscription();
  }

  setInBackground(kept: boolean): void {
    this._isInBackground = kept;
    this._updateSubscription();
  }

  private _updateSubscription(): void {
    if (!this.isDisposed) {
      this._subscription.setWanted(this._isVisible || this._isInBackground);
    }
  }

  refresh(): void {
    if (this._subscription.signal !== null) {
      this._actions.clear();
      this._subscription.setWanted(false);
      this._updateSubscription();
    }
  }

  refreshQueue(): void {
    const { signal } = this._subscription;
    if (this._connection === "live" && signal !== null) {
      // The stream reports failures, and its events have the new jobs too.
      void Promise.allSettled(
        this.clusters.filter(isReached).map(async ({ id }) => {
          const jobs = await this._options.api.jobs(id, 0);
          if (!signal.aborted) {
            this._store.put(jobs);
            this._emitSoon();
          }
        }),
      );
    }
  }

  pendingAct(job: IJob): Act | null {
    return this._actions.pendingAct(job);
  }

  isCancelling(job: IJob): boolean {
    return this.pendingAct(job) === "cancel";
  }

  cancel(job: IJob): Promise<void> {
    return this.act("cancel", [job]);
  }

  async act(act: Act, jobs: readonly IJob[], limit?: string): Promise<void> {
    this._problem = await this._actions.act(act, jobs, limit);
    this._changed.emit();
  }

  async stopAct(act: IActProgress): Promise<void> {
    this._problem = await this._runningActs.stop(act);
    this._changed.emit();
  }

  dismiss(): void {
    this._actions.failures = [];
    this._changed.emit();
  }

  showOlder(): void {
    this._store.maxFinished = MAX_OLDER;
    this.refresh();
  }

  async loadParts(job: IJob): Promise<IJob[]> {
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
      // A proxy may give up a request that waits for the user; the login continues, and the events report it.
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
      this._problem = toProblem(
        error,
        "It is not known whether the login has ended. Refresh the list.",
      );
    }
    this._changed.emit();
  }

  async answer(prompt: IPrompt, answers: readonly string[] | null): Promise<void> {
    const problem = await this._promptQueue.answer(prompt, answers);
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
    // A cluster that does not answer does not affect the others.
    const tables = await Promise.allSettled(
      reached.map(({ id }) => api.jobs(id, this._store.maxFinished)),
    );
    await this._runningActs.load(reached.map(({ id }) => id));
    const failed = tables.find((each) => each.status === "rejected");
    if (failed !== undefined && tables.every(({ status }) => status === "rejected")) {
      throw failed.reason;
    }
    const table = tables.flatMap((each) => (each.status === "fulfilled" ? each.value : []));
    const present = new Set(table.map(identity));
    const gone = this._store.jobs.filter((job) => !present.has(identity(job)));
    const answered = new Set(reached.filter((_, at) => tables[at]?.status === "fulfilled"));
    const lost = new Set(clusters.filter((each) => !answered.has(each)).map(({ id }) => id));
    const ended = await Promise.all(
      gone.map(async (job) =>
        isFinished(job.state) || lost.has(job.cluster) ? job : this._lookUp(job),
      ),
    );
    if (signal.aborted) {
      return;
    }
    this._clusters = new Map();
    this._store.retain(() => false);
    this._store.put([...table, ...ended.filter((job) => job !== null)]);
    clusters.forEach((cluster) => {
      this._applyCluster(cluster);
    });
    this._set("live", null);
  }

  /** Return a job that left the table while nothing was visible; null when the agent does not know it any more. */
  private async _lookUp(job: IJob): Promise<IJob | null> {
    const reference = referenceOf(job);
    try {
      return reference === null ? null : await this._options.api.job(job.cluster, reference);
    } catch {
      return null;
    }
  }

  private async _applyEvent(event: string, data: unknown): Promise<void> {
    if (event === "job" && isJob(data)) {
      this._store.put([data]);
      this._emitSoon();
      return;
    } else if (event === "act" && isActProgress(data)) {
      this._runningActs.receive(data);
    } else if (event === "cluster" && isCluster(data)) {
      const known = this._clusters.get(data.id);
      this._applyCluster(data);
      if (isReached(data) && !(known && isReached(known))) {
        this._store.put(await this._options.api.jobs(data.id, this._store.maxFinished));
      }
    } else {
      return; // an event of a newer agent
    }
    this._changed.emit();
  }

  /** Apply the state of a cluster: without a login nothing is known of its jobs. */
  private _applyCluster(cluster: ICluster): void {
    const before = this._clusters.get(cluster.id)?.connection?.state;
    this._clusters = labelClusters(this._clusters.set(cluster.id, cluster));
    this._pollTimes.note(cluster);
    if (isUnknown(cluster)) {
      this._store.retain((job) => job.cluster !== cluster.id);
    }
    if (before === "lost" && cluster.connection?.state === "connected") {
      void this._showReconnected(cluster.id);
    } else if (this._reconnected === cluster.id && cluster.connection?.state !== "connected") {
      this._reconnected = null;
    }
  }

  private async _showReconnected(cluster: string): Promise<void> {
    this._reconnected = cluster;
    await this._options.sleep(RECONNECTED_SHOWN_MS, this._ended.signal);
    if (this._reconnected === cluster) {
      this._reconnected = null;
      this._changed.emit();
    }
  }

  /** Emit the changes of a moment together. */
  private _emitSoon(): void {
    this._changeTimer ??= setTimeout(() => {
      this._changeTimer = null;
      this._changed.emit();
    }, CHANGE_DELAY_MS);
  }
}
