/** Model of the sessions, Jupyter servers in jobs: launches, in addition to the model of the jobs. No DOM. */
import { Token } from "@lumino/coreutils";
import type { IDisposable } from "@lumino/disposable";
import type { ISignal } from "@lumino/signaling";

import type { ApiSchemas, IJob, IProblem, ISession } from "../common/api/objects";
import { RequestError, toProblem } from "../common/api/problem";
import type { IJobsModel } from "../common/jobs_model";
import { jobName } from "../common/labels";
import { newRequestKey, type ILaunch, type ILaunchForm } from "../common/launch_request";
import { Model } from "../common/observable_model";
import type { IResourcesModel } from "../resources/model";
import { launchRequest } from "./form_values";

/** The job of a session. */
export type SessionJob = IJob & { readonly key: string; readonly session: ISession };

/** A value to choose from, and its description. */
export type IChoice = ApiSchemas["Names"]["names"][number];

/** The kinds of choices. */
export type NameKind = "partition" | "account" | "qos" | "gpu-of-node" | "time-limit";
export type Choices = Readonly<Record<NameKind, readonly IChoice[]>>;

/** The kinds of places that the agent looks for on the cluster. */
export type PlaceKind = "environment" | "folder";

/** Doubts about a launch, from the known state of the cluster, and the estimated start. */
export type IPreview = Pick<ApiSchemas["Preview"], "warnings" | "doubts" | "problems"> & {
  readonly estimate?: Pick<ApiSchemas["Estimate"], "start" | "said">;
};

/** The API of the agent, as far as the model needs it. */
export interface ISessionsApi {
  /**
   * @param wait - Seconds to wait for unknown names.
   * @param start - The beginning of the path of a folder.
   */
  names(
    cluster: string,
    kind: NameKind | PlaceKind,
    partition: string,
    wait: number,
    start?: string,
  ): Promise<IChoice[]>;
  /** @param estimate - Whether Slurm is asked for the start time. */
  preview(cluster: string, launch: ILaunch, estimate: boolean): Promise<IPreview>;
  launch(cluster: string, launch: ILaunch): Promise<IJob>;
  session(cluster: string, session: string): Promise<IJob>;
  /** Connect to a session; hosts may send prompts for that. */
  reach(cluster: string, session: string): Promise<IJob>;
  stop(cluster: string, session: string): Promise<IJob>;
  /** Return the end of the log of the Jupyter server. */
  log(cluster: string, session: string): Promise<string>;
  /** Create a notebook in a session; return the path of its page. */
  newNotebook(session: string): Promise<string>;
  /** Return the address of a session on this Jupyter server; null of one that was launched through another server. */
  address(path: string): string | null;
  /** Whether pages of sessions on this Jupyter server have an origin of their own. */
  isIsolated(): boolean;
}

/** Storage of the last launch of each cluster, and of drafts by the names of their forms. */
export interface IMemory {
  load(cluster: string): Promise<unknown>;
  save(cluster: string, form: ILaunchForm): Promise<void>;
  loadDraft(name: string): Promise<unknown>;
  /** @param typed - What differs from the initial values; nothing: the draft is forgotten. */
  saveDraft(name: string, typed: Partial<ILaunchForm>): Promise<void>;
}

export interface ISessionsModel extends IDisposable {
  /** Also emitted when the jobs have changed. */
  readonly changed: ISignal<ISessionsModel, void>;
  readonly jobs: IJobsModel;
  readonly memory: IMemory;
  /** Return the start values of the form in the settings of the user, without empty ones. */
  readonly startValues: () => Promise<Partial<ILaunchForm>>;
  /** The resources; null where that plugin is disabled. */
  readonly resources: IResourcesModel | null;
  /** The active sessions, the newest first. */
  readonly active: readonly SessionJob[];
  find(cluster: string, key: string): SessionJob | null;
  /** Load a session that the model of the jobs may lack; return whether there is one. */
  lookUp(cluster: string, key: string): Promise<boolean>;
  /** Load the choices of a partition, or of all. */
  choices(cluster: string, partition: string): Promise<Choices>;
  /** Load the environments, or the folders whose path begins so; where it is empty, the last used ones. */
  places(cluster: string, kind: PlaceKind, start: string): Promise<readonly IChoice[]>;
  /** Check a form; throws what would be refused. */
  check(cluster: string, form: ILaunchForm, estimate: boolean): Promise<IPreview>;
  /** Launch a session, once for one key. */
  launch(cluster: string, form: ILaunchForm, key: string): Promise<SessionJob>;
  /** Launch a session inside a running job, by its key or ID. */
  launchInJob(cluster: string, job: string): Promise<SessionJob>;
  /** Return the last problem of a session, of stopping or connecting. */
  problem(job: SessionJob): IProblem | null;
  isStopping(job: SessionJob): boolean;
  stop(job: SessionJob): Promise<void>;
  reconnect(job: SessionJob): Promise<void>;
  log(job: SessionJob): Promise<string>;
  address(job: SessionJob): string | null;
  /** Create a notebook in a session; return the address of its page, null after a problem. */
  newNotebook(job: SessionJob): Promise<string | null>;
  isIsolated(): boolean;
}

export const ISessionsModel = new Token<ISessionsModel>(
  "jupyter-slurm:ISessionsModel",
  "Your sessions: JupyterLab in Slurm jobs.",
);

const CLUSTER_KINDS = ["partition", "account", "qos"] as const;
const PARTITION_KINDS = ["gpu-of-node", "time-limit"] as const;
/** Seconds in which a controller should have sent the names. */
const NAMES_WAIT_S = 8;
/** Seconds without use after which a session ends, where the agent does not say it. */
const IDLE_S = 86_400;

