/** Labels of one job, in the language of the user. All values are text, never markup. */
import type { TranslationBundle } from "@jupyterlab/translation";

import type { IJob } from "../common/api/objects";
import { failedTasksText } from "../common/array_labels";
import { formatDuration, formatMinute, formatSize, formatTime } from "../common/format";
import { isFinished, stateKind } from "../common/job_states";
import { jobName, jobReason, limitText, nextEndText } from "../common/labels";
import { translateReason } from "../common/reason_texts";
import { isUnlimited, presentTime } from "../common/time_limit";
import type { IRecord, IReport, IUsage, Stream } from "./api";
import type { IObservedState } from "./model";

/** An event in the life of a job. */
export interface ITimelineEvent {
  readonly what: string;
  readonly detail: string;
  /** Seconds since the epoch; null: not known. */
  readonly time: number | null;
  /** The kind, by which the event is coloured. */
  readonly kind: string;
}

/** A name and its value. */
export type Fact = readonly [name: string, value: string];

/** Return the title of the page of a job. */
export function pageTitle(trans: TranslationBundle, job: IJob | null, reference: string): string {
  const name = job === null ? "" : jobName(job);
  const id = job?.id ?? reference;
  return name === "" ? trans.__("Job %1", id) : trans.__("%1 (job %2)", shortened(name, 30), id);
}

