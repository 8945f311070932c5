/** States of jobs: their kinds, and the actions that they allow. */
import type { Act, IJob } from "./api/objects";

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

/** Whether a value is a kind; a saved value may be of another version. */
export function isKind(word: unknown): word is StateKind {
  return Object.values(KINDS).some((kind) => kind === word);
}

/** Kinds of the states so far: each job asks for its kind very often. */
const kinds = new Map<string, StateKind>();

/**
 * Return the kind of a state.
 *
 * @param state - A state of Slurm, also "RUNNING+COMPLETING" or "CANCELLED by 1000"; an unknown state is of the kind
 * "unknown".
 */
export function stateKind(state: string): StateKind {
  let kind = kinds.get(state);
  if (kind === undefined) {
    const word = /^[A-Z_]+/.exec(state)?.[0] ?? "";
    kind = Object.hasOwn(KINDS, word) ? (KINDS[word] ?? "unknown") : "unknown";
    kinds.set(state, kind);
  }
  return kind;
}

/** Whether a job is of one of these kinds: an array with failed tasks is also of those that failed. */
export function isOfKind({ state, tasks }: IJob, kinds: ReadonlySet<StateKind>): boolean {
  return kinds.has(stateKind(state)) || (kinds.has("failed") && hasFailedTasks(tasks));
}

function hasFailedTasks(tasks: IJob["tasks"]): boolean {
  return Object.entries(tasks ?? {}).some(
    ([state, count]) => count > 0 && stateKind(state) === "failed",
  );
}

/** Reasons of jobs that wait for their release, also of those that Slurm put back and held. */
const HELD_REASON = /^JobH[eo]ld|\bheld\b|special exit state/;

/** Whether the user may apply an action to a job in its state. Actions for administrators are not offered. */
export function isAllowed(act: Act, job: IJob): boolean {
  if (job.isForeign) {
    return false;
  }
  const kind = stateKind(job.state);
  const isStep = Boolean(job.allocation);
  const isQueued = kind === "pending" && job.id !== null && !isStep;
  const isRunning = /^(RUNNING|SUSPENDED)/.test(job.state) && isCancellable(job.state) && !isStep;
  switch (act) {
    case "cancel":
      return isCancellable(job.state);
    case "hold":
      return isQueued && !HELD_REASON.test(job.reason);
    case "release":
      return isQueued && HELD_REASON.test(job.reason) && !job.reason.startsWith("JobHeldAdmin");
    case "requeue":
      return isRunning && job.kind !== "allocation";
    case "limit":
      return isQueued || isRunning;
  }
}

/** Whether a job in this state can still be cancelled. A job that only waits for its nodes to be cleaned up cannot. */
export function isCancellable(state: string): boolean {
  return !isFinished(state) && !state.includes("COMPLETING");
}

/** Whether a job in this state is finished. An unknown state does not count as finished. */
export function isFinished(state: string): boolean {
  return ["done", "failed", "cancelled"].includes(stateKind(state));
}

/** Whether an allocation was released or is about to be; not one that had ended otherwise before. */
export function isReleased({ released, state }: IJob): boolean {
  return Boolean(released) && (!isFinished(state) || stateKind(state) === "cancelled");
}
