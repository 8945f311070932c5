/** Asking the agent for what Slurm has not said yet: it waits for the answer, and asks Slurm no more often for it. No DOM. */
import type { IProblem } from "./objects";
import { RequestError } from "./problem";

/** How often it is asked for again. */
const ATTEMPTS = 20;

/**
 * Ask until there is an answer, or nobody waits for one any more.
 *
 * @param told - Is given what was said instead of an answer, while that is waited for.
 */
export async function patiently<T>(
  ask: () => Promise<T>,
  told: (problem: IProblem) => void,
): Promise<T> {
  for (let left = ATTEMPTS; ; left -= 1) {
    try {
      return await ask();
    } catch (error) {
      const problem = error instanceof RequestError ? error.problem : {};
      const after = problem.details?.retry_after;
      if (after === undefined || left === 0) {
        throw error;
      }
      told(problem);
      await new Promise((resolve) => setTimeout(resolve, after * 1000));
    }
  }
}
