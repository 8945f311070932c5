/** The jobs of everybody on a cluster: asked for when a person wants to see them, and then only on request. No DOM. */
import type { ApiSchemas, IJob, IProblem } from "../common/api/objects";
import { toProblem } from "../common/api/problem";
import { patiently } from "../common/api/retry";
import { Model } from "../common/observable_model";

/** The jobs of other users. Times are seconds since the epoch. */
export type IQueue = ApiSchemas["Queue"];

/** What is needed of the agent. */
export interface IQueueApi {
  queue(cluster: string): Promise<IQueue>;
}

/** What is known of the jobs of others on a cluster. */
export interface IKnownQueue {
  /** Null before the first answer. */
  readonly queue: IQueue | null;
  readonly jobs: readonly IJob[];
  readonly problem: IProblem | null;
  readonly isAsking: boolean;
}

const NOTHING: IKnownQueue = { queue: null, jobs: [], problem: null, isAsking: false };

/** The jobs of others, as those of a table: nothing can be done with them. */
function jobsOf(cluster: string, { columns, rows, unknown_since }: IQueue): IJob[] {
  const places = new Map(columns.map((name, place) => [name, place]));
  const text = (row: readonly unknown[], name: string): string => {
    const told = row[places.get(name) ?? -1];
    return typeof told === "string" ? told : "";
  };
  const number = (row: readonly unknown[], name: string): number | null => {
    const told = row[places.get(name) ?? -1];
    return typeof told === "number" ? told : null;
  };
  return rows.map((row): IJob => {
    const [state, tasks] = [text(row, "state"), number(row, "tasks")];
    return {
      ...{ key: null, cluster, id: text(row, "id"), state, user: text(row, "user") },
      ...{ reason: text(row, "reason"), reason_text: "", next_step: "", name: null, label: null },
      submit_time: number(row, "submit_time"),
      start_time: number(row, "start_time"),
      end_time: null,
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

export class Everybody extends Model {
  private readonly _known = new Map<string, IKnownQueue>();
  /** One's own jobs with the name of their user. */
  private readonly _named = new WeakMap<IJob, IJob>();
  private _own: readonly IJob[] | null = null;
  private _all: readonly IJob[] = [];

  constructor(private readonly _api: IQueueApi) {
    super();
  }

  known(cluster: string): IKnownQueue {
    return this._known.get(cluster) ?? NOTHING;
  }

  /** One's own jobs as they are, then those of others as they were; the same array as long as nothing has changed. */
  with(own: readonly IJob[]): readonly IJob[] {
    if (own !== this._own) {
      this._own = own;
      const others = [...this._known.values()].flatMap(({ jobs }) => jobs);
      this._all = [...own.map((job) => this._withUser(job)), ...others];
    }
    return this._all;
  }

  /** Ask the agent, which asks Slurm as often as the site wishes, and once for all who look. */
  async look(clusters: readonly string[]): Promise<void> {
    await Promise.all(clusters.map((cluster) => this._look(cluster)));
  }

  private async _look(cluster: string): Promise<void> {
    const before = this.known(cluster);
    if (before.isAsking) {
      return;
    }
    const waits = { ...before, problem: null, isAsking: true };
    this._set(cluster, waits);
    try {
      const queue = await patiently(
        () => this._api.queue(cluster),
        (problem) => {
          this._set(cluster, { ...waits, problem });
        },
      );
      const jobs = jobsOf(cluster, queue);
      this._set(cluster, { queue, jobs, problem: null, isAsking: false });
    } catch (error) {
      const problem = toProblem(error, "Look again.");
      this._set(cluster, { ...before, problem, isAsking: false });
    }
  }

  private _set(cluster: string, known: IKnownQueue): void {
    if (!this.isDisposed) {
      this._known.set(cluster, known);
      this._own = null;
      this._changed.emit();
    }
  }

  private _withUser(job: IJob): IJob {
    const user = this.known(job.cluster).queue?.user;
    let named = this._named.get(job);
    if (user !== undefined && named === undefined) {
      named = { ...job, user };
      this._named.set(job, named);
    }
    return named ?? job;
  }
}
