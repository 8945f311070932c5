/** Keyboard navigation of the table of jobs, as that of a tree grid (ARIA Authoring Practices). */
import type { KeyboardEvent } from "react";

import type { Act, IJob } from "../../common/api/objects";
import { isAllowed } from "../../common/job_states";
import type { JobsTable } from "./table_model";

interface IKeyContext {
  readonly table: JobsTable;
  readonly acts: ITableActs;
  /** Number of visible rows. */
  readonly page: number;
}

/** Return the line to which a key leads; null: none. */
function targetLine(key: string, from: number, last: number, page: number): number | null {
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

/** Return the selected jobs, else the one in the active line. */
function targetJobs(table: JobsTable): readonly IJob[] {
  const line = table.lines[table.active];
  return table.marked.length > 0 || line === undefined ? table.marked : [line.job];
}

/** Handle a key; return whether it has a meaning. */
export function handleKey(event: KeyboardEvent, { table, acts, page }: IKeyContext): boolean {
  const { key, shiftKey, altKey } = event;
  const isControl = event.ctrlKey || event.metaKey;
  const line = table.lines[table.active];
  const to = targetLine(key, table.active, table.lines.length - 1, page);
  if (altKey || (isControl && !["a", "c"].includes(key))) {
    return false;
  }
  if (to !== null) {
    table.moveTo(to, shiftKey);
  } else if (isControl && key === "a") {
    table.markAll();
  } else if (isControl && !window.getSelection()?.toString() && targetJobs(table).length > 0) {
    acts.copy(targetJobs(table));
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
      targetJobs(table).filter((job) => isAllowed("cancel", job)),
    );
  } else if (key === "ArrowRight" || key === "ArrowLeft") {
    return unfold(table, key === "ArrowRight");
  } else {
    return false;
  }
  return true;
}

/** Unfold a job or fold it; from one of its parts, go to the job. */
function unfold(table: JobsTable, isOpen: boolean): boolean {
  const line = table.lines[table.active];
  if (line?.parent && !isOpen) {
    table.moveTo(
      table.lines.findIndex(({ job }) => job === line.parent),
      false,
    );
  } else if (line) {
    table.fold(line.job, isOpen);
  }
  return true;
}

/** Actions of the user on the jobs of a table. */
export interface ITableActs {
  readonly act: (act: Act, jobs: readonly IJob[]) => void;
  readonly open: (job: IJob) => void;
  readonly copy: (jobs: readonly IJob[]) => void;
}
