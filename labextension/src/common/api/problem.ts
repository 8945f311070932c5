/** What went wrong, in the server's words where it had some. */
import type { IProblem } from "./objects";

/** A request that did not succeed. */
export class RequestError extends Error {
  constructor(readonly problem: IProblem) {
    super(problem.detail ?? problem.title ?? "The request failed.");
    this.name = "RequestError";
  }
}

/** What a browser throws for any broken connection, or after too long, has words that differ from one to the other. */
const NO_ANSWER = "The Jupyter server does not answer: has it ended, or the network?";
/** Problems in our own words, which can be translated. */
const OURS = new WeakSet<IProblem>();

/** Whether the words of a problem are ours, not the server's. */
export function isOurs(problem: IProblem): boolean {
  return OURS.has(problem);
}

/**
 * Return the problem that an error of any kind stands for.
 *
 * @param hint - What to do when nothing answered; an answer brings its own. Written out, so that it can be translated.
 */
export function toProblem(error: unknown, hint: string): IProblem {
  if (error instanceof RequestError) {
    return error.problem;
  }
  if (error instanceof TypeError || error instanceof DOMException) {
    const problem = { detail: NO_ANSWER, hint };
    OURS.add(problem);
    return problem;
  }
  return { detail: error instanceof Error ? error.message : String(error) };
}
