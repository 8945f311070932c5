/** Sessions: Jupyters that jobs run. What is launched here, beside what the jobs' model knows. No DOM. */
import { Token } from "@lumino/coreutils";
import type { IDisposable } from "@lumino/disposable";
import type { ISignal } from "@lumino/signaling";

import type { ApiSchemas, IJob, IProblem, ISession } from "../common/api/objects";
import { RequestError, toProblem } from "../common/api/problem";
import type { IJobsModel } from "../common/jobs_model";
import { newKey, type IForm, type ILaunch } from "../common/launch_request";
import { Model } from "../common/observable_model";
import type { IResourcesModel } from "../resources/model";
import { launchOf } from "./form_values";

/** The job of a session. */
export type SessionJob = IJob & { readonly key: string; readonly session: ISession };

/** A name that may stand in a field, and what there is to say about it. */
export type IChoice = ApiSchemas["Names"]["names"][number];

/** The kinds of names that are asked for. */
export type Kind = "partition" | "account" | "qos" | "environment" | "gpu-of-node" | "time-limit";
export type Choices = Readonly<Record<Kind, readonly IChoice[]>>;

/** What speaks against a launch, by what is known of the cluster, and when it could begin. */
export type IPreview = Pick<ApiSchemas["Preview"], "warnings" | "doubts"> & {
  readonly estimate?: Pick<ApiSchemas["Estimate"], "start" | "said">;
};

/** What the model needs of the agent. */
export interface ISessionsApi {
  /** @param wait - Seconds for what is not known yet. */
  names(cluster: string, kind: Kind, partition: string, wait: number): Promise<IChoice[]>;
  /** @param estimate - Whether Slurm is asked when it could begin. */
  preview(cluster: string, launch: ILaunch, estimate: boolean): Promise<IPreview>;
  launch(cluster: string, launch: ILaunch): Promise<IJob>;
  session(cluster: string, session: string): Promise<IJob>;
  /** Bring a session here; hosts may ask the person for it. */
  reach(cluster: string, session: string): Promise<IJob>;
  stop(cluster: string, session: string): Promise<IJob>;
  /** The end of what its Jupyter says. */
  log(cluster: string, session: string): Promise<string>;
  /** Where this Jupyter server shows a session; null of one that was launched through another server. */
  address(path: string): string | null;
}

/** Remembers, by cluster, what was launched last. */
export interface IMemory {
  load(cluster: string): Promise<unknown>;
  save(cluster: string, form: IForm): Promise<void>;
}

export interface ISessionsModel extends IDisposable {
  /** Also when the jobs have changed. */
  readonly changed: ISignal<ISessionsModel, void>;
  readonly jobs: IJobsModel;
  readonly memory: IMemory;
  /** What is free; null where that plugin is switched off. */
  readonly resources: IResourcesModel | null;
  /** Those that are not over, the newest first. */
  readonly going: readonly SessionJob[];
  find(cluster: string, key: string): SessionJob | null;
  /** Ask for a session that the jobs' model may not have; whether there is one. */
  look(cluster: string, key: string): Promise<boolean>;
  /** What there is to choose from; of a partition, or of all. */
  choices(cluster: string, partition: string): Promise<Choices>;
  /** What speaks against a form; throws what would be refused. */
  check(cluster: string, form: IForm, estimate: boolean): Promise<IPreview>;
  /** Launch, once for one key. */
  launch(cluster: string, form: IForm, key: string): Promise<SessionJob>;
  /** What went wrong with a session last, as it was stopped or reached. */
  problem(job: SessionJob): IProblem | null;
  isStopping(job: SessionJob): boolean;
  stop(job: SessionJob): Promise<void>;
  reach(job: SessionJob): Promise<void>;
  log(job: SessionJob): Promise<string>;
  address(job: SessionJob): string | null;
}

export const ISessionsModel = new Token<ISessionsModel>(
  "jupyter-slurm:ISessionsModel",
  "The sessions of this person, Jupyters in Slurm jobs.",
);

const OF_CLUSTER = ["partition", "account", "qos", "environment"] as const;
const OF_PARTITION = ["gpu-of-node", "time-limit"] as const;
/** Seconds in which a controller should have told what there is. */
const PATIENCE = 8;

/** Whether a job is a session. */
function isSession(job: IJob): job is SessionJob {
  return Boolean(job.session) && job.key !== null;
}

