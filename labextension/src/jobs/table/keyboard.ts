/** The keys of the table of jobs, as those of a tree grid (ARIA Authoring Practices). */
import type { KeyboardEvent } from "react";

import type { Act, IJob } from "../../common/api/objects";
import { isAllowed } from "../../common/job_states";
import type { JobsTable } from "./table_model";

interface IAt {
  readonly table: JobsTable;
  readonly acts: ITableActs;
  /** Rows that are seen at a time. */
  readonly page: number;
}

/** Where a key leads from a line; null: nowhere. */
function target(key: string, from: number, last: number, page: number): number | null {
  switch (key) {
    case "ArrowDown":
      return from + 1;
    case "ArrowUp":
      return Math.max(0, from - 1);
    case "PageDown":
      return from + page;
    case "PageUp":
      return Math.max(0, from - page);
    case "Home":
      return 0;
    case "End":
      return last;
    default:
      return null;
  }
}

/** The jobs that are meant: those that are marked, else the one where the keyboard is. */
function meant(table: JobsTable): readonly IJob[] {
  const line = table.lines[table.active];
  return table.marked.length > 0 || line === undefined ? table.marked : [line.job];
}

/** Do what a key stands for; whether it stands for anything. */
export function keyDown(event: KeyboardEvent, { table, acts, page }: IAt): boolean {
  const { key, shiftKey, altKey } = event;
  const isControl = event.ctrlKey || event.metaKey;
  const line = table.lines[table.active];
  const to = target(key, table.active, table.lines.length - 1, page);
  if (altKey || (isControl && !["a", "c"].includes(key))) {
    return false;
  }
  if (to !== null) {
    table.go(to, shiftKey);
  } else if (isControl && key === "a") {
    table.markAll();
  } else if (isControl && !window.getSelection()?.toString() && meant(table).length > 0) {
    acts.copy(meant(table));
  } else if (isControl || shiftKey) {
    return false;
  } else if (key === "Escape") {
    table.unmark();
  } else if (line === undefined) {
    return false;
  } else if (key === " ") {
    table.click(table.active, { adds: true, extends: false });
  } else if (key === "Enter") {
    acts.open(line.job);
  } else if (key === "Delete") {
    acts.act(
      "cancel",
      meant(table).filter((job) => isAllowed("cancel", job)),
    );
  } else if (key === "ArrowRight" || key === "ArrowLeft") {
    return unfold(table, key === "ArrowRight");
  } else {
    return false;
  }
  return true;
}

/** Unfold a job, or fold it; from one of its parts, go to it. */
function unfold(table: JobsTable, isOpen: boolean): boolean {
  const line = table.lines[table.active];
  if (line?.parent && !isOpen) {
    table.go(
      table.lines.findIndex(({ job }) => job === line.parent),
      false,
    );
  } else if (line) {
    table.fold(line.job, isOpen);
  }
  return true;
}

/** What a person can do with the jobs of a table. */
export interface ITableActs {
  readonly act: (act: Act, jobs: readonly IJob[]) => void;
  readonly open: (job: IJob) => void;
  readonly copy: (jobs: readonly IJob[]) => void;
}
