/** Saved state of the table of jobs: its columns, their order and their widths, the sort order and the filters. No DOM. */
import { isKind, type StateKind } from "../../common/job_states";
import { isColumn, MIN_WIDTH, type ChosenWidths, type ColumnId } from "./columns";
import { savedFilters, type ColumnFilters } from "./filters/column_filters";
import type { Period } from "./filters/period";
import type { ICriteria, ISort } from "./row_order";

/** The state of a table that is saved. */
export interface ISavedTable {
  /** Null: the initial ones. */
  readonly columns: readonly ColumnId[] | null;
  readonly sort: ISort | null;
  readonly kinds: readonly StateKind[];
  readonly widths: ChosenWidths;
  readonly filters: ColumnFilters;
  readonly period: Period;
}

/** Storage of the state of a table. */
export interface ITableMemory {
  load(): Promise<unknown>;
  save(remembered: ISavedTable): Promise<void>;
}

/**
 * Return the columns that are shown: those that were chosen, and those without which jobs could not be told apart.
 *
 * @param isMany - Whether there are jobs of several clusters.
 */
export function shownColumns(
  chosen: readonly ColumnId[],
  isMany: boolean,
  showsAllUsers: boolean,
): readonly ColumnId[] {
  const [first, ...others] = chosen;
  if (first === undefined) {
    return chosen;
  }
  const cluster: readonly ColumnId[] = isMany && !chosen.includes("cluster") ? ["cluster"] : [];
  if (!showsAllUsers) {
    return [first, ...cluster, ...others];
  }
  // The agent does not send the names of the jobs of other users: in a narrow panel with the names first, nothing
  // would be visible.
  return first === "name"
    ? ["user", ...cluster, ...others, first]
    : [first, "user", ...cluster, ...others];
}

/** Return the columns with one more, or without it; the last column stays. */
export function toggledColumns(
  columns: readonly ColumnId[],
  column: ColumnId,
): readonly ColumnId[] {
  const others = columns.filter((each) => each !== column);
  if (others.length === columns.length) {
    return [...others, column];
  }
  return others.length > 0 ? others : columns;
}

/** Return the columns with one of them moved towards the beginning (-1) or the end (1). */
export function movedColumns(
  columns: readonly ColumnId[],
  column: ColumnId,
  by: -1 | 1,
): readonly ColumnId[] {
  const others = columns.filter((each) => each !== column);
  const at = columns.indexOf(column) + by;
  return others.length < columns.length && at >= 0 && at <= others.length
    ? [...others.slice(0, at), column, ...others.slice(at)]
    : columns;
}

/** Return the widths with that of a column in pixels; null: the initial one. */
export function resizedColumns(
  widths: ChosenWidths,
  column: ColumnId,
  width: number | null,
): ChosenWidths {
  const others = Object.fromEntries(Object.entries(widths).filter(([name]) => name !== column));
  return width === null ? others : { ...others, [column]: Math.max(MIN_WIDTH, Math.round(width)) };
}

/** Return the columns of a saved state that there are; null: none. */
export function savedColumns(columns: unknown): readonly ColumnId[] | null {
  const known = Array.isArray(columns) ? columns.filter(isColumn) : [];
  return known.length > 0 ? [...new Set(known)] : null;
}

/** Return the widths of a saved state that are usable. */
export function savedWidths(widths: ChosenWidths | undefined): ChosenWidths {
  return Object.fromEntries(
    Object.entries(widths ?? {}).filter(
      ([column, width]) => isColumn(column) && Number.isFinite(width) && width >= MIN_WIDTH,
    ),
  );
}

/** Return the sort order, the states and the filters of columns of a saved state that there are. */
export function savedCriteria(
  sort: ISort | null | undefined,
  kinds: unknown,
  filters: unknown,
): Pick<ICriteria, "sort" | "kinds" | "columns"> {
  return {
    sort: sort && isColumn(sort.column) ? { ...sort } : null,
    kinds: new Set(Array.isArray(kinds) ? kinds.filter(isKind) : []),
    columns: savedFilters(filters),
  };
}
