/** Objects of the API of the agent (openapi.yaml of the Python package). */

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
