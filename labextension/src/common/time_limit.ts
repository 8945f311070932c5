/** Time limits of running jobs. No DOM. */
import type { IJob } from "./api/objects";
import { stateKind } from "./job_states";

/** Return the seconds until its time limit ends a job that runs; null where there is none, or it is not known. */
export function timeLeft(job: IJob, now: number): number | null {
  const { start_time: start, time_limit: limit } = job;
  if (stateKind(job.state) !== "running" || !job.known || start === null || !limit) {
    return null;
  }
  const left = start + limit - now;
  return left > 0 ? left : null;
}

/** Minutes before its time limit from which on a job counts as near it, unless the settings say otherwise. */
export const NEAR_LIMIT_MINUTES = 15;

/** Whether a running job is near its time limit: at most so many minutes, and at most a quarter of the limit, remain. */
export function isNearLimit(job: IJob, now: number, minutes = NEAR_LIMIT_MINUTES): boolean {
  const left = timeLeft(job, now);
  return left !== null && left <= Math.min(minutes * 60, (job.time_limit ?? 0) / 4);
}
