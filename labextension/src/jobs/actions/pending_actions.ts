/**
 * Actions that were requested for jobs, until they take effect, and those that failed. No DOM, no requests of its own.
 */
import type { Act, IFailure, IJob, IProblem } from "../../common/api/objects";
import { toProblem } from "../../common/api/problem";
import { identity, isSameState, referenceOf } from "../../common/api/records";
import type { IJobsApi } from "../api";

/** Jobs of one request: the agent carries it out, also if the page is closed. */
const JOBS_PER_REQUEST = 10_000;

interface IPendingActionsOptions {
  readonly api: IJobsApi;
  /** Apply new states of jobs. */
  readonly update: (jobs: readonly IJob[]) => void;
  /** Whether a job is in the table; a task of an array is not. */
  readonly isKnown: (job: IJob) => boolean;
  readonly changed: () => void;
}

export class PendingActions {
  /** Failures of an action on several jobs. */
  failures: readonly IFailure[] = [];
  /** The jobs at the time of the request: an action is pending until the job has another state, or runs again. */
  private readonly _pending = new Map<string, { act: Act; job: IJob }>();

  constructor(private readonly _options: IPendingActionsOptions) {}

  /** The action that was requested for a job and has not taken effect yet. */
  pendingAct(job: IJob): Act | null {
    const pending = this._pending.get(identity(job));
    return pending !== undefined && isSameState(pending.job, job) ? pending.act : null;
  }

  clear(): void {
    this._pending.clear();
  }

  /** Apply an action to jobs; return the problem of the whole request, or that of the only job. */
  async act(act: Act, jobs: readonly IJob[], limit?: string): Promise<IProblem | null> {
    const targets = jobs.filter(
      (job) => referenceOf(job) !== null && this.pendingAct(job) === null,
    );
    for (const job of targets) {
      this._pending.set(identity(job), { act, job });
    }
    this.failures = [];
    this._options.changed();
    const failures: IFailure[] = [];
    const requests = [...batches(targets)];
    for (const some of requests) {
      try {
        failures.push(...(await this._request(act, some, limit)));
      } catch (error) {
        this._drop(some);
        const problem = unansweredProblem(act, error);
        if (requests.length === 1) {
          return problem;
        }
        failures.push(...some.map((job) => ({ job, problem }))); // another cluster may answer
      }
      this._options.changed();
    }
    this.failures = jobs.length > 1 ? failures : [];
    return jobs.length > 1 ? null : (failures[0]?.problem ?? null);
  }

  private async _request(act: Act, jobs: readonly IJob[], limit?: string): Promise<IFailure[]> {
    const byReference = new Map(jobs.map((job) => [referenceOf(job) ?? "", job]));
    const cluster = jobs[0]?.cluster ?? "";
    const outcomes = await this._options.api.act(cluster, act, [...byReference.keys()], limit);
    const failures: IFailure[] = [];
    for (const { job: reference, error, now } of outcomes) {
      const job = byReference.get(reference);
      if (job === undefined) {
        continue;
      }
      if (error !== null) {
        failures.push({ job, problem: error });
      }
      if (error !== null || !(act === "cancel" || act === "requeue")) {
        this._drop([job]); // the action does not change the state
      }
      if (now !== null && this._options.isKnown(job)) {
        this._options.update([now]);
      }
    }
    return failures;
  }

  private _drop(jobs: readonly IJob[]): void {
    for (const job of jobs) {
      this._pending.delete(identity(job));
    }
  }
}

function unansweredProblem(act: Act, error: unknown): IProblem {
  return act === "cancel"
    ? toProblem(error, "It is not known whether the job was cancelled. Refresh the list.")
    : toProblem(error, "The result is not known. Refresh the list.");
}

/** Divide jobs into requests. */
function* batches(jobs: readonly IJob[]): Generator<readonly IJob[]> {
  for (const cluster of new Set(jobs.map((job) => job.cluster))) {
    const ofCluster = jobs.filter((job) => job.cluster === cluster);
    for (let at = 0; at < ofCluster.length; at += JOBS_PER_REQUEST) {
      yield ofCluster.slice(at, at + JOBS_PER_REQUEST);
    }
  }
}
