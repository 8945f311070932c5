/** What the page of a job is told by the agent (see openapi.yaml of the Python package). */
import type { IJob, IServerEvent } from "../common/api/objects";
import type { Read } from "./log_model";

/** All that is told of a job. */
export interface IJobDetail extends IJob {
  readonly kind?: string | null;
  readonly state_since?: number | null;
  readonly exit_code?: number | null;
  readonly signal?: number | null;
  readonly account?: string | null;
  readonly qos?: string | null;
  readonly restarts?: number;
  /** Paths. */
  readonly stdout?: string | null;
  readonly stderr?: string | null;
  readonly work_dir?: string | null;
  readonly script_path?: string | null;
  readonly folder?: string | null;
  readonly argv?: readonly string[] | null;
  /** Tasks of an array as `--array` takes them; null of what is none. */
  readonly array?: string | null;
  readonly doubts?: readonly string[];
}

/** The tasks of an array: a row a task. */
export interface ITasks {
  readonly columns: readonly string[];
  readonly rows: readonly (readonly unknown[])[];
  /** Of the parameters, which are literals of Python, a row a task. */
  readonly names: readonly string[];
  readonly parameters: readonly (readonly string[])[];
}

/** What a job used of what it had; null where nobody told. */
export interface IReport {
  readonly source: string | null;
  /** Seconds. */
  readonly elapsed: number | null;
  readonly time_limit: number | null;
  readonly cpus: number | null;
  readonly cpu_time: number | null;
  readonly cpu_efficiency: number | null;
  /** Bytes. */
  readonly memory_peak: number | null;
  readonly memory_asked: number | null;
  readonly memory_efficiency: number | null;
  readonly gpus_asked: number | null;
  readonly gpus: readonly {
    readonly name: string;
    readonly utilization: number | null;
    readonly memory_used: number | null;
    readonly memory_total: number | null;
  }[];
  readonly notes: readonly string[];
}

/** What a job used as time went by; null where nobody measured. */
export interface IUsage {
  readonly node: string | null;
  /** What it has there; bytes. */
  readonly cpus: number | null;
  readonly memory: number | null;
  readonly gpus: number;
  readonly points: readonly {
    /** Seconds since the epoch. */
    readonly time: number;
    /** How many were busy. */
    readonly cpus: number;
    readonly memory: number;
    /** 0 to 1. */
    readonly gpu: number | null;
    readonly gpu_memory: number | null;
  }[];
  /** What is not measured, and why. */
  readonly note: string;
}

/** What was submitted. */
export type IRecord = Readonly<Record<string, unknown>>;

/** The streams of text. */
export type Stream = "stdout" | "stderr";
export const STREAMS: readonly Stream[] = ["stdout", "stderr"];

/** What the page needs of the agent. A job is named by its key, its id, or that of a task (`12_3`). */
export interface IJobApi {
  job(cluster: string, job: string): Promise<IJob>;
  cancel(cluster: string, job: string): Promise<IJob>;
  /** Submit the same again, once for one key. */
  resubmit(cluster: string, job: string, key: string): Promise<IJob>;
  /** Reads the output of a job. */
  reader(cluster: string, job: string, stream: Stream): Read;
  /** Output and states from here on, until the job is over; see `IAgentApi.events`. */
  follow(
    cluster: string,
    job: string,
    offsets: Readonly<Record<Stream, number>>,
    signal: AbortSignal,
  ): Promise<AsyncIterable<IServerEvent>>;
  /** The batch script, or the cell of a job that has one. */
  text(cluster: string, job: string, what: "script" | "source"): Promise<string>;
  record(cluster: string, job: string): Promise<IRecord>;
  report(cluster: string, job: string): Promise<IReport>;
  usage(cluster: string, job: string): Promise<IUsage>;
  tasks(cluster: string, job: string): Promise<ITasks>;
  steps(cluster: string, job: string): Promise<IJob[]>;
}
