/** Repeated requests for data that the agent does not have yet; the agent asks Slurm no more often for them. No DOM. */
import type { IProblem } from "./objects";
import { RequestError } from "./problem";

/** Number of repetitions. */
const MAX_RETRIES = 20;

/**
 * Repeat a request until there is an answer, or no view waits for one any more.
 *
 * @param onProblem - Called with the problem that was answered instead, while the request is to be repeated.
 */
export async function retryUntilAnswered<T>(
  ask: () => Promise<T>,
  onProblem: (problem: IProblem) => void,
): Promise<T> {
  for (let remaining = MAX_RETRIES; ; remaining -= 1) {
    try {
      return await ask();
    } catch (error) {
      const problem = error instanceof RequestError ? error.problem : {};
      const after = problem.details?.retry_after;
      if (after === undefined || remaining === 0) {
        throw error;
      }
      onProblem(problem);
      await new Promise((resolve) => setTimeout(resolve, after * 1000));
    }
  }
}

/** Resolve after a number of milliseconds, or as soon as the signal is aborted. */
export function defaultSleep(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const finish = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", finish);
      resolve();
    };
    const timer = setTimeout(finish, milliseconds);
    signal.addEventListener("abort", finish);
  });
}
