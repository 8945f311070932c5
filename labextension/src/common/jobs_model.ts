/** Interface and token of the model of the jobs, which all plugins share. */
import { Token } from "@lumino/coreutils";
import type { IDisposable } from "@lumino/disposable";
import type { ISignal } from "@lumino/signaling";

import type { Act, IActProgress, ICluster, IFailure, IJob, IProblem, IPrompt } from "./api/objects";

/** State of the connection between the model and the agent. */
export type Connection = "connecting" | "live" | "broken" | "paused";

/** The jobs of the user, kept up to date while a view is visible. */
export interface IJobsModel extends IDisposable {
  readonly changed: ISignal<IJobsModel, void>;
  /** Emitted when a prompt no longer waits for an answer, wherever the answer was given. */
  readonly settled: ISignal<IJobsModel, IPrompt>;
  readonly connection: Connection;
  /** Reason for a missing connection or a failed request; null: no problem. */
  readonly problem: IProblem | null;
  readonly clusters: readonly ICluster[];
  /** Prompts that wait for an answer of the user, the oldest first. */
  readonly prompts: readonly IPrompt[];
  /** A cluster whose connection was lost, for a moment after the connection is back. */
  readonly reconnected: ICluster | null;
  /** Running, then waiting, then finished jobs, each newest first. */
  readonly jobs: readonly IJob[];
  /** Whether `jobs` lacks the oldest finished jobs because there are too many. */
  readonly hasOlder: boolean;
  readonly running: number;
  readonly pending: number;
  /** The time on the server's clock, in seconds since the epoch. */
  readonly now: number;
  /** When the queue was last read, in seconds since the epoch, on the clock of this page; null: not known. */
  readonly updatedAt: number | null;
  /** Ask the agent again when the queue was last read. Slurm is not asked. */
  refreshClusters(): void;
  /** Whether a job is being cancelled: from the request until its state changes. */
  isCancelling(job: IJob): boolean;
  /** Cancel a job. A failure is reported through `problem`. */
  cancel(job: IJob): Promise<void>;
  /** The action that was requested for a job and has not taken effect yet. */
  pendingAct(job: IJob): Act | null;
  /**
   * Apply an action to jobs. A failure of one is reported through `problem`, failures of several through `failures`.
   */
  act(act: Act, jobs: readonly IJob[], limit?: string): Promise<void>;
  /** The jobs on which the last action failed. */
  readonly failures: readonly IFailure[];
  /** Actions on many jobs that the agent carries out, and results that no page has shown. */
  readonly runningActs: readonly IActProgress[];
  /** Stop an action: jobs that were not handled yet stay as they are. Dismiss one that has ended. */
  stopAct(act: IActProgress): Promise<void>;
  /** Clear the failures, which the user has read. */
  dismiss(): void;
  /** Load all finished jobs, as far as a page can hold them. */
  showOlder(): void;
  /** Load the tasks of an array, or the steps of an allocation. */
  loadParts(job: IJob): Promise<IJob[]>;
  /** Log in to a cluster. A failure is reported through `problem`, questions of hosts through `prompts`. */
  connect(cluster: ICluster): Promise<void>;
  /** End the login to a cluster, for all processes that use it. */
  disconnect(cluster: ICluster): Promise<void>;
  /** Answer a prompt; null declines. The answers go to the server and are not stored. */
  answer(prompt: IPrompt, answers: readonly string[] | null): Promise<void>;
  /** Load everything again, at once. */
  refresh(): void;
  /** Load the queue again, for jobs that a terminal has submitted meanwhile, as often as the rate limit allows. */
  refreshQueue(): void;
  /** Set whether a view is visible: without one the model makes no requests. */
  setVisible(visible: boolean): void;
  /** Set whether the model also listens without a visible view, for notifications. */
  setInBackground(kept: boolean): void;
}

export const IJobsModel = new Token<IJobsModel>(
  "jupyter-slurm:IJobsModel",
  "Your Slurm jobs, kept up to date.",
);
