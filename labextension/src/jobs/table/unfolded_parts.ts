/** Parts of the unfolded jobs of a table: the tasks of arrays and the steps of allocations. No DOM. */
import type { IJob, IProblem } from "../../common/api/objects";
import { toProblem } from "../../common/api/problem";
import { hasParts, identity } from "../../common/api/records";
import type { IJobsModel } from "../../common/jobs_model";

/** The parts of an unfolded job. */
interface IUnfolded {
  /** The job for which the parts were requested; null before the first request. */
  readonly of: IJob | null;
  readonly jobs: readonly IJob[];
  readonly problem: IProblem | null;
}

export class UnfoldedParts {
  private readonly _unfolded = new Map<string, IUnfolded>();
  /** Jobs whose parts are being loaded. */
  private readonly _loading = new Set<string>();

  constructor(
    private readonly _model: Pick<IJobsModel, "loadParts">,
    private readonly _changed: () => void,
  ) {}

  get isEmpty(): boolean {
    return this._unfolded.size === 0;
  }

  isUnfolded(job: IJob): boolean {
    return this._unfolded.has(identity(job));
  }

  partsOf(job: IJob): readonly IJob[] {
    return this.isEmpty ? [] : (this._unfolded.get(identity(job))?.jobs ?? []);
  }

  /** Return the reason why the parts of a job are missing. */
  problem(job: IJob): IProblem | null {
    return this._unfolded.get(identity(job))?.problem ?? null;
  }

  /** Unfold a job that has parts, or fold it. */
  fold(job: IJob, isUnfolded: boolean): void {
    if (isUnfolded && hasParts(job) && !this.isUnfolded(job)) {
      this._unfolded.set(identity(job), { of: null, jobs: [], problem: null });
      void this._load(job);
    } else if (!isUnfolded) {
      this._unfolded.delete(identity(job));
    }
  }

  /** Load the parts of unfolded jobs that have changed. */
  update(jobs: readonly IJob[]): void {
    for (const job of jobs) {
      const unfolded = this._unfolded.get(identity(job));
      if (unfolded?.of && unfolded.of !== job) {
        void this._load(job);
      }
    }
  }

  /**
   * Load the parts of a job, one request at a time: a large array changes faster than its ten thousand tasks are sent.
   */
  private async _load(job: IJob): Promise<void> {
    const key = identity(job);
    const before = this._unfolded.get(key)?.jobs ?? [];
    this._unfolded.set(key, { of: job, jobs: before, problem: null });
    if (this._loading.has(key)) {
      return;
    }
    this._loading.add(key);
    const loaded = await this._model.loadParts(job).then(
      (jobs) => ({ jobs, problem: null }),
      (error: unknown) => ({
        jobs: before,
        problem: toProblem(error, "Collapse the row, then expand it."),
      }),
    );
    this._loading.delete(key);
    const now = this._unfolded.get(key)?.of;
    if (now) {
      this._unfolded.set(key, { of: now, ...loaded });
      this._changed();
      if (now !== job) {
        void this._load(now); // the job has changed meanwhile
      }
    }
  }
}
