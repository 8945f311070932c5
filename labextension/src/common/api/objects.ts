/**
 * Objects of the API of the agent: the generated types, narrowed to what the panel needs.
 *
 * Times are seconds since the epoch; those of jobs are on the clock of the cluster, those of connections and users on the clock
 * of the agent.
 */
import type { components } from "./schema_types";

export type ApiSchemas = components["schemas"];

/** Fields of `T`, some of which are always present although the document leaves them optional. */
type WithAlways<T, K extends keyof T> = Omit<T, K> & Required<Pick<T, K>>;

/** An RFC 9457 problem document. The server extension and the panel itself make some with fewer fields than the agent. */
export type IProblem = Partial<Omit<ApiSchemas["Problem"], "details">> & {
  readonly details?: {
    /** Seconds after which the request is worth repeating. */
    readonly retry_after?: number;
    /** The option, or the keyword, of a refused value. */
    readonly option?: string;
    /** Of a folder or an environment: missing, file (not one of that kind), unknown (a name). */
    readonly scope?: string;
    /** The words of sbatch. */
    readonly said?: string;
    /** Known reasons of a refusal, by option. */
    readonly problems?: readonly ApiSchemas["OptionProblem"][];
  };
};

type Job = WithAlways<
  ApiSchemas["Job"],
  | "submit_time"
  | "start_time"
  | "end_time"
  | "partition"
  | "nodes"
  | "name"
  | "label"
  | "unknown_since"
  | "tasks"
>;

/** A job, or a part of one: a task of an array, a step of an allocation. */
export type IJob = Omit<
  Job,
  "reason" | "reason_text" | "next_step" | "error" | "kernel" | "session"
> & {
  readonly reason: string;
  readonly reason_text: string;
  readonly next_step: string;
  readonly error?: IProblem | null;
  readonly kernel?: Partial<ApiSchemas["Kernel"]> | null;
  readonly session?: ISession | null;
  /** The user whose job it is, in a table with the jobs of other users. */
  readonly user?: string;
  /** Whether the job belongs to another user, so that no action is possible. */
  readonly isForeign?: boolean;
};

/** Actions on jobs that are offered. Programs and terminals have more, which most sites allow only to operators. */
export const ACTS = ["cancel", "hold", "release", "requeue", "limit"] as const;
export type Act = (typeof ACTS)[number];
export type AnyAct = ApiSchemas["Act"]["act"];

/** The result of an action on one job (the document defines it in place, under `actOnJobs`). */
export interface IOutcome {
  /** The reference of the request. */
  readonly job: string;
  readonly error: IProblem | null;
  readonly now: IJob | null;
}

/** A job on which an action failed. */
export interface IFailure {
  readonly job: IJob;
  readonly problem: IProblem;
}

/** The progress of an action on many jobs. */
export type IActProgress = Omit<ApiSchemas["Act"], "error"> & { readonly error: IProblem | null };

/** The tasks of an array, a row each. */
export type ITaskRows = Pick<ApiSchemas["Tasks"], "columns" | "rows">;

/** A Jupyter server, or another server, in a job. Its name is the label of the job. */
export type ISession = Omit<ApiSchemas["Session"], "state" | "steps" | "url" | "command"> & {
  /** One of the states of the document; a newer agent may send others. */
  readonly state: string;
  readonly steps: readonly { readonly state: string; readonly time: number }[];
};

/** The state of the login to a cluster. */
export type IConnection = ApiSchemas["Connection"];

/** A process that uses a login. */
export type IUser = Omit<ApiSchemas["User"], "pid">;

/** The initial values of the form that launches a session, from the profile of the cluster. */
export type ILaunchDefaults = NonNullable<ApiSchemas["Cluster"]["launch"]>;

export type ICluster = Pick<ApiSchemas["Cluster"], "id" | "launch" | "gpus"> & {
  readonly name: string | null;
  /** An older agent sends the error as a text. */
  readonly poll: {
    readonly error: IProblem | string | null;
    readonly seconds_since?: number | null;
    readonly failing_for?: number | null;
  };
  /** Absent or null: the cluster needs no login. */
  readonly connection?: IConnection | null;
  readonly users?: readonly IUser[];
  readonly slurm_conf?: string | null;
  /** Set by the model of the jobs where another cluster has the same name. */
  readonly label?: string | undefined;
};

/** A question of a host on the way to a cluster, or of the agent's own side of the login, to the user. */
export type IPrompt = Omit<ApiSchemas["Prompt"], "asked">;

/** One message of a server-sent event stream. */
export interface IServerEvent {
  readonly event: string;
  readonly data: unknown;
}
