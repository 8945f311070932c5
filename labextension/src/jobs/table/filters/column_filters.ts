/** Filters of single columns of the table of jobs: a text, or a choice among the values that occur. No DOM. */
import type { IJob } from "../../../common/api/objects";
import { jobName } from "../../../common/labels";
import type { ColumnId } from "../columns";

/** The columns with a text, and those with a list of their values. */
const TEXTS: readonly ColumnId[] = ["id", "name", "reason", "nodes"];
const LISTS: readonly ColumnId[] = ["state", "partition", "user", "cluster", "account", "qos"];

/** The filter of a column: words that all occur, or the values that are shown. */
export type ColumnFilter = string | readonly string[];
export type ColumnFilters = Readonly<Partial<Record<ColumnId, ColumnFilter>>>;

/** Return how a column is filtered; null: not at all. */
export function filterKind(column: ColumnId): "text" | "list" | null {
  return TEXTS.includes(column) ? "text" : LISTS.includes(column) ? "list" : null;
}

/** Return the filters with that of a column; a filter that shows everything is left out. */
export function changedFilters(
  filters: ColumnFilters,
  column: ColumnId,
  filter: ColumnFilter,
): ColumnFilters {
  const others = Object.fromEntries(Object.entries(filters).filter(([name]) => name !== column));
  const isAll = typeof filter === "string" ? filter.trim() === "" : filter.length === 0;
  return isAll ? others : { ...others, [column]: filter };
}

/** Return the values of a job in a column with a list: an array has the states of its tasks, too. */
function valuesOf(job: IJob, column: ColumnId): readonly string[] {
  switch (column) {
    case "state":
      return [...new Set([job.state, ...Object.keys(job.tasks ?? {})])];
    case "partition":
      return (job.partition ?? "").split(","); // a pending job may name several
    case "user":
    case "cluster":
    case "account":
    case "qos":
      return [job[column] ?? ""];
    default:
      return [];
  }
}

function textOf(job: IJob, column: ColumnId): string {
  switch (column) {
    case "name":
      return jobName(job);
    case "reason":
      return `${job.reason_text}\n${job.reason}`;
    case "nodes":
      return job.nodes ?? "";
    default:
      return job.id ?? "";
  }
}

/** Return the values of a column and how many jobs have each, in alphabetical order; chosen values always occur. */
export function columnValues(
  jobs: readonly IJob[],
  column: ColumnId,
  chosen: readonly string[],
): readonly (readonly [string, number])[] {
  const counts = new Map(chosen.map((value) => [value, 0]));
  for (const job of jobs) {
    for (const value of valuesOf(job, column)) {
      counts.set(value, (counts.get(value) ?? 0) + 1);
    }
  }
  return [...counts].sort(([a], [b]) => (a < b ? -1 : Number(a > b)));
}

/** Return a function that tells whether a job passes all filters; null: there is none. */
export function columnTest(filters: ColumnFilters): ((job: IJob) => boolean) | null {
  const tests = Object.entries(filters).map(([name, filter]): ((job: IJob) => boolean) => {
    const column = name as ColumnId;
    if (typeof filter !== "string") {
      return (job) => valuesOf(job, column).some((value) => filter.includes(value));
    }
    const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
    return (job) => {
      const text = textOf(job, column).toLowerCase();
      return words.every((word) => text.includes(word));
    };
  });
  return tests.length === 0 ? null : (job) => tests.every((passes) => passes(job));
}

/** Return the filters of a saved state that are usable. */
export function savedFilters(saved: unknown): ColumnFilters {
  if (typeof saved !== "object" || saved === null) {
    return {};
  }
  const usable = Object.entries(saved).filter(([column, filter]) => {
    const kind = filterKind(column as ColumnId);
    return kind === "text"
      ? typeof filter === "string"
      : kind === "list" &&
          Array.isArray(filter) &&
          filter.every((value) => typeof value === "string");
  });
  return Object.fromEntries(usable);
}
