/** The requests that the model of the jobs makes to the agent. */
import type {
  Act,
  ICluster,
  IJob,
  IOutcome,
  IPrompt,
  IServerEvent,
  ITaskRows,
} from "../common/api/objects";
import type { IPromptsApi } from "../logins/prompt_queue";

/** What the model needs of the agent. */
export interface IAgentApi extends IPromptsApi {
  clusters(): Promise<ICluster[]>;
  /** All jobs that are not over, and the newest of those that are. */
  jobs(cluster: string, finished: number): Promise<IJob[]>;
  job(cluster: string, job: string): Promise<IJob>;
  /** Do the same with several jobs, by key or id; each has an answer of its own. With `limit` goes a time limit. */
  act(cluster: string, act: Act, jobs: readonly string[], limit?: string): Promise<IOutcome[]>;
  tasks(cluster: string, job: string): Promise<ITaskRows>;
  steps(cluster: string, job: string): Promise<IJob[]>;
  /** Log in; resolves when that is done, which may take as long as the person does. */
  connect(cluster: string): Promise<void>;
  disconnect(cluster: string): Promise<void>;
  /** What waits for an answer, the oldest first. */
  prompts(): Promise<IPrompt[]>;
  /**
   * The event stream, once it is open: what happens from then on is in it. It ends when the server ends it, and throws when
   * the link breaks or the signal is aborted.
   */
  events(signal: AbortSignal): Promise<AsyncIterable<IServerEvent>>;
  /** Seconds to add to this machine's clock to have the server's; a job's age is then told by one clock only. */
  readonly clockOffset: number;
}