function shortened(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, most)}…` : text;
}

/**
 * Return the events in the life of a job, the first one first; a state that the page has observed stands where it
 * began.
 */
export function timelineEvents(
  trans: TranslationBundle,
  job: IJob,
  seen: readonly IObservedState[],
): ITimelineEvent[] {
  const found: ITimelineEvent[] = [];
  const add = (time: number | null, what: string, kind: string, detail = ""): void => {
    found.push({ time, what, kind, detail });
  };
  if (job.submit_time !== null) {
    add(job.submit_time, trans.__("Submitted"), "done");
  }
  for (const { state, reason, time } of seen) {
    const kind = stateKind(state);
    if (kind === "pending" && state !== "SUBMITTING") {
      const isPresent = seen.at(-1)?.state === state && seen.at(-1)?.reason === reason;
      // The page observes the state a moment later: by then the job may have started.
      const begun = job.restarts ? null : job.start_time;
      add(
        begun === null || time === null ? time : Math.min(time, begun),
        state === "PENDING" ? trans.__("Waiting") : state,
        kind,
        isPresent && stateKind(job.state) === "pending" ? "" : translateReason(trans, reason), // the head has the present one
      );
    } else if (!isFinished(state) && !["RUNNING", "SUBMITTING"].includes(state)) {
      add(time, state, kind);
    }
  }
  if (job.start_time !== null && stateKind(job.state) !== "pending") {
    const what = job.restarts
      ? trans._n("Started again (%1 restart)", "Started again (%1 restarts)", job.restarts)
      : trans.__("Started");
    add(job.start_time, what, "running", job.nodes ? trans.__("on %1", job.nodes) : "");
  }
  if (isFinished(job.state)) {
    add(job.end_time, trans.__("Ended"), stateKind(job.state), ending(trans, job));
  }
  const order = ({ time }: ITimelineEvent): number => time ?? Number.MAX_SAFE_INTEGER;
  return found.sort((a, b) => order(a) - order(b));
}

/** Return the end of a job: the state of Slurm, with the exit code or the signal. */
export function ending(trans: TranslationBundle, job: IJob): string {
  const { state, exit_code, signal } = job;
  if (signal) {
    return trans.__("%1, by signal %2", state, signal);
  }
  return exit_code ? trans.__("%1, exit code %2", state, exit_code) : state;
}

/** Return the start time of a waiting job, as Slurm estimates it; empty where that is not known. */
export function estimate(trans: TranslationBundle, job: IJob, now: number): string {
  return stateKind(job.state) === "pending" &&
    job.estimated_start &&
    job.estimated_start > presentTime(job, now)
    ? trans.__("Earliest start, by Slurm's estimate: %1.", formatMinute(job.estimated_start))
    : "";
}

/** The remaining time of a job. */
export interface IRemainingTime {
  readonly text: string;
  /** Used fraction of the time, 0 to 1. */
  readonly used: number;
  /** The consequence of the end, once little time remains: a tenth, at most a quarter of an hour. Else empty. */
  readonly warning: string;
}

/** Return the remaining time of a running job; null for any other job, and for one without a limit. */
export function remainingTime(
  trans: TranslationBundle,
  job: IJob,
  now: number,
): IRemainingTime | null {
  const { start_time: start, time_limit: limit } = job;
  if (stateKind(job.state) !== "running" || start === null || !limit || isUnlimited(limit)) {
    return null;
  }
  const present = presentTime(job, now);
  const remaining = start + limit - present;
  const isNear = remaining <= Math.min(900, limit / 10);
  const [time, all] = [formatDuration(remaining), formatDuration(limit)];
  return {
    text: trans.__("%1 of %2 left", time, all),
    used: Math.min(1, Math.max(0, (present - start) / limit)),
    warning: isNear ? trans.__("The job ends at its time limit, and unsaved work is lost.") : "",
  };
}

/** A next step of the agent for which there must be output. */
const LOOK = /^See the last lines of its output/;

/**
 * Return the reason of the state of a job and the next step, a line each.
 *
 * @param hasOutput - Whether there are lines of output to look at.
 */
export function reasonLines(trans: TranslationBundle, job: IJob, hasOutput: boolean): string[] {
  const { error } = job;
  const failed = failedTasksText(trans, job);
  const [reason = "", ...more] = failed === "" ? jobReason(trans, job) : [failed];
  const next = stateKind(job.state) === "pending" ? nextEndText(trans, job) : "";
  const lines = [`${reason} ${next}`.trim(), ...more, error?.detail ?? "", error?.hint ?? ""];
  return [...new Set(lines.filter((line) => line !== "" && (hasOutput || !LOOK.test(line))))];
}

/** Return the resources that a job requested and got, as far as the queue has them. */
export function jobFacts(trans: TranslationBundle, job: IJob, cluster: string): Fact[] {
  const count = Object.values(job.tasks ?? {}).reduce((sum, each) => sum + each, 0);
  const tasks = Object.entries(job.tasks ?? {}).map(([state, each]) => `${each} ${state}`);
  return nonEmptyFacts([
    [trans.__("Cluster"), cluster],
    [trans.__("Partition"), job.partition],
    [trans.__("Nodes"), job.nodes],
    [trans.__("GPUs"), job.gpus],
    [trans.__("Account"), job.account],
    [trans.__("QOS"), job.qos],
    [trans.__("Time limit"), job.time_limit ? limitText(trans, job.time_limit) : null],
    [trans.__("Tasks"), count > 0 ? `${count}: ${tasks.join(", ")}` : null],
  ]);
}

/** Return the paths of the files of a job. */
export function jobFiles(trans: TranslationBundle, job: IJob): Fact[] {
  return nonEmptyFacts([
    [trans.__("Standard output"), job.stdout],
    [trans.__("Standard error"), job.stderr === job.stdout ? null : job.stderr],
    [trans.__("Working directory"), job.work_dir],
    [trans.__("Script"), job.script_path],
    [trans.__("Job directory"), job.folder],
  ]);
}

function nonEmptyFacts(facts: readonly (readonly [string, unknown])[]): Fact[] {
  return facts
    .filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => [name, String(value)]);
}

/** Return words quoted for a shell. */
export function quoteWords(words: readonly string[]): string {
  const plain = /^[\w@%+=:,./-]+$/;
  return words
    .map((word) => (plain.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`))
    .join(" ");
}

/** Return the record of a job without its text, by the field names of Python. */
export function recordFacts(record: IRecord): Fact[] {
  return Object.entries(record)
    .filter(([name]) => name !== "argv") // shown separately
    .map(([name, value]): Fact => [name.replaceAll("_", " "), recordText(name, value)])
    .filter(([, text]) => text !== "");
}

