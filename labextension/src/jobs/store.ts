/** Jobs in their order, also fifty thousand of them: a change of one does not sort the others again. No DOM. */
import type { IJob } from "../common/api/objects";
import { identity, newestFirst } from "../common/api/records";
import { isFinished, stateKind, type StateKind } from "../common/job_states";

/** Finished jobs that are asked for and kept in view. */
export const FINISHED_KEPT = 1_000;
/** As many as are had where the person wants to see older ones. */
export const OLDER_KEPT = 50_000;
/** Of more changes than these at a time, all is sorted. */
const MANY = 100;

/** What runs, then what waits, then what is over. */
function rank({ state }: IJob): number {
  return isFinished(state) ? 2 : Number(stateKind(state) === "pending");
}

function compare(a: IJob, b: IJob): number {
  return rank(a) - rank(b) || newestFirst(a, b) || (identity(a) < identity(b) ? -1 : 1);
}

export class JobStore {
  /** How many finished jobs are kept. */
  kept = FINISHED_KEPT;
  private _byIdentity = new Map<string, IJob>();
  private _order: IJob[] = [];
  private _counts = new Map<StateKind, number>();
  private _told: readonly IJob[] | null = null;

  /** What runs, then what waits, then what is over, each newest first; another array after each change. */
  get jobs(): readonly IJob[] {
    return (this._told ??= [...this._order]);
  }

  get finished(): number {
    return this.count("done") + this.count("failed") + this.count("cancelled");
  }

  count(kind: StateKind): number {
    return this._counts.get(kind) ?? 0;
  }

  has(job: IJob): boolean {
    return this._byIdentity.has(identity(job));
  }

  /** Take in jobs; of what is over, the oldest beyond those that are kept go. */
  put(jobs: readonly IJob[]): void {
    if (jobs.length > MANY) {
      this._sort([...this._order, ...jobs]);
    } else {
      for (const job of jobs) {
        this._take(this._byIdentity.get(identity(job)));
        this._byIdentity.set(identity(job), job);
        this._count(job, 1);
        this._order.splice(this._place(job), 0, job);
      }
    }
    while (this.finished > this.kept) {
      this._take(this._order.at(-1)); // what is over stands at the end
    }
    this._told = null;
  }

  /** Keep only those that are wanted. */
  keep(isWanted: (job: IJob) => boolean): void {
    this._sort(this._order.filter(isWanted));
    this._told = null;
  }

  private _sort(jobs: readonly IJob[]): void {
    this._byIdentity = new Map(jobs.map((job) => [identity(job), job])); // the later one counts
    this._counts = new Map();
    for (const job of this._byIdentity.values()) {
      this._count(job, 1);
    }
    this._order = [...this._byIdentity.values()].sort(compare);
  }

  private _take(job: IJob | undefined): void {
    if (job !== undefined) {
      this._byIdentity.delete(identity(job));
      this._count(job, -1);
      this._order.splice(this._place(job), 1);
    }
  }

  private _count({ state }: IJob, by: number): void {
    this._counts.set(stateKind(state), this.count(stateKind(state)) + by);
  }

  /** Where a job stands, or would. */
  private _place(job: IJob): number {
    let [from, to] = [0, this._order.length];
    while (from < to) {
      const middle = (from + to) >> 1;
      const other = this._order[middle];
      if (other !== undefined && other !== job && compare(other, job) < 0) {
        from = middle + 1;
      } else {
        to = middle;
      }
    }
    return from;
  }
}
