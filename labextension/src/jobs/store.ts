/** Ordered store of up to fifty thousand jobs: a change of one does not sort the others again. No DOM. */
import type { IJob } from "../common/api/objects";
import { identity, inheritIdentity, newestFirst } from "../common/api/records";
import { isFinished, stateKind, type StateKind } from "../common/job_states";

/** Finished jobs that are requested and kept by default. */
export const MAX_FINISHED = 1_000;
/** Finished jobs that are kept after the user asked for older ones. */
export const MAX_OLDER = 50_000;
/** Number of changes at a time from which everything is sorted again. */
const SORT_THRESHOLD = 100;

/** Return the rank of a job: running, then waiting, then finished. */
function rank({ state }: IJob): number {
  return isFinished(state) ? 2 : Number(stateKind(state) === "pending");
}

function compare(a: IJob, b: IJob): number {
  return rank(a) - rank(b) || newestFirst(a, b) || (identity(a) < identity(b) ? -1 : 1);
}

/** Return the ID of a job without a key, with its cluster; null: it has a key, or no ID. */
function keylessId({ cluster, key, id }: IJob): string | null {
  return key === null && id !== null ? `${id} ${cluster}` : null;
}

/** Whether a later job of the same ID is the same job, requeued. Slurm uses an ID again only after the end of its job. */
function isRequeued(before: IJob, job: IJob): boolean {
  const isNewRun = !isFinished(job.state) && (job.restarts ?? 0) > (before.restarts ?? 0);
  const isLater = (before.submit_time ?? 0) < (job.submit_time ?? 0);
  return isLater && (isNewRun || !isFinished(before.state));
}

export class JobStore {
  /** Number of finished jobs that are kept. */
  maxFinished = MAX_FINISHED;
  private _byIdentity = new Map<string, IJob>();
  /** The jobs without a key: seldom more than one of an ID. */
  private _byId = new Map<string, readonly IJob[]>();
  private _order: IJob[] = [];
  private _counts = new Map<StateKind, number>();
  private _snapshot: readonly IJob[] | null = null;

  /** Running, then waiting, then finished jobs, each newest first; another array after each change. */
  get jobs(): readonly IJob[] {
    return (this._snapshot ??= [...this._order]);
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

  /** Add or update jobs; the oldest finished jobs beyond the limit are dropped. */
  put(jobs: readonly IJob[]): void {
    if (jobs.length > SORT_THRESHOLD) {
      this._sort([...this._order, ...jobs]);
    } else {
      for (const job of jobs) {
        this._take(this._earlierRun(job));
        this._take(this._byIdentity.get(identity(job)));
        this._keep(job);
        this._count(job, 1);
        this._order.splice(this._place(job), 0, job);
      }
    }
    while (this.finished > this.maxFinished) {
      this._take(this._order.at(-1)); // finished jobs stand at the end
    }
    this._snapshot = null;
  }

  /** Keep only the jobs for which the function returns true. */
  retain(isWanted: (job: IJob) => boolean): void {
    this._sort(this._order.filter(isWanted));
    this._snapshot = null;
  }

  private _sort(jobs: readonly IJob[]): void {
    this._byIdentity = new Map();
    this._byId = new Map();
    this._counts = new Map();
    for (const job of jobs) {
      this._forget(this._earlierRun(job)); // the later one wins
      this._forget(this._byIdentity.get(identity(job)));
      this._keep(job);
    }
    for (const job of this._byIdentity.values()) {
      this._count(job, 1);
    }
    this._order = [...this._byIdentity.values()].sort(compare);
  }

  /** Return the kept state of a job without a key, which gives the job its identity. */
  private _earlierRun(job: IJob): IJob | undefined {
    const same = this._byId.get(keylessId(job) ?? "") ?? [];
    const before =
      same.find(({ submit_time }) => submit_time === job.submit_time) ??
      same.find((each) => isRequeued(each, job));
    if (before !== undefined) {
      inheritIdentity(job, before);
    }
    return before;
  }

  private _keep(job: IJob): void {
    this._byIdentity.set(identity(job), job);
    const id = keylessId(job);
    if (id !== null) {
      this._byId.set(id, [...(this._byId.get(id) ?? []), job]);
    }
  }

  private _forget(job: IJob | undefined): void {
    if (job !== undefined) {
      this._byIdentity.delete(identity(job));
      const id = keylessId(job);
      if (id !== null) {
        this._byId.set(id, this._byId.get(id)?.filter((each) => each !== job) ?? []);
      }
    }
  }

  private _take(job: IJob | undefined): void {
    if (job !== undefined) {
      this._forget(job);
      this._count(job, -1);
      this._order.splice(this._place(job), 1);
    }
  }

  private _count({ state }: IJob, by: number): void {
    this._counts.set(stateKind(state), this.count(stateKind(state)) + by);
  }

  /** Return the position of a job, or the one that it would have. */
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