function recordText(name: string, value: unknown): string {
  if (value === null || value === undefined || value === "") {
    return "";
  }
  if (name === "created" && typeof value === "number") {
    return formatTime(value);
  }
  if (Array.isArray(value)) {
    return ["argv", "options", "args"].includes(name)
      ? quoteWords(value.map(String))
      : value.map((each) => recordText("", each)).join(", ");
  }
  if (typeof value === "object") {
    return Object.entries(value)
      .map(([key, each]) => [key, recordText("", each)])
      .filter(([, text]) => text !== "")
      .map(([key, text]) => `${key ?? ""} ${text ?? ""}`)
      .join(", ");
  }
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Return the resources that a job used of those that it had. */
export function reportFacts(trans: TranslationBundle, report: IReport): Fact[] {
  const share = (part: number | null): string =>
    part === null ? "" : `${Math.round(part * 100)} %`;
  const { elapsed, time_limit, cpu_time, cpus, memory_peak, memory_asked } = report;
  const of = (used: string, requested: string, percent: string): string =>
    [requested === "" ? used : trans.__("%1 of %2", used, requested), percent && `(${percent})`]
      .filter(Boolean)
      .join(" ");
  const sources: Readonly<Record<string, string>> = {
    sacct: trans.__("accounting (sacct)"),
    sstat: trans.__("live usage (sstat)"),
    runner: trans.__("the runner, at the end of the cell"),
  };
  return nonEmptyFacts([
    [
      trans.__("Time"),
      elapsed === null
        ? null
        : time_limit && isUnlimited(time_limit)
          ? trans.__("%1, no limit", formatDuration(elapsed))
          : of(
              formatDuration(elapsed),
              time_limit ? formatDuration(time_limit) : "",
              share(time_limit ? elapsed / time_limit : null),
            ),
    ],
    [
      trans.__("CPU time"),
      cpu_time === null
        ? null
        : of(
            formatDuration(cpu_time),
            cpus && elapsed !== null
              ? trans._n("%2 on %1 CPU", "%2 on %1 CPUs", cpus, formatDuration(elapsed * cpus))
              : "",
            share(report.cpu_efficiency),
          ),
    ],
    [
      trans.__("Peak memory"),
      memory_peak === null
        ? null
        : of(
            formatSize(memory_peak),
            memory_asked ? formatSize(memory_asked) : "",
            share(report.memory_efficiency),
          ),
    ],
    [trans.__("GPUs requested"), report.gpus_asked || null],
    ...report.gpus.map(({ name, utilization, memory_used, memory_total }): [string, string] => [
      name,
      [
        utilization === null ? "" : trans.__("%1 busy when measured", share(utilization)),
        memory_used === null
          ? ""
          : of(formatSize(memory_used), memory_total ? formatSize(memory_total) : "", ""),
      ]
        .filter((text) => text !== "")
        .join(", "),
    ]),
    [trans.__("Source"), report.source === null ? null : (sources[report.source] ?? report.source)],
  ]);
}

/** A line over time. */
export interface IPlot {
  readonly label: string;
  /** The latest value, as text. */
  readonly text: string;
  readonly values: readonly (number | null)[];
  /** The value at the upper edge: the resources of the job, or more where it used more. */
  readonly top: number;
}

/** Return the plots of the measurements; those of GPUs only where there are values. */
export function usagePlots(trans: TranslationBundle, usage: IUsage): IPlot[] {
  const { points, cpus, memory } = usage;
  const plot = (
    label: string,
    values: readonly (number | null)[],
    has: number | null,
    words: (value: number) => string,
    edge = has ?? 0,
  ): IPlot[] => {
    const known = values.filter((value) => value !== null);
    const [last, most] = [known.at(-1), Math.max(...known)];
    if (last === undefined) {
      return [];
    }
    const text = has
      ? trans.__("%1 (last), %2 (peak), of %3", words(last), words(most), words(has))
      : trans.__("%1 (last), %2 (peak)", words(last), words(most));
    return [{ label, values, text, top: Math.max(edge, most) || 1 }];
  };
  const percent = (part: number): string => `${Math.round(part * 100)} %`;
  return [
    ...plot(
      trans.__("CPUs"),
      points.map((point) => point.cpus),
      cpus,
      (value) => String(Math.round(value * 10) / 10),
    ),
    ...plot(
      trans.__("Memory"),
      points.map((point) => point.memory),
      memory,
      formatSize,
    ),
    ...plot(
      trans.__("GPUs busy"),
      points.map(({ gpu }) => gpu),
      null,
      percent,
      1,
    ),
    ...plot(
      trans.__("GPU memory"),
      points.map(({ gpu_memory }) => gpu_memory),
      null,
      formatSize,
    ),
  ];
}

/** Return the name of a stream. */
export function streamName(trans: TranslationBundle, stream: Stream): string {
  return stream === "stdout" ? trans.__("Standard output") : trans.__("Standard error");
}
