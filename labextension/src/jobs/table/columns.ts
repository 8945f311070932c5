/** Columns of the table of jobs: their text, their sort key, and their export. No DOM. */
import type { TranslationBundle } from "@jupyterlab/translation";

import type { IJob } from "../../common/api/objects";
import { numberOf } from "../../common/api/records";
import { formatDuration, formatTime } from "../../common/format";
import { isFinished, stateKind } from "../../common/job_states";
import { jobName, jobTime } from "../../common/labels";
import { isUnlimited, presentTime } from "../../common/time_limit";

/** The columns in their initial order. */
export const COLUMNS = [
  "id",
  "name",
  "state",
  "reason",
  "partition",
  "nodes",
  "time",
  "cluster",
  "account",
  "qos",
  "submitted",
  "started",
  "ended",
  "limit",
] as const;
/** The columns that are shown at first. */
export const INITIAL_COLUMNS: readonly (typeof COLUMNS)[number][] = COLUMNS.slice(0, 7);
/** The columns to choose from, and the user of a job, which is shown with the jobs of other users. */
export type ColumnId = (typeof COLUMNS)[number] | "user";

/** Smallest and initial width of each column in pixels. The reason takes the rest of the width. */
export const WIDTHS: Readonly<Record<ColumnId, readonly [number, number]>> = {
  id: [70, 84],
  name: [112, 160],
  state: [94, 104],
  reason: [120, 120],
  partition: [84, 92],
  nodes: [66, 92],
  time: [104, 136],
  cluster: [64, 160],
  account: [64, 92],
  qos: [64, 80],
  submitted: [150, 150],
  started: [150, 150],
  ended: [150, 150],
  limit: [80, 92],
  user: [64, 84],
};

/** Widths that the user has chosen, in pixels. */
export type ChosenWidths = Readonly<Partial<Record<ColumnId, number>>>;

/** Width of the reason up to which the other columns stay at their smallest width. */
const REASON_WIDTH = 400;

/** Smallest width to which a column can be dragged. */
export const MIN_WIDTH = 40;
/** Widths of the triangle before the columns, of the button after them, and of the space between two. */
const [FOLD, ACTION, GAP] = [20, 28, 8];

/**
 * Return the columns of all rows as a CSS grid template, and their smallest width together. No width depends on the
 * content of a row: each row is a grid of its own, and its columns stand below their heads.
 */
export function gridColumns(
  columns: readonly ColumnId[],
  chosen: ChosenWidths,
): { readonly template: string; readonly least: number } {
  const isFree = columns.includes("reason") && chosen.reason === undefined;
  const rest = isFree ? "reason" : columns.at(-1);
  const least = columns.reduce(
    (sum, column) => sum + (chosen[column] ?? WIDTHS[column][0]) + GAP,
    FOLD + ACTION + GAP,
  );
  const widths = columns.map((column) => {
    const [smallest, most] = WIDTHS[column];
    const width = chosen[column];
    if (column === "reason" && isFree) {
      return `minmax(clamp(${smallest}px, 100% - ${least - smallest}px, ${REASON_WIDTH}px), 1fr)`;
    }
    if (column === rest) {
      return `minmax(${width ?? smallest}px, 1fr)`;
    }
    return width === undefined ? `minmax(${smallest}px, ${most}px)` : `${width}px`;
  });
  return { template: [`${FOLD}px`, ...widths, `${ACTION}px`].join(" "), least };
}

export function isColumn(word: unknown): word is ColumnId {
  return COLUMNS.some((column) => column === word);
}

/** Return the heading of a column. */
export function columnName(trans: TranslationBundle, column: ColumnId): string {
  switch (column) {
    case "id":
      return trans.__("Job");
    case "name":
      return trans.__("Name");
    case "state":
      return trans.__("State");
    case "reason":
      return trans.__("Reason");
    case "partition":
      return trans.__("Partition");
    case "nodes":
      return trans.__("Nodes");
    case "time":
      return trans.__("Time");
    case "cluster":
      return trans.__("Cluster");
    case "account":
      return trans.__("Account");
    case "qos":
      return trans.__("QOS");
    case "submitted":
      return trans.__("Submitted");
    case "started":
      return trans.__("Started");
    case "ended":
      return trans.__("Ended");
    case "limit":
      return trans.__("Time limit");
    case "user":
      return trans.__("User");
  }
}

/** Return the start time of a job; null while it is pending, where Slurm has an estimate only. */
function started(job: IJob): number | null {
  return stateKind(job.state) === "pending" ? null : job.start_time;
}

function ended(job: IJob): number | null {
  return isFinished(job.state) ? job.end_time : null;
}

/** Return the text of a cell, for display and export. */
export function cellText(column: ColumnId, job: IJob, now: number): string {
  const when = (seconds: number | null): string => (seconds === null ? "" : formatTime(seconds));
  switch (column) {
    case "id":
      return job.id ?? "";
    case "name":
      return jobName(job);
    case "time":
      return jobTime(job, now);
    case "submitted":
      return when(job.submit_time);
    case "started":
      return when(started(job));
    case "ended":
      return when(ended(job));
    case "limit":
      return !job.time_limit
        ? ""
        : isUnlimited(job.time_limit)
          ? "UNLIMITED"
          : formatDuration(job.time_limit);
    default:
      return job[column] ?? "";
  }
}

/** Return the sort key of a cell; unknown values come last. */
export function sortKey(column: ColumnId, job: IJob, now: number): number | string {
  const last = Number.MAX_VALUE;
  switch (column) {
    case "id":
      return numberOf(job) || last;
    case "time": {
      const from = stateKind(job.state) === "pending" ? job.submit_time : job.start_time;
      const to = isFinished(job.state) ? job.end_time : presentTime(job, now);
      return from === null || to === null ? last : to - from;
    }
    case "submitted":
      return job.submit_time ?? last;
    case "started":
      return started(job) ?? last;
    case "ended":
      return ended(job) ?? last;
    case "limit":
      return job.time_limit ?? last;
    default:
      return cellText(column, job, now).toLowerCase();
  }
}

/**
 * Return a field of CSV (RFC 4180). A value that a spreadsheet would take for a formula is quoted: other users choose
 * names.
 */
function field(text: string): string {
  const plain = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
}

/** Return jobs as CSV, for programs: times as ISO 8601, durations in seconds. */
export function asCsv(jobs: readonly IJob[]): string {
  const time = (seconds: number | null): string =>
    seconds === null ? "" : new Date(seconds * 1000).toISOString();
  const heads =
    "cluster,id,name,state,reason,partition,nodes,account,qos,submitted,started,ended,time_limit,exit_code,user";
  const rows = jobs.map((job) =>
    [
      job.cluster,
      job.id ?? "",
      jobName(job),
      job.state,
      job.reason,
      job.partition ?? "",
      job.nodes ?? "",
      job.account ?? "",
      job.qos ?? "",
      time(job.submit_time),
      time(started(job)),
      time(ended(job)),
      String(job.time_limit ?? ""),
      String(job.exit_code ?? ""),
      job.user ?? "",
    ]
      .map(field)
      .join(","),
  );
  return [heads, ...rows, ""].join("\r\n");
}

/** Return jobs as JSON, as the agent sends them. */
export function asJson(jobs: readonly IJob[]): string {
  return JSON.stringify(jobs, null, 2);
}