/** Whether a job is a session. */
function isSession(job: IJob): job is SessionJob {
  return Boolean(job.session) && job.key !== null;
}

/** Whether a session has ended. */
export function isOver({ session }: SessionJob): boolean {
  return session.state === "ended";
}

/** Whether a session can be opened. */
export function isOpen({ session }: SessionJob): boolean {
  return session.state === "ready" || session.state === "reconnecting";
}

/** Whether a session is an SSH server for an editor, which has no page. */
export function isSshHost({ session }: SessionJob): boolean {
  return session.app === "ssh";
}

/** The host for ssh of a session. The name of the session is longer if another computer has a host of that name. */
export function sshHost(job: SessionJob): string {
  return job.session.ssh_host ?? jobName(job);
}

export class SessionsModel extends Model implements ISessionsModel {
  /** Sessions from answers to this page that the events do not have yet. */
  private readonly _unlisted = new Map<string, SessionJob>();
  private readonly _stopping = new Set<string>();
  private readonly _problems = new Map<string, IProblem>();

  constructor(
    private readonly _api: ISessionsApi,
    readonly jobs: IJobsModel,
    readonly memory: IMemory,
    readonly resources: IResourcesModel | null = null,
    readonly startValues: () => Promise<Partial<ILaunchForm>> = () => Promise.resolve({}),
  ) {
    super();
    jobs.changed.connect(this._emit);
  }

  override dispose(): void {
    super.dispose();
    this.jobs.changed.disconnect(this._emit);
  }

  get active(): readonly SessionJob[] {
    const known = this.jobs.jobs.filter(isSession);
    const keys = new Set(known.map(({ key }) => key));
    const unlisted = [...this._unlisted.values()].filter(({ key }) => !keys.has(key));
    return [...unlisted, ...known].filter((job) => !isOver(job));
  }

  find(cluster: string, key: string): SessionJob | null {
    const isMeant = (job: IJob): boolean => job.cluster === cluster && job.key === key;
    return this.jobs.jobs.filter(isSession).find(isMeant) ?? this._unlisted.get(key) ?? null;
  }

  async lookUp(cluster: string, key: string): Promise<boolean> {
    try {
      return this.find(cluster, key) !== null || this._apply(await this._api.session(cluster, key));
    } catch (error) {
      if (error instanceof RequestError && error.problem.status === 404) {
        return false;
      }
      throw error;
    }
  }

  async choices(cluster: string, partition: string): Promise<Choices> {
    const requests = [
      ...CLUSTER_KINDS.map((kind) => [kind, ""] as const),
      ...PARTITION_KINDS.map((kind) => [kind, partition] as const),
    ];
    const entries = await Promise.all(
      requests.map(
        async ([kind, where]) =>
          [kind, await this._api.names(cluster, kind, where, NAMES_WAIT_S)] as const,
      ),
    );
    return Object.fromEntries(entries) as unknown as Choices;
  }

  places(cluster: string, kind: PlaceKind, start: string): Promise<readonly IChoice[]> {
    return this._api.names(cluster, kind, "", NAMES_WAIT_S, start);
  }

  check(cluster: string, form: ILaunchForm, estimate: boolean): Promise<IPreview> {
    return this._api.preview(cluster, launchRequest(form, newRequestKey()), estimate);
  }

  async launch(cluster: string, form: ILaunchForm, key: string): Promise<SessionJob> {
    const job = await this._api.launch(cluster, launchRequest(form, key));
    this._apply(job);
    await this.memory.save(cluster, form).catch(() => undefined); // the session is launched without the storage too
    return job as SessionJob;
  }

  async launchInJob(cluster: string, job: string): Promise<SessionJob> {
    const known = this.jobs.clusters.find(({ id }) => id === cluster);
    const idle = known?.launch?.idle ?? IDLE_S;
    const request = { key: newRequestKey(), idle, options: [], on: job };
    const launched = await this._api.launch(cluster, request);
    this._apply(launched);
    return launched as SessionJob;
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
    await this._try(job, "It is not known whether the session was stopped. Refresh the list.", () =>
      this._api.stop(job.cluster, job.key),
    );
    this._stopping.delete(job.key);
    this._emit();
  }

  reconnect(job: SessionJob): Promise<void> {
    return this._try(job, "Try again.", () => this._api.reach(job.cluster, job.key));
  }

  log(job: SessionJob): Promise<string> {
    return this._api.log(job.cluster, job.key);
  }

  address({ session }: SessionJob): string | null {
    return this._api.address(session.path);
  }

  async newNotebook(job: SessionJob): Promise<string | null> {
    this._problems.delete(job.key);
    this._emit();
    try {
      return this._api.address(await this._api.newNotebook(job.key));
    } catch (error) {
      this._problems.set(
        job.key,
        toProblem(error, "Open the session, and create a notebook there."),
      );
      this._emit();
      return null;
    }
  }

  isIsolated(): boolean {
    return this._api.isIsolated();
  }

  private async _try(job: SessionJob, hint: string, act: () => Promise<IJob>): Promise<void> {
    this._problems.delete(job.key);
    this._emit();
    try {
      this._apply(await act());
    } catch (error) {
      this._problems.set(job.key, toProblem(error, hint));
    }
    this._emit();
  }

  /** Apply a job where it is a session; return whether it is. */
  private _apply(job: IJob): boolean {
    if (isSession(job)) {
      this._unlisted.set(job.key, job);
      this._emit();
    }
    return isSession(job);
  }

  private readonly _emit = (): void => {
    for (const { key } of this._unlisted.size > 0 ? this.jobs.jobs : []) {
      this._unlisted.delete(key ?? "");
    }
    this._changed.emit();
  };
}
