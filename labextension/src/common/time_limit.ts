/** Time limits of running jobs. No DOM. */
import type { IJob } from "./api/objects";
import { stateKind } from "./job_states";

/** Return the present time by the clock that the times of a job are of: a cluster may have another time. */
export function presentTime(job: Pick<IJob, "clock_offset">, now: number): number {
  return now + (job.clock_offset ?? 0);
}

/** Return the seconds until a running job reaches its time limit; null without a limit, or where that is not known. */
export function remainingSeconds(job: IJob, now: number): number | null {
  const { start_time: start, time_limit: limit } = job;
  if (stateKind(job.state) !== "running" || !job.known || start === null || !limit) {
    return null;
  }
  const remaining = start + limit - presentTime(job, now);
  return remaining > 0 ? remaining : null;
}

/** Minutes before its time limit from which a job counts as near it, by default. */
export const NEAR_LIMIT_MINUTES = 15;

/** Whether a running job is near its time limit: at most so many minutes, and at most a quarter of the limit, remain. */
export function isNearLimit(job: IJob, now: number, minutes = NEAR_LIMIT_MINUTES): boolean {
  const remaining = remainingSeconds(job, now);
  return remaining !== null && remaining <= Math.min(minutes * 60, (job.time_limit ?? 0) / 4);
}
