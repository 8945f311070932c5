/** Labels of remote kernels. All values are text, never markup. */
import type { TranslationBundle } from "@jupyterlab/translation";

import { formatDuration, formatMinute } from "../common/format";
import { jobReason } from "../common/labels";
import { remainingSeconds } from "../common/time_limit";
import type { IKernelState } from "./kernel_watch";
import { standingOf } from "./model";

/** Return the consequence of the end of a kernel. */
export function lossText(trans: TranslationBundle): string {
  return trans.__("The memory of the kernel is lost then. Save your work before.");
}

/** Return the text of the item in the status bar. */
export function kernelText(
  trans: TranslationBundle,
  { cluster, job }: IKernelState,
  now: number,
): string {
  const standing = standingOf(job, now);
  if (standing === "starting" || job === null) {
    return trans.__("Kernel on %1: starting", cluster);
  }
  if (standing === "ended") {
    return trans.__("Kernel on %1: its allocation has ended", cluster);
  }
  if (standing === "pending") {
    return trans.__("Kernel on %1: pending", cluster);
  }
  const remaining = remainingSeconds(job, now);
  const where = job.nodes ?? cluster;
  return remaining === null
    ? trans.__("Kernel on %1", where)
    : trans.__("Kernel on %1: %2 left", where, formatDuration(remaining));
}

/** Return the tooltip: why the allocation waits, when it may start, how it ended; a line each. */
export function kernelAbout(trans: TranslationBundle, { job }: IKernelState, now: number): string {
  const lines = job === null ? [] : jobReason(trans, job);
  const start = job?.estimated_start;
  if (start && standingOf(job, now) === "pending") {
    lines.push(trans.__("Earliest start: %1.", formatMinute(start)));
  }
  if (standingOf(job, now) === "near") {
    lines.push(lossText(trans));
  }
  return [...lines, trans.__("Show its allocation")].join("\n");
}
