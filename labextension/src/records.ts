/** What comes from the agent: whether it is what it should be, what tells one from the other, and their order. */
import type { ICluster, IJob, IPrompt } from "./tokens";

/** A job's identity on this page: Slurm's ids wrap, keys do not. */
export function identity(job: IJob): string {
  return JSON.stringify([job.cluster, job.key ?? [job.id, job.submit_time]]);
}

/** A job without a time is just being submitted. Slurm tells whole seconds. */
export function newestFirst(a: IJob, b: IJob): number {
  const time = (job: IJob): number => Math.floor(job.submit_time ?? Number.MAX_SAFE_INTEGER);
  return time(b) - time(a) || Number(b.id) - Number(a.id);
}

export function isJob(data: unknown): data is IJob {
  return typeof data === "object" && data !== null && "cluster" in data && "state" in data;
}

export function isCluster(data: unknown): data is ICluster {
  return typeof data === "object" && data !== null && "id" in data && "poll" in data;
}

export function isPrompt(data: unknown): data is IPrompt {
  return typeof data === "object" && data !== null && "id" in data && "questions" in data;
}

/** Whether a cluster answers: it needs no log-in, or there is one and the link is up. */
export function isReached({ connection }: ICluster): boolean {
  return !connection || connection.state === "connected";
}

/** Whether nothing is known of a cluster: nobody is logged in there. */
export function isUnknown({ connection }: ICluster): boolean {
  return connection?.state === "disconnected" || connection?.state === "connecting";
}
