/** Labels of job arrays: their tasks by state, and their failed tasks. All values are text, never markup. */
import type { TranslationBundle } from "@jupyterlab/translation";

import type { IJob } from "./api/objects";
import { stateKind, type StateKind } from "./job_states";

/** The kinds of states in the order in which the tasks of an array are counted. */
const COUNTED = ["done", "failed", "running", "pending", "cancelled", "unknown"] as const;

/** Number of tasks of a kind. */
export type KindCount = readonly [StateKind, number];

/** Return the number of tasks of an array for each kind of state that occurs; empty for any other job. */
export function taskCounts({ tasks }: IJob): readonly KindCount[] {
  const counts = new Map<StateKind, number>();
  for (const [state, count] of Object.entries(tasks ?? {})) {
    const kind = stateKind(state);
    counts.set(kind, (counts.get(kind) ?? 0) + count);
  }
  return COUNTED.flatMap((kind): readonly KindCount[] => {
    const count = counts.get(kind) ?? 0;
    return count > 0 ? [[kind, count]] : [];
  });
}

/** Return the number of tasks of a kind in words. */
export function countText(trans: TranslationBundle, [kind, count]: KindCount): string {
  switch (kind) {
    case "done":
      return trans._n("%1 done", "%1 done", count);
    case "failed":
      return trans._n("%1 failed", "%1 failed", count);
    case "running":
      return trans._n("%1 running", "%1 running", count);
    case "pending":
      return trans._n("%1 pending", "%1 pending", count);
    case "cancelled":
      return trans._n("%1 cancelled", "%1 cancelled", count);
    default:
      return trans._n("%1 unknown", "%1 unknown", count);
  }
}

/** Return the tasks of an array by state, in words; empty for any other job. */
export function countsText(trans: TranslationBundle, job: IJob): string {
  return taskCounts(job)
    .map((count) => countText(trans, count))
    .join(", ");
}

/** Return how many tasks of an array failed, and how the first of them ended; empty where none is known. */
export function failedTasksText(trans: TranslationBundle, job: IJob): string {
  const { failed_task: first } = job;
  const counts = new Map(taskCounts(job));
  const failed = counts.get("failed") ?? 0;
  if (!first || failed === 0) {
    return "";
  }
  const all = [...counts.values()].reduce((sum, count) => sum + count, 0);
  const { task, signal, exit_code: code, state } = first;
  const how = signal
    ? trans.__("signal %1", signal)
    : code
      ? trans.__("exit code %1", code)
      : state;
  return trans._n(
    "%1 of %2 tasks failed (task %3, %4).",
    "%1 of %2 tasks failed (the first: task %3, %4).",
    failed,
    all,
    task,
    how,
  );
}

/** Return the reference of the first failed task of an array, by which its page is opened; null where none is known. */
export function failedTaskReference({ id, failed_task: first }: IJob): string | null {
  return id !== null && first ? `${id}_${first.task}` : null;
}
