/** What went wrong, in the server's words where it had some. */
import type { IProblem } from "./tokens";

/** A request that did not succeed. */
export class RequestError extends Error {
  constructor(readonly problem: IProblem) {
    super(problem.detail ?? problem.title ?? "The request failed.");
    this.name = "RequestError";
  }
}

/** Return the problem that an error of any kind stands for. */
export function toProblem(error: unknown): IProblem {
  if (error instanceof RequestError) {
    return error.problem;
  }
  if (error instanceof TypeError) {
    // What a browser throws for any broken connection, in a word or two.
    const detail = `The connection to the Jupyter server broke (${error.message}).`;
    return { detail, hint: "It is tried again by itself." };
  }
  return { detail: error instanceof Error ? error.message : String(error) };
}
