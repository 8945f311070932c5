/** Texts of a row: the time, the reason, and the second line of a narrow list. No DOM. */
import type { TranslationBundle } from "@jupyterlab/translation";

import type { IJob } from "../../common/api/objects";
import { countsText } from "../../common/array_labels";
import { formatDuration } from "../../common/format";
import { isFinished, isReleased, stateKind } from "../../common/job_states";
import { jobReason, jobState, jobTasks, jobTime } from "../../common/labels";
import { isUnlimited, presentTime } from "../../common/time_limit";

/** Text of the agent that says no more than the state. */
const CANCELLED = "The job was cancelled.";

/** Return the lines of the reason; empty where the state says as much. */
export function reasonLines(trans: TranslationBundle, job: IJob): readonly string[] {
  const counts = countsText(trans, job);
  return [...(counts === "" ? [] : [counts]), ...ownReasons(trans, job)];
}

/** Return why a job is in its state, without the counts of an array; empty where the state says as much. */
function ownReasons(trans: TranslationBundle, job: IJob): readonly string[] {
  const isDone = stateKind(job.state) === "done" && !isReleased(job);
  const isPlain = isDone || (job.reason_text === CANCELLED && job.next_step === "");
  return isPlain && job.known ? [] : jobReason(trans, job);
}

/** Return the reasons of a job as one text. */
export function reasonText(trans: TranslationBundle, job: IJob, { counts = true } = {}): string {
  const lines = counts ? reasonLines(trans, job) : ownReasons(trans, job);
  return lines.join(" · ").replaceAll(". · ", ". ");
}

/** Whether a job uses its time now. */
function isRunning({ state }: IJob): boolean {
  return stateKind(state) === "running";
}

/** Return the time limit against which the time of a running job counts: that of an array is one of each task. */
function limitOf(job: IJob): number | null {
  const limit = isRunning(job) && job.tasks === null ? (job.time_limit ?? null) : null;
  return limit !== null && isUnlimited(limit) ? null : limit;
}

/** Return the share of its time limit that a running job has used, from 0 to 1; null where there is none. */
export function timeShare(job: IJob, now: number): number | null {
  const limit = limitOf(job);
  return limit && job.start_time !== null
    ? Math.min(1, Math.max(0, (presentTime(job, now) - job.start_time) / limit))
    : null;
}

/** Return the time of a job in the table: of a running one with its limit, of a pending one as its waiting time. */
export function timeText(trans: TranslationBundle, job: IJob, now: number): string {
  const time = jobTime(job, now);
  if (time !== "" && stateKind(job.state) === "pending") {
    return trans.__("waits %1", time);
  }
  const limit = limitOf(job);
  return time !== "" && limit ? `${time} / ${formatDuration(limit)}` : time;
}

/**
 * Return the facts in the second line of a narrow list: the state where the time does not tell it, time and place.
 *
 * @param cluster - The name of the cluster; empty where there is only one.
 */
export function listFacts(
  trans: TranslationBundle,
  job: IJob,
  now: number,
  cluster: string,
): readonly string[] {
  const time = jobTime(job, now);
  const isUsual = ["RUNNING", "PENDING"].includes(job.state) && !isReleased(job);
  const isArray = job.tasks !== null;
  const limit = limitOf(job);
  const when =
    time !== "" && limit
      ? trans.__("%1 of %2", time, formatDuration(limit))
      : timeText(trans, job, now);
  return [
    job.id === null ? trans.__("being submitted") : "",
    isUsual || (isArray && isFinished(job.state)) ? "" : jobState(trans, job),
    when,
    isArray ? "" : (job.partition ?? ""),
    cluster,
  ].filter((fact) => fact !== "");
}

/** What a job is, where it is more than a script. */
export type Mark = "session" | "kernel" | "allocation" | "array";

export function markOf({ session, kernel, kind, tasks, allocation }: IJob): Mark | null {
  if (session || kind === "session") {
    return "session";
  }
  if (kind === "kernel" || (kernel && !allocation)) {
    return "kernel";
  }
  return kind === "allocation" ? "allocation" : tasks ? "array" : null;
}

/** Return the word of a mark. */
export function markText(trans: TranslationBundle, mark: Mark, job: IJob): string {
  switch (mark) {
    case "session":
      return trans.__("session");
    case "kernel":
      return trans.__("kernel");
    case "allocation":
      return job.keep ? trans.__("kept allocation") : trans.__("allocation");
    case "array":
      return jobTasks(trans, job);
  }
}
