/**
 * What the plugins share: the words of the agent's API (see openapi.yaml of the Python package) and the model's token.
 */
import { Token } from "@lumino/coreutils";
import type { IDisposable } from "@lumino/disposable";
import type { ISignal } from "@lumino/signaling";

/** Whose translations are ours. */
export const DOMAIN = "jupyter_slurm";

/** An RFC 9457 problem document, as the agent and the server extension send it. */
export interface IProblem {
  readonly type?: string;
  readonly title?: string;
  readonly status?: number;
  readonly detail?: string;
  readonly hint?: string;
  readonly details?: {
    /** Seconds after which it is worth asking again. */
    readonly retry_after?: number;
  };
}

/** A job as the agent tells it. Times are seconds since the epoch, on the clock of the cluster. */
export interface IJob {
  readonly key: string | null;
  readonly cluster: string;
  readonly id: string | null;
  readonly state: string;
  readonly reason: string;
  readonly reason_text: string;
  readonly next_step: string;
  readonly submit_time: number | null;
  /** How often it was requeued and began anew. */
  readonly restarts?: number;
  readonly start_time: number | null;
  readonly end_time: number | null;
  readonly partition: string | null;
  /** A node list as Slurm writes it, such as `c4aiscw[1-4]`. */
  readonly nodes: string | null;
  readonly name: string | null;
  readonly label: string | null;
  /** False: the controller does not answer, and the state is the last one known. */
  readonly known: boolean;
  readonly unknown_since: number | null;
  /** How many tasks of an array are in which state; null for a job that is none. */
  readonly tasks: Readonly<Record<string, number>> | null;
  /** Of an allocation that was given back: by whom it belongs to, or because its kernel was killed. */
  readonly released?: "asked" | "forgotten" | null;
  /** Seconds. */
  readonly time_limit?: number | null;
  readonly estimated_start?: number | null;
  /** Of a session that has begun. */
  readonly gpus?: number | null;
  readonly error?: IProblem | null;
  /** What sbatch, or the agent, had to say when it was submitted. */
  readonly warnings?: readonly string[];
  /** Of a job that runs a Jupyter, or another server: how far it is. */
  readonly session?: ISession | null;
  /** Of an allocation of a notebook's kernel, and of the step in which that runs. */
  readonly kernel?: { readonly display_name?: string | null } | null;
  /** `script`, `python`, `allocation`, `session`; of a step `command`, `process`, `kernel`, too; others may come. */
  readonly kind?: string | null;
  /** Of a step: the key of its allocation. */
  readonly allocation?: string | null;
  readonly account?: string | null;
  readonly qos?: string | null;
  readonly exit_code?: number | null;
  /** Whose it is, where jobs of others stand beside it. */
  readonly user?: string;
  /** It is somebody else's: nothing can be done with it. */
  readonly isForeign?: boolean;
}

/** What can be done with jobs in the queue. */
export const ACTS = ["cancel", "hold", "release", "requeue", "limit"] as const;
export type Act = (typeof ACTS)[number];

/** What became of a job with which something was to be done. */
export interface IOutcome {
  /** As it was named. */
  readonly job: string;
  readonly error: IProblem | null;
  readonly now: IJob | null;
}

/** A job with which something could not be done. */
export interface IFailure {
  readonly job: IJob;
  readonly problem: IProblem;
}

/** The tasks of an array, a row each. */
export interface ITaskRows {
  readonly columns: readonly string[];
  readonly rows: readonly (readonly unknown[])[];
}

/** A Jupyter, or another server, in a job. Its name is the label of the job. */
export interface ISession {
  /** `submitted`, `pending`, `starting`, `ready`, `reconnecting`, `unreachable`, `ending`, `ended`; others may come. */
  readonly state: string;
  /** Why it is not reached; while it starts, how far it is. */
  readonly message: string;
  /** Its path for life, on the Jupyter server that it was launched through. */
  readonly path: string;
  /** How far it has come, and when. */
  readonly steps: readonly { readonly state: string; readonly time: number }[];
  /** Seconds without use after which it ends. */
  readonly idle: number;
  /** How often it begins anew at most. */
  readonly resume?: number | null;
  /** When its time limit ends it, once that is near. */
  readonly ends?: number | null;
  /** Which Jupyter it is, with its version. */
  readonly server?: string | null;
}

/** How the log-in to a cluster stands. Times are seconds since the epoch, on the clock of the agent. */
export interface IConnection {
  readonly state: "disconnected" | "connecting" | "connected" | "lost";
  /** The way, the login node last. */
  readonly hosts: readonly string[];
  readonly since: number;
  /** What happened last. */
  readonly message: string;
}

/** A process that uses a log-in. */
export interface IUser {
  /** `kernel`, `terminal`, `lab`; others may come. */
  readonly kind: string;
  /** A notebook's file or a command. */
  readonly name: string;
  readonly since: number;
}

/** What stands first in the form that launches a session, as the profile of the cluster says it. */
export interface ILaunchDefaults {
  readonly partition?: string;
  readonly gpus?: number;
  readonly gpu_type?: string;
  readonly cpus?: number;
  readonly memory?: string;
  readonly time?: string;
  readonly account?: string;
  readonly qos?: string;
  readonly env?: string;
  readonly dir?: string;
  /** Seconds without use after which a session ends. */
  readonly idle: number;
}

