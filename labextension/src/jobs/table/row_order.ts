/** Filter and order of the rows of a table. Fifty thousand jobs are sorted once; changed jobs are inserted. No DOM. */
import type { IJob } from "../../common/api/objects";
import { isOfKind, stateKind, type StateKind } from "../../common/job_states";
import { sortKey, type ColumnId } from "./columns";
import { columnTest, type ColumnFilters } from "./filters/column_filters";

export interface ISort {
  readonly column: ColumnId;
  readonly isDescending: boolean;
}

export interface ICriteria {
  /** Words that all occur in a job that is shown. */
  readonly text: string;
  /** The kinds of states that are shown; empty: all. */
  readonly kinds: ReadonlySet<StateKind>;
  /** The filters of single columns, which a job passes all. */
  readonly columns: ColumnFilters;
  /** Null: running, waiting, then finished jobs, the newest first. */
  readonly sort: ISort | null;
}

/** The criteria with which all jobs are shown. */
export const NO_FILTERS = { text: "", kinds: new Set<StateKind>(), columns: {} } as const;

/** Number of changes at a time from which everything is sorted again. */
const SORT_THRESHOLD = 100;

const searchTexts = new WeakMap<IJob, string>();

/** Return the text of a job that the filter searches. */
function searchText(job: IJob): string {
  let known = searchTexts.get(job);
  if (known === undefined) {
    const { id, label, name, state, reason, reason_text, partition, nodes, cluster, user } = job;
    known = [id, label, name, state, reason, reason_text, partition, nodes, cluster, user]
      .join("\n")
      .toLowerCase();
    searchTexts.set(job, known);
  }
  return known;
}

export class RowOrder {
  private _jobs: readonly IJob[] = [];
  private _sorted: readonly IJob[] = [];
  private _sort: ISort | null = null;
  private _shown: readonly IJob[] = [];
  private _from: readonly IJob[] | null = null;
  private _criteria: ICriteria | null = null;
  /** The update in which each job was last present. */
  private _turns = new Map<IJob, number>();
  private _turn = 0;

  /**
   * Return the jobs that are shown, in their order; the same array as long as nothing has changed.
   *
   * @param clusterOf - Returns the name of the cluster of a job, which the filter searches too.
   */
  shown(
    jobs: readonly IJob[],
    criteria: ICriteria,
    now: number,
    clusterOf: (job: IJob) => string = () => "",
  ): readonly IJob[] {
    const sorted = this._inOrder(jobs, criteria.sort, now);
    if (sorted !== this._from || criteria !== this._criteria) {
      this._from = sorted;
      this._criteria = criteria;
      const words = criteria.text.toLowerCase().split(/\s+/).filter(Boolean);
      const passes = columnTest(criteria.columns);
      const isAll = words.length === 0 && criteria.kinds.size === 0 && passes === null;
      this._shown = isAll
        ? sorted
        : sorted.filter(
            (job) =>
              (criteria.kinds.size === 0 || isOfKind(job, criteria.kinds)) &&
              (passes === null || passes(job)) &&
              words.every(
                (word) =>
                  searchText(job).includes(word) || clusterOf(job).toLowerCase().includes(word),
              ),
          );
    }
    return this._shown;
  }

  private _inOrder(jobs: readonly IJob[], sort: ISort | null, now: number): readonly IJob[] {
    if (sort === null) {
      this._sort = null;
      return jobs;
    }
    if (sort !== this._sort) {
      this._turns = new Map();
      this._sorted = [];
      this._sort = sort;
      this._jobs = [];
    }
    if (jobs !== this._jobs) {
      const changed = this._changed(jobs);
      const isMuch = changed.length > SORT_THRESHOLD;
      this._sorted = isMuch
        ? sortAll(jobs, sort, now)
        : insert(this._kept(), changed, comparator(sort, now));
      this._turns = isMuch ? new Map(jobs.map((job) => [job, this._turn])) : this._turns;
      this._jobs = jobs;
    }
    return this._sorted;
  }

  /** Return the jobs that are new since the last update. */
  private _changed(jobs: readonly IJob[]): IJob[] {
    const changed: IJob[] = [];
    this._turn += 1;
    for (const job of jobs) {
      if (this._turns.get(job) !== this._turn - 1) {
        changed.push(job);
      }
      this._turns.set(job, this._turn);
    }
    return changed;
  }

  /** Return the sorted jobs that are still present, in their order. */
  private _kept(): IJob[] {
    return this._sorted.filter(
      (job) => this._turns.get(job) === this._turn || !this._turns.delete(job),
    );
  }
}

type Compare = (a: IJob, b: IJob) => number;

function order(a: number | string, b: number | string): number {
  return a < b ? -1 : Number(a > b);
}

function comparator({ column, isDescending }: ISort, now: number): Compare {
  const sign = isDescending ? -1 : 1;
  return (a, b) => sign * order(sortKey(column, a, now), sortKey(column, b, now));
}

function sortAll(
  jobs: readonly IJob[],
  { column, isDescending }: ISort,
  now: number,
): readonly IJob[] {
  const sign = isDescending ? -1 : 1;
  return jobs
    .map((job) => ({ job, key: sortKey(column, job, now) }))
    .sort((a, b) => sign * order(a.key, b.key))
    .map(({ job }) => job);
}

/** Insert a few jobs into sorted ones. */
function insert(result: IJob[], changed: readonly IJob[], compare: Compare): readonly IJob[] {
  for (const job of changed) {
    let [from, to] = [0, result.length];
    while (from < to) {
      const middle = (from + to) >> 1;
      const other = result[middle];
      [from, to] =
        other !== undefined && compare(other, job) <= 0 ? [middle + 1, to] : [from, middle];
    }
    result.splice(from, 0, job);
  }
  return result;
}

const FAILED: ReadonlySet<StateKind> = new Set(["failed"]);

/** Return the number of jobs of each kind of state; an array with failed tasks counts as failed, too. */
export function countKinds(jobs: readonly IJob[]): ReadonlyMap<StateKind, number> {
  const counts = new Map<StateKind, number>();
  const add = (kind: StateKind): void => void counts.set(kind, (counts.get(kind) ?? 0) + 1);
  for (const job of jobs) {
    const kind = stateKind(job.state);
    add(kind);
    if (kind !== "failed" && job.tasks !== null && isOfKind(job, FAILED)) {
      add("failed");
    }
  }
  return counts;
}

/** Return the order after a click: by the column, the second time descending, the third time the initial order. */
export function nextSort(sort: ISort | null, column: ColumnId): ISort | null {
  if (sort?.column !== column) {
    return { column, isDescending: false };
  }
  return sort.isDescending ? null : { column, isDescending: true };
}
