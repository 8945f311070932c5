/** Requests of the page of a job to the agent. */
import type { ApiSchemas, IJob, IServerEvent } from "../common/api/objects";
import type { Read } from "./log/log_model";

/** The tasks of an array: a row a task. */
export type ITasks = ApiSchemas["Tasks"];

/** The resources that a job used of those that it had; null: not known. */
export type IReport = Omit<Required<ApiSchemas["Report"]>, "id" | "state" | "source" | "gpus"> & {
  readonly source: string | null;
  readonly gpus: readonly Required<ApiSchemas["Report"]["gpus"][number]>[];
};

/** The resources that a job used over time; null: not measured. */
export type IUsage = ApiSchemas["Usage"];

/** The record of a submission. */
export type IRecord = Readonly<Record<string, unknown>>;

/** The output streams. */
export type Stream = "stdout" | "stderr";
export const STREAMS: readonly Stream[] = ["stdout", "stderr"];

/**
 * The API of the agent, as far as the page of a job needs it. A job is named by its key, its ID, or that of a task
 * (`12_3`).
 */
export interface IJobApi {
  job(cluster: string, job: string): Promise<IJob>;
  cancel(cluster: string, job: string): Promise<IJob>;
  /** Submit the same job again, once for one key. */
  resubmit(cluster: string, job: string, key: string): Promise<IJob>;
  /** Return a reader of an output stream. */
  reader(cluster: string, job: string, stream: Stream): Read;
  /** Open a stream with the output and the states of a job until it is finished; see `IJobsApi.events`. */
  follow(
    cluster: string,
    job: string,
    offsets: Readonly<Record<Stream, number>>,
    signal: AbortSignal,
  ): Promise<AsyncIterable<IServerEvent>>;
  /** Return the batch script, or the cell of a job that has one. */
  text(cluster: string, job: string, what: "script" | "source"): Promise<string>;
  record(cluster: string, job: string): Promise<IRecord>;
  report(cluster: string, job: string): Promise<IReport>;
  usage(cluster: string, job: string): Promise<IUsage>;
  tasks(cluster: string, job: string): Promise<ITasks>;
  steps(cluster: string, job: string): Promise<IJob[]>;
}
