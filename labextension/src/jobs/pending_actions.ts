/** What was asked for with jobs, until that is seen of them, and what was refused. No DOM, no requests of its own. */
import type { Act, IFailure, IJob, IProblem } from "../common/api/objects";
import { toProblem } from "../common/api/problem";
import { identity, referenceOf } from "../common/api/records";
import type { IAgentApi } from "./api";

/** Jobs of one request: those that Slurm limits wait for a few seconds, and a proxy gives a request up after a minute. */
const AT_ONCE = 50;

interface IActsOptions {
  readonly api: IAgentApi;
  /** Take in how jobs are now. */
  readonly take: (jobs: readonly IJob[]) => void;
  /** Whether a job is one of the table; a task of an array is none. */
  readonly isKnown: (job: IJob) => boolean;
  readonly changed: () => void;
}

export class Acts {
  /** What went wrong with several. */
  failures: readonly IFailure[] = [];
  /** The state in which each job was when something was asked for: until another is told, it goes by that. */
  private readonly _asked = new Map<string, { act: Act; state: string }>();

  constructor(private readonly _options: IActsOptions) {}

  /** What was asked for with a job and is not seen yet. */
  under(job: IJob): Act | null {
    const asked = this._asked.get(identity(job));
    return asked?.state === job.state ? asked.act : null;
  }

  forget(): void {
    this._asked.clear();
  }

  /** Do the same with several jobs; return what went wrong with the whole of it, or with the only one. */
  async act(act: Act, jobs: readonly IJob[], limit?: string): Promise<IProblem | null> {
    const meant = jobs.filter((job) => referenceOf(job) !== null && this.under(job) === null);
    for (const job of meant) {
      this._asked.set(identity(job), { act, state: job.state });
    }
    this.failures = [];
    this._options.changed();
    const failures: IFailure[] = [];
    try {
      for (const some of batches(meant)) {
        failures.push(...(await this._ask(act, some, limit)));
        this._options.changed();
      }
    } catch (error) {
      this._drop(meant);
      return act === "cancel"
        ? toProblem(error, "Whether the job was cancelled is not known: look again.")
        : toProblem(error, "What became of it is not known: look again.");
    } finally {
      this.failures = jobs.length > 1 ? failures : [];
    }
    return jobs.length > 1 ? null : (failures[0]?.problem ?? null);
  }

  private async _ask(act: Act, jobs: readonly IJob[], limit?: string): Promise<IFailure[]> {
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
        this._drop([job]); // the state stays the same
      }
      if (now !== null && this._options.isKnown(job)) {
        this._options.take([now]);
      }
    }
    return failures;
  }

  private _drop(jobs: readonly IJob[]): void {
    for (const job of jobs) {
      this._asked.delete(identity(job));
    }
  }
}

/** Divide jobs into those that go into one request each. */
function* batches(jobs: readonly IJob[]): Generator<readonly IJob[]> {
  for (const cluster of new Set(jobs.map((job) => job.cluster))) {
    const there = jobs.filter((job) => job.cluster === cluster);
    for (let at = 0; at < there.length; at += AT_ONCE) {
      yield there.slice(at, at + AT_ONCE);
    }
  }
}
