/** What is said of kernels on nodes. Everything here is text, never markup. */
import type { TranslationBundle } from "@jupyterlab/translation";

import { formatDuration } from "../common/format";
import { jobReason } from "../common/labels";
import { timeLeft } from "../common/time_limit";
import type { IShown } from "./kernel_watch";
import { standingOf } from "./model";

/** Return what the end of a kernel means. */
export function lossText(trans: TranslationBundle): string {
  return trans.__("What is in the memory of the kernel is lost then: save it before.");
}

/** Return the line of the status bar. */
export function kernelText(
  trans: TranslationBundle,
  { cluster, job }: IShown,
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
  const left = timeLeft(job, now);
  const where = job.nodes ?? cluster;
  return left === null
    ? trans.__("Kernel on %1", where)
    : trans.__("Kernel on %1: %2 left", where, formatDuration(left));
}

/** Return what more there is to say: why it waits, when it may start, how it ended; a line each. */
export function kernelAbout(trans: TranslationBundle, { job }: IShown, now: number): string {
  const lines = job === null ? [] : jobReason(trans, job);
  const start = job?.estimated_start;
  if (start && standingOf(job, now) === "pending") {
    lines.push(trans.__("Earliest start: %1.", new Date(start * 1000).toLocaleString()));
  }
  if (standingOf(job, now) === "near") {
    lines.push(lossText(trans));
  }
  return [...lines, trans.__("Show its allocation")].join("\n");
}