/** Whether a session is over. */
export function isOver({ session }: SessionJob): boolean {
  return session.state === "ended";
}

/** Whether a session can be opened. */
export function isOpen({ session }: SessionJob): boolean {
  return session.state === "ready" || session.state === "reconnecting";
}

/** Whether nothing came of a request, for certain: what the agent itself refused. */
export function isRefused(problem: IProblem): boolean {
  return Boolean(problem.type?.startsWith("urn:jupyter-slurm:error:"));
}

export class SessionsModel extends Model implements ISessionsModel {
  /** What was told to this page before the events had it. */
  private readonly _told = new Map<string, SessionJob>();
  private readonly _stopping = new Set<string>();
  private readonly _problems = new Map<string, IProblem>();

  constructor(
    private readonly _api: ISessionsApi,
    readonly jobs: IJobsModel,
    readonly memory: IMemory,
    readonly resources: IResourcesModel | null = null,
  ) {
    super();
    jobs.changed.connect(this._emit);
  }

  override dispose(): void {
    super.dispose();
    this.jobs.changed.disconnect(this._emit);
  }

  get going(): readonly SessionJob[] {
    const known = this.jobs.jobs.filter(isSession);
    const keys = new Set(known.map(({ key }) => key));
    const told = [...this._told.values()].filter(({ key }) => !keys.has(key));
    return [...told, ...known].filter((job) => !isOver(job));
  }

  find(cluster: string, key: string): SessionJob | null {
    const isMeant = (job: IJob): boolean => job.cluster === cluster && job.key === key;
    return this.jobs.jobs.filter(isSession).find(isMeant) ?? this._told.get(key) ?? null;
  }

  async look(cluster: string, key: string): Promise<boolean> {
    try {
      return this.find(cluster, key) !== null || this._take(await this._api.session(cluster, key));
    } catch (error) {
      if (error instanceof RequestError && error.problem.status === 404) {
        return false;
      }
      throw error;
    }
  }

  async choices(cluster: string, partition: string): Promise<Choices> {
    const asked = [
      ...OF_CLUSTER.map((kind) => [kind, ""] as const),
      ...OF_PARTITION.map((kind) => [kind, partition] as const),
    ];
    const told = await Promise.all(
      asked.map(
        async ([kind, where]) =>
          [kind, await this._api.names(cluster, kind, where, PATIENCE)] as const,
      ),
    );
    return Object.fromEntries(told) as unknown as Choices;
  }

  check(cluster: string, form: IForm, estimate: boolean): Promise<IPreview> {
    return this._api.preview(cluster, launchOf(form, newKey()), estimate);
  }

  async launch(cluster: string, form: IForm, key: string): Promise<SessionJob> {
    const job = await this._api.launch(cluster, launchOf(form, key));
    this._take(job);
    await this.memory.save(cluster, form).catch(() => undefined); // it is launched all the same
    return job as SessionJob;
  }

  problem({ key }: SessionJob): IProblem | null {
    return this._problems.get(key) ?? null;
  }

  isStopping({ key }: SessionJob): boolean {
    return this._stopping.has(key);
  }

  async stop(job: SessionJob): Promise<void> {
    if (this.isStopping(job)) {
      return;
    }
    this._stopping.add(job.key);
    await this._try(job, "Whether the session was stopped is not known: look again.", () =>
      this._api.stop(job.cluster, job.key),
    );
    this._stopping.delete(job.key);
    this._emit();
  }

  reach(job: SessionJob): Promise<void> {
    return this._try(job, "Try again.", () => this._api.reach(job.cluster, job.key));
  }

  log(job: SessionJob): Promise<string> {
    return this._api.log(job.cluster, job.key);
  }

  address({ session }: SessionJob): string | null {
    return this._api.address(session.path);
  }

  private async _try(job: SessionJob, hint: string, act: () => Promise<IJob>): Promise<void> {
    this._problems.delete(job.key);
    this._emit();
    try {
      this._take(await act());
    } catch (error) {
      this._problems.set(job.key, toProblem(error, hint));
    }
    this._emit();
  }

  /** Whether it is a session. */
  private _take(job: IJob): boolean {
    if (isSession(job)) {
      this._told.set(job.key, job);
      this._emit();
    }
    return isSession(job);
  }

  private readonly _emit = (): void => {
    for (const { key } of this._told.size > 0 ? this.jobs.jobs : []) {
      this._told.delete(key ?? "");
    }
    this._changed.emit();
  };
}
