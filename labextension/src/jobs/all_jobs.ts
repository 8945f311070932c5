/** Jobs of all users of a cluster, loaded on request only. No DOM. */
import type { ApiSchemas, IJob, IProblem } from "../common/api/objects";
import { toProblem } from "../common/api/problem";
import { inheritIdentity } from "../common/api/records";
import { retryUntilAnswered } from "../common/api/retry";
import { Model } from "../common/observable_model";

/** The jobs of other users. Times are seconds since the epoch. */
export type IQueue = ApiSchemas["Queue"];

/** The request to the agent. */
export interface IQueueApi {
  queue(cluster: string): Promise<IQueue>;
}

/** The jobs of other users of a cluster, and the state of the request. */
export interface IQueueState {
  /** Null before the first answer. */
  readonly queue: IQueue | null;
  readonly jobs: readonly IJob[];
  readonly problem: IProblem | null;
  readonly isLoading: boolean;
}

const NOTHING: IQueueState = { queue: null, jobs: [], problem: null, isLoading: false };

/** Return the jobs of other users as rows of a table; no action on them is possible. */
function jobsOf(cluster: string, queue: IQueue): IJob[] {
  const { columns, rows, unknown_since, clock_offset } = queue;
  const sentences = new Map(Object.entries(queue.reasons ?? {})); // an earlier agent sends none
  const places = new Map(columns.map((name, place) => [name, place]));
  const text = (row: readonly unknown[], name: string): string => {
    const value = row[places.get(name) ?? -1];
    return typeof value === "string" ? value : "";
  };
  const number = (row: readonly unknown[], name: string): number | null => {
    const value = row[places.get(name) ?? -1];
    return typeof value === "number" ? value : null;
  };
  return rows.map((row): IJob => {
    const [state, tasks] = [text(row, "state"), number(row, "tasks")];
    const reason = text(row, "reason");
    return {
      ...{ key: null, cluster, id: text(row, "id"), state, user: text(row, "user") },
      ...{ reason, reason_text: sentences.get(reason) ?? "", next_step: "" },
      ...{ name: null, label: null },
      submit_time: number(row, "submit_time"),
      start_time: number(row, "start_time"),
      end_time: null,
      ...(clock_offset === undefined ? {} : { clock_offset }),
      time_limit: number(row, "time_limit"),
      partition: text(row, "partition"),
      account: text(row, "account"),
      qos: text(row, "qos"),
      nodes: text(row, "nodes") || null,
      known: unknown_since === null,
      unknown_since,
      tasks: tasks === null ? null : { [state]: tasks },
      isForeign: true,
    };
  });
}

export class AllJobs extends Model {
  private readonly _known = new Map<string, IQueueState>();
  /** The user's own jobs with the name of their user. */
  private readonly _named = new WeakMap<IJob, IJob>();
  private _own: readonly IJob[] | null = null;
  private _all: readonly IJob[] = [];

  constructor(private readonly _api: IQueueApi) {
    super();
  }

  stateOf(cluster: string): IQueueState {
    return this._known.get(cluster) ?? NOTHING;
  }

  /** Return the user's own jobs, then those of other users; the same array as long as nothing has changed. */
  withOthers(own: readonly IJob[]): readonly IJob[] {
    if (own !== this._own) {
      this._own = own;
      const others = [...this._known.values()].flatMap(({ jobs }) => jobs);
      this._all = [...own.map((job) => this._withUser(job)), ...others];
    }
    return this._all;
  }

  /** Load the jobs of other users. The agent asks Slurm at the rate of the site, once for all clients. */
  async load(clusters: readonly string[]): Promise<void> {
    await Promise.all(clusters.map((cluster) => this._loadCluster(cluster)));
  }

  private async _loadCluster(cluster: string): Promise<void> {
    const before = this.stateOf(cluster);
    if (before.isLoading) {
      return;
    }
    const waits = { ...before, problem: null, isLoading: true };
    this._set(cluster, waits);
    try {
      const queue = await retryUntilAnswered(
        () => this._api.queue(cluster),
        (problem) => {
          this._set(cluster, { ...waits, problem });
        },
      );
      const jobs = jobsOf(cluster, queue);
      this._set(cluster, { queue, jobs, problem: null, isLoading: false });
    } catch (error) {
      const problem = toProblem(error, "Refresh.");
      this._set(cluster, { ...before, problem, isLoading: false });
    }
  }

  private _set(cluster: string, known: IQueueState): void {
    if (!this.isDisposed) {
      this._known.set(cluster, known);
      this._own = null;
      this._changed.emit();
    }
  }

  private _withUser(job: IJob): IJob {
    const user = this.stateOf(job.cluster).queue?.user;
    let named = this._named.get(job);
    if (user !== undefined && named === undefined) {
      named = { ...job, user };
      inheritIdentity(named, job);
      this._named.set(job, named);
    }
    return named ?? job;
  }
}