/** A cluster as the agent tells it. */
export interface ICluster {
  readonly id: string;
  readonly name: string | null;
  readonly poll: { readonly error: IProblem | string | null };
  /** Absent or null: it is reached without a log-in. */
  readonly connection?: IConnection | null;
  /** Who uses the log-in. */
  readonly users?: readonly IUser[];
  /** Absent while nobody is logged in, and from an older agent. */
  readonly launch?: ILaunchDefaults;
}

/** What a host on the way to a cluster, or our own side of the log-in, wants to know from the person. */
export interface IPrompt {
  readonly id: string;
  readonly cluster: string;
  readonly host: string;
  /** `password`, `passphrase`, `keyboard-interactive`, `host-key`; others may come. */
  readonly kind: string;
  readonly title: string;
  readonly instruction: string;
  /** None of them: something to be read, which goes away by itself. */
  readonly questions: readonly { readonly text: string; readonly echo: boolean }[];
  /** Nothing is asked any more: it was answered, here or elsewhere, or the log-in ended. */
  readonly settled?: boolean;
}

/** One message of a server-sent event stream. */
export interface IServerEvent {
  readonly event: string;
  readonly data: unknown;
}

/** What the model needs of the agent. */
export interface IAgentApi {
  clusters(): Promise<ICluster[]>;
  /** All jobs that are not over, and the newest of those that are. */
  jobs(cluster: string, finished: number): Promise<IJob[]>;
  job(cluster: string, job: string): Promise<IJob>;
  /** Do the same with several jobs, by key or id; each has an answer of its own. With `limit` goes a time limit. */
  act(cluster: string, act: Act, jobs: readonly string[], limit?: string): Promise<IOutcome[]>;
  tasks(cluster: string, job: string): Promise<ITaskRows>;
  steps(cluster: string, job: string): Promise<IJob[]>;
  /** Log in; resolves when that is done, which may take as long as the person does. */
  connect(cluster: string): Promise<void>;
  disconnect(cluster: string): Promise<void>;
  /** What waits for an answer, the oldest first. */
  prompts(): Promise<IPrompt[]>;
  /** Answer a prompt, one text for each question; null declines. */
  answer(prompt: string, answers: readonly string[] | null): Promise<void>;
  /**
   * The event stream, once it is open: what happens from then on is in it. It ends when the server ends it, and throws when
   * the link breaks or the signal is aborted.
   */
  events(signal: AbortSignal): Promise<AsyncIterable<IServerEvent>>;
  /** Seconds to add to this machine's clock to have the server's; a job's age is then told by one clock only. */
  readonly clockOffset: number;
}

/** Where the model stands with the agent. */
export type Connection = "connecting" | "live" | "broken" | "paused";

/** The jobs of this person, kept up to date while somebody looks. */
export interface IJobsModel extends IDisposable {
  readonly changed: ISignal<IJobsModel, void>;
  /** A prompt does not wait for an answer any more, wherever it was answered. */
  readonly settled: ISignal<IJobsModel, IPrompt>;
  readonly connection: Connection;
  /** Why there is no connection, or why the last request failed; null when all is well. */
  readonly problem: IProblem | null;
  readonly clusters: readonly ICluster[];
  /** What waits for an answer of the person, the oldest first. */
  readonly prompts: readonly IPrompt[];
  /** A cluster to which the link was lost, for a moment after it came back. */
  readonly returned: ICluster | null;
  /** What runs, then what waits, then what is over, each newest first. */
  readonly jobs: readonly IJob[];
  /** Whether so many jobs are over that the oldest of them are not among `jobs`. */
  readonly older: boolean;
  readonly running: number;
  readonly pending: number;
  /** The time on the server's clock, in seconds since the epoch. */
  readonly now: number;
  /** From the request to cancel a job until it is seen in another state. */
  isCancelling(job: IJob): boolean;
  /** Cancel a job; a failure is told through `problem`. */
  cancel(job: IJob): Promise<void>;
  /** What was asked for with a job and is not seen yet. */
  acting(job: IJob): Act | null;
  /** Do the same with several jobs; of one a failure is told through `problem`, of several through `failures`. */
  act(act: Act, jobs: readonly IJob[], limit?: string): Promise<void>;
  /** The jobs with which nothing was done, of those that something was last to be done with. */
  readonly failures: readonly IFailure[];
  /** The person has read of the failures. */
  dismiss(): void;
  /** Have all jobs that are over, as far as a page can hold them. */
  showOlder(): void;
  /** The tasks of an array, or the steps of an allocation. */
  parts(job: IJob): Promise<IJob[]>;
  /** Log in to a cluster; a failure is told through `problem`, what hosts ask through `prompts`. */
  connect(cluster: ICluster): Promise<void>;
  /** End the log-in to a cluster, for everybody who uses it. */
  disconnect(cluster: ICluster): Promise<void>;
  /** Answer a prompt; null declines. The answers go to the server and are kept nowhere. */
  answer(prompt: IPrompt, answers: readonly string[] | null): Promise<void>;
  /** Ask the agent again, at once. */
  refresh(): void;
  /** Somebody has come to look: what a terminal has submitted meanwhile is asked for, as often as the queue may be. */
  look(): void;
  /** Somebody looks, or nobody does: without a watcher nothing is asked. */
  setVisible(visible: boolean): void;
  /** Whether changes are heard also while nobody looks, because the person wants to be told then. */
  setKept(kept: boolean): void;
}

export const IJobsModel = new Token<IJobsModel>(
  "jupyter-slurm:IJobsModel",
  "The Slurm jobs of this person, kept up to date.",
);
