/** Time limits and other durations, as typed and as text; time limits of running jobs. No DOM. */
import type { TranslationBundle } from "@jupyterlab/translation";

import type { IJob } from "./api/objects";
import { formatDuration, parseTimeLimit } from "./format";
import { stateKind } from "./job_states";

/** Return the present time by the clock that the times of a job are of: a cluster may have another time. */
export function presentTime(job: Pick<IJob, "clock_offset">, now: number): number {
  return now + (job.clock_offset ?? 0);
}

/** Units of a time as people write it, in English and Portuguese: `parse_duration` of the package has the same. */
const UNITS: readonly (readonly [number, string])[] = [
  [1, "s sec secs second seconds seg segundo segundos"],
  [60, "m min mins minute minutes minuto minutos"],
  [3600, "h hr hrs hour hours hora horas"],
  [86_400, "d day days dia dias"],
  [604_800, "w week weeks semana semanas"],
];
const SECONDS_OF = new Map(
  UNITS.flatMap(([seconds, words]) => words.split(" ").map((word) => [word, seconds] as const)),
);
const PART = /^(\d{1,6}(?:[.,]\d{1,3})?) ?([a-z]+)(?: |,|\band\b|\be\b)*/;
const NO_LIMIT = /^(unlimited|infinite|-1)$/i;

/**
 * Return the seconds of a time as people write it (`4h`, `4 hours`, `1d 2h`, `1h30`), or in any of Slurm's forms, in which a
 * number without a unit means minutes. Null: it is no time; infinity: no limit.
 */
export function parseDuration(text: string): number | null {
  const words = text.trim().toLowerCase().replace(/\s+/g, " ");
  if (NO_LIMIT.test(words)) {
    return Infinity;
  }
  let rest = words.replace(/(h)(\d{1,2})$/, "$1$2m");
  let total = 0;
  for (let found = PART.exec(rest); found !== null; found = PART.exec(rest)) {
    const seconds = SECONDS_OF.get(found[2] ?? "");
    if (seconds === undefined) {
      return null;
    }
    total += Number(found[1]?.replace(",", ".")) * seconds;
    rest = rest.slice(found[0].length);
  }
  return total > 0 && rest === "" ? Math.round(total) : parseTimeLimit(text);
}

/** Return a duration with its units, as it can be typed, too: `90 min`, `24 h`, `2 d 4 h`. */
export function durationWords(seconds: number): string {
  let rest = Math.max(0, Math.round(seconds));
  if (rest > 0 && rest < 7200 && rest % 60 === 0 && rest % 3600 !== 0) {
    return `${rest / 60} min`;
  }
  if (rest > 0 && rest < 172_800 && rest % 3600 === 0) {
    return `${rest / 3600} h`;
  }
  const parts: string[] = [];
  for (const [unit, size] of [
    ["d", 86_400],
    ["h", 3600],
    ["min", 60],
    ["s", 1],
  ] as const) {
    if (rest >= size) {
      parts.push(`${Math.floor(rest / size)} ${unit}`);
      rest %= size;
    }
  }
  return parts.join(" ") || "0 min";
}

/** Return the meaning of a typed time limit: "= 90 minutes", "= 4 h"; undefined where it is no time. */
export function durationEcho(trans: TranslationBundle, text: string): string | undefined {
  const seconds = parseDuration(text);
  if (text.trim() === "" || seconds === null) {
    return undefined;
  }
  if (seconds === Infinity || seconds === 0) {
    return trans.__("= no time limit");
  }
  const minutes = seconds / 60;
  return Number.isInteger(minutes) && minutes < 120 && minutes !== 60
    ? trans._n("= %1 minute", "= %1 minutes", minutes)
    : `= ${durationWords(seconds)}`;
}

/** Return a typed time limit as Slurm takes it; what Slurm takes already is not changed. */
export function slurmTime(text: string): string {
  const seconds = parseDuration(text);
  if (seconds === null || !Number.isFinite(seconds) || parseTimeLimit(text) !== null) {
    return text.trim();
  }
  return formatDuration(seconds);
}

/** Time limit that Slurm gives a job without one, in seconds: a year. */
const NO_LIMIT_S = 365 * 86_400;

/** Whether a time limit is one that Slurm gives a job without a limit. */
export function isUnlimited(limit: number): boolean {
  return limit >= NO_LIMIT_S;
}

/** Return the seconds until a running job reaches its time limit; null without a limit, or where that is not known. */
export function remainingSeconds(job: IJob, now: number): number | null {
  const { start_time: start, time_limit: limit } = job;
  if (
    stateKind(job.state) !== "running" ||
    !job.known ||
    start === null ||
    !limit ||
    isUnlimited(limit)
  ) {
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
  return remaining !== null && isNearEnd(remaining, job.time_limit ?? 0, minutes);
}

/** Whether so little of a time limit remains that it is near; all times but the minutes in seconds. */
export function isNearEnd(remaining: number, limit: number, minutes = NEAR_LIMIT_MINUTES): boolean {
  return remaining <= Math.min(minutes * 60, limit / 4);
}
