/** Actions on many jobs that the agent carries out, also those of another page or of this page before a reload. No DOM. */
import type { IActProgress, IProblem } from "../../common/api/objects";
import { toProblem } from "../../common/api/problem";
import type { IJobsApi } from "../api";

export class RunningActs {
  private _all = new Map<string, IActProgress>();

  constructor(private readonly _api: IJobsApi) {}

  get all(): readonly IActProgress[] {
    return [...this._all.values()];
  }

  /** Load the actions of some clusters. */
  async load(clusters: readonly string[]): Promise<void> {
    // An older agent does not know the request.
    const answers = await Promise.all(
      clusters.map((cluster) => this._api.acts(cluster).catch(() => [])),
    );
    this._all = new Map(answers.flat().map((act) => [act.id, act]));
  }

  /** Apply the present state of an action. What has ended is shown only if no page has its answer. */
  receive(act: IActProgress): void {
    const isOver = act.state === "finished" || act.state === "stopped";
    if (isOver && !act.unread) {
      this._all.delete(act.id);
    } else {
      this._all.set(act.id, act);
    }
  }

  /** Stop an action, or dismiss the result of one that has ended; return the problem. */
  async stop(act: IActProgress): Promise<IProblem | null> {
    if (act.unread) {
      this._all.delete(act.id);
    }
    try {
      const now = await this._api.stopAct(act.cluster, act.id);
      if (!act.unread) {
        this.receive(now);
      }
      return null;
    } catch (error) {
      const problem = toProblem(error, "The result is not known. Refresh the list.");
      this._all.delete(act.id);
      return problem.status === 409 ? null : problem; // it has ended meanwhile
    }
  }
}
