/** What went wrong, in the server's words where it had some. */
import type { IProblem } from "./tokens";

/** A request that did not succeed. */
export class RequestError extends Error {
  constructor(readonly problem: IProblem) {
    super(problem.detail ?? problem.title ?? "The request failed.");
    this.name = "RequestError";
  }
}

/**
 * Return the problem that an error of any kind stands for.
 *
 * @param hint - What to do when nothing answered; an answer brings its own.
 */
export function toProblem(error: unknown, hint: string): IProblem {
  if (error instanceof RequestError) {
    return error.problem;
  }
  if (error instanceof TypeError) {
    // What a browser throws for any broken connection, in words that differ from one to the other.
    return { detail: "The Jupyter server does not answer: has it ended, or the network?", hint };
  }
  return { detail: error instanceof Error ? error.message : String(error) };
}
