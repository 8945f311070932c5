/** Requests of the model of the jobs to the agent. */
import type {
  Act,
  IActProgress,
  ICluster,
  IJob,
  IOutcome,
  IPrompt,
  IServerEvent,
  ITaskRows,
} from "../common/api/objects";
import type { IPromptsApi } from "../logins/prompt_queue";

/** The API of the agent, as far as the model of the jobs needs it. */
export interface IJobsApi extends IPromptsApi {
  clusters(): Promise<ICluster[]>;
  /** All active jobs, and the newest finished ones. */
  jobs(cluster: string, finished: number): Promise<IJob[]>;
  job(cluster: string, job: string): Promise<IJob>;
  /** Apply an action to jobs, by key or ID; each has a result of its own. `limit` is a time limit. */
  act(cluster: string, act: Act, jobs: readonly string[], limit?: string): Promise<IOutcome[]>;
  /** Actions on many jobs that run, and results that no page has shown. */
  acts(cluster: string): Promise<IActProgress[]>;
  /** Stop an action before its next command; one that has ended leaves the list. */
  stopAct(cluster: string, id: string): Promise<IActProgress>;
  tasks(cluster: string, job: string): Promise<ITaskRows>;
  steps(cluster: string, job: string): Promise<IJob[]>;
  /** Log in; resolves after the login, which may wait for the user. */
  connect(cluster: string): Promise<void>;
  disconnect(cluster: string): Promise<void>;
  /** Prompts that wait for an answer, the oldest first. */
  prompts(): Promise<IPrompt[]>;
  /**
   * Open the event stream, which has all events from then on. The stream ends when the server ends it, and throws when
   * the connection breaks or the signal is aborted.
   */
  events(signal: AbortSignal): Promise<AsyncIterable<IServerEvent>>;
  /**
   * Seconds to add to the clock of this computer for the clock of the server: the age of a job is measured by one clock
   * only.
   */
  readonly clockOffset: number;
}
