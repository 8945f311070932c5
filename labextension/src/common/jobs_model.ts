/** Interface and token of the model of the jobs, which all plugins share. */
import { Token } from "@lumino/coreutils";
import type { IDisposable } from "@lumino/disposable";
import type { ISignal } from "@lumino/signaling";

import type { Act, ICluster, IFailure, IJob, IProblem, IPrompt } from "./api/objects";

/** Where the model stands with the agent. */
export type Connection = "connecting" | "live" | "broken" | "paused";

/** The jobs of this person, kept up to date while somebody looks. */
export interface IJobsModel extends IDisposable {
  readonly changed: ISignal<IJobsModel, void>;
  /** A prompt does not wait for an answer any more, wherever it was answered. */
  readonly settled: ISignal<IJobsModel, IPrompt>;
  readonly connection: Connection;
  /** Why there is no connection, or why the last request failed; null when all is well. */
  readonly problem: IProblem | null;
  readonly clusters: readonly ICluster[];
  /** What waits for an answer of the person, the oldest first. */
  readonly prompts: readonly IPrompt[];
  /** A cluster to which the link was lost, for a moment after it came back. */
  readonly returned: ICluster | null;
  /** What runs, then what waits, then what is over, each newest first. */
  readonly jobs: readonly IJob[];
  /** Whether so many jobs are over that the oldest of them are not among `jobs`. */
  readonly older: boolean;
  readonly running: number;
  readonly pending: number;
  /** The time on the server's clock, in seconds since the epoch. */
  readonly now: number;
  /** From the request to cancel a job until it is seen in another state. */
  isCancelling(job: IJob): boolean;
  /** Cancel a job; a failure is told through `problem`. */
  cancel(job: IJob): Promise<void>;
  /** What was asked for with a job and is not seen yet. */
  acting(job: IJob): Act | null;
  /** Do the same with several jobs; of one a failure is told through `problem`, of several through `failures`. */
  act(act: Act, jobs: readonly IJob[], limit?: string): Promise<void>;
  /** The jobs with which nothing was done, of those that something was last to be done with. */
  readonly failures: readonly IFailure[];
  /** The person has read of the failures. */
  dismiss(): void;
  /** Have all jobs that are over, as far as a page can hold them. */
  showOlder(): void;
  /** The tasks of an array, or the steps of an allocation. */
  parts(job: IJob): Promise<IJob[]>;
  /** Log in to a cluster; a failure is told through `problem`, what hosts ask through `prompts`. */
  connect(cluster: ICluster): Promise<void>;
  /** End the log-in to a cluster, for everybody who uses it. */
  disconnect(cluster: ICluster): Promise<void>;
  /** Answer a prompt; null declines. The answers go to the server and are kept nowhere. */
  answer(prompt: IPrompt, answers: readonly string[] | null): Promise<void>;
  /** Ask the agent again, at once. */
  refresh(): void;
  /** Somebody has come to look: what a terminal has submitted meanwhile is asked for, as often as the queue may be. */
  look(): void;
  /** Somebody looks, or nobody does: without a watcher nothing is asked. */
  setVisible(visible: boolean): void;
  /** Whether changes are heard also while nobody looks, because the person wants to be told then. */
  setKept(kept: boolean): void;
}

export const IJobsModel = new Token<IJobsModel>(
  "jupyter-slurm:IJobsModel",
  "The Slurm jobs of this person, kept up to date.",
);
