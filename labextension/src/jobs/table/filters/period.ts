/** Period of the finished jobs that are shown: what the agent lists by itself, some days, or all of accounting. No DOM. */
import type { IJob, IProblem } from "../../../common/api/objects";
import { toProblem } from "../../../common/api/problem";
import { isFinished } from "../../../common/job_states";
import { Model } from "../../../common/observable_model";
import { JobStore, MAX_OLDER } from "../../store";

/** Days of the finished jobs that are shown; 0: all that accounting has; null: those that the agent lists by itself. */
export type Period = 0 | 1 | 7 | null;
export const PERIODS: readonly Period[] = [null, 1, 7, 0];

const DAY_S = 86_400;

/** Return the period of a saved state. */
export function savedPeriod(saved: unknown): Period {
  return PERIODS.find((period) => period === saved) ?? null;
}

/** Whether a request for some days, if any, had what one for others would have; 0 days: all. */
function covers(asked: number | undefined, days: number): boolean {
  return asked !== undefined && (asked === 0 || (days !== 0 && asked >= days));
}

/** The request to the agent. */
export interface IPastJobsApi {
  jobs(cluster: string, finished: number, days?: number): Promise<IJob[]>;
}

/** Finished jobs of a longer period than that of the agent, loaded on request only. */
export class PastJobs extends Model {
  private readonly _known = new Map<string, readonly IJob[]>();
  private readonly _loading = new Set<string>();
  private readonly _asked = new Map<string, number>();
  private _days = 0;
  private _problem: IProblem | null = null;
  private _own: readonly IJob[] | null = null;
  private _all: readonly IJob[] = [];

  constructor(private readonly _api: IPastJobsApi) {
    super();
  }

  get isLoading(): boolean {
    return this._loading.size > 0;
  }

  /** Why the jobs of a cluster are missing. */
  get problem(): IProblem | null {
    return this._problem;
  }

  /** Return the user's jobs with those of the longer period in their order; the same array until something changes. */
  withPast(own: readonly IJob[]): readonly IJob[] {
    if (this._known.size === 0) {
      return own;
    }
    if (own !== this._own) {
      const store = new JobStore();
      store.maxFinished = MAX_OLDER;
      store.put([...this._known.values()].flat().filter(({ state }) => isFinished(state)));
      store.put(own); // the later one of a job is the newer
      this._own = own;
      this._all = store.jobs;
    }
    return this._all;
  }

  /** Load the jobs. The agent asks accounting once for a period, for all clients. */
  async load(clusters: readonly string[], days: number): Promise<void> {
    this._problem = null;
    this._days = days;
    await Promise.all(clusters.map((cluster) => this._loadCluster(cluster)));
  }

  /** Load the jobs of clusters that were not asked yet for the period, or a longer one. */
  complete(clusters: readonly string[], days: number): void {
    const others = clusters.filter((cluster) => !covers(this._asked.get(cluster), days));
    void (others.length > 0 && this.load(others, days));
  }

  private async _loadCluster(cluster: string): Promise<void> {
    if (this._loading.has(cluster)) {
      return;
    }
    const days = this._days;
    this._asked.set(cluster, days);
    this._loading.add(cluster);
    this._changed.emit();
    let had = -1; // days whose jobs were loaded
    try {
      this._known.set(cluster, await this._api.jobs(cluster, MAX_OLDER, days));
      had = days;
    } catch (error) {
      this._problem = toProblem(error, "Refresh.");
    }
    this._loading.delete(cluster);
    this._own = null;
    if (!this.isDisposed) {
      this._changed.emit();
      // another period was chosen meanwhile, and is not part of this one
      await (days !== this._days && !covers(had, this._days) && this._loadCluster(cluster));
    }
  }
}

/** The jobs of a period among others. */
export class PeriodFilter {
  private _from: readonly IJob[] | null = null;
  private _period: Period = null;
  private _shown: readonly IJob[] = [];

  /** Return active jobs and those that ended within the period; the same array until the jobs or the period change. */
  within(jobs: readonly IJob[], period: Period, now: number): readonly IJob[] {
    if (period === null || period === 0) {
      return jobs;
    }
    if (jobs !== this._from || period !== this._period) {
      this._from = jobs;
      this._period = period;
      const since = now - period * DAY_S;
      this._shown = jobs.filter(
        (job) => !isFinished(job.state) || (job.end_time ?? job.submit_time ?? now) >= since,
      );
    }
    return this._shown;
  }
}
