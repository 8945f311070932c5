/** What a state means for the eye and for the counters. */
import type { IJob } from "./tokens";

export type StateKind = "pending" | "running" | "done" | "failed" | "cancelled" | "unknown";

const KINDS: Readonly<Record<string, StateKind>> = {
  BOOT_FAIL: "failed",
  CANCELLED: "cancelled",
  COMPLETED: "done",
  COMPLETING: "running",
  CONFIGURING: "running",
  DEADLINE: "failed",
  FAILED: "failed",
  NODE_FAIL: "failed",
  OUT_OF_MEMORY: "failed",
  PENDING: "pending",
  PREEMPTED: "failed",
  REQUEUED: "pending",
  REQUEUE_FED: "pending",
  REQUEUE_HOLD: "pending",
  RESIZING: "running",
  RESV_DEL_HOLD: "pending",
  REVOKED: "cancelled",
  RUNNING: "running",
  SIGNALING: "running",
  SPECIAL_EXIT: "pending",
  STAGE_OUT: "running",
  STOPPED: "running",
  SUBMITTING: "pending",
  SUSPENDED: "running",
  TIMEOUT: "failed",
};

/**
 * Return the kind of a state.
 *
 * @param state - Slurm's word; "RUNNING+COMPLETING" and "CANCELLED by 1000" are understood, an unknown word is "unknown".
 */
export function stateKind(state: string): StateKind {
  const word = /^[A-Z_]+/.exec(state)?.[0] ?? "";
  return Object.hasOwn(KINDS, word) ? (KINDS[word] ?? "unknown") : "unknown";
}

/** Whether there is still something to cancel: what has done its work only waits for its nodes to be cleaned up. */
export function isCancellable(state: string): boolean {
  return !isFinished(state) && !state.includes("COMPLETING");
}

/** Whether a job in this state is over. A state that we do not know is not taken for the end. */
export function isFinished(state: string): boolean {
  return ["done", "failed", "cancelled"].includes(stateKind(state));
}

/** Whether an allocation was given back, or is about to be; not one that ended otherwise before that. */
export function isReleased({ released, state }: IJob): boolean {
  return Boolean(released) && (!isFinished(state) || stateKind(state) === "cancelled");
}
