/** Problems: failed requests, in the words of the server where it sent any. */
import type { IProblem } from "./objects";

/** A failed request. */
export class RequestError extends Error {
  constructor(readonly problem: IProblem) {
    super(problem.detail ?? problem.title ?? "The request failed.");
    this.name = "RequestError";
  }
}

/** Text for a broken connection or a timeout: the words of browsers differ. */
const NO_ANSWER = "The Jupyter server does not answer. Check that it runs, and check the network.";
/** Problems in words of the panel, which can be translated. */
const LOCAL_PROBLEMS = new WeakSet<IProblem>();

/** Errors after which a submission may exist: under the same key, its repetition starts no second job. */
const UNCERTAIN = ["submission-unknown", "agent-unreachable", "transport", "command-timeout"].map(
  (code) => `urn:jupyter-slurm:error:${code}`,
);

/** Whether a request certainly had no effect: the agent itself refused it. */
export function isRefused({ type }: IProblem): boolean {
  return Boolean(type?.startsWith("urn:jupyter-slurm:error:") && !UNCERTAIN.includes(type));
}

/** Whether a problem is in words of the panel, not of the server. */
export function isLocalProblem(problem: IProblem): boolean {
  return LOCAL_PROBLEMS.has(problem);
}

/**
 * Return the problem that an error of any kind stands for.
 *
 * @param hint - The next step when there was no answer; an answer has its own. Written as a literal, so that it can be
 * translated.
 */
export function toProblem(error: unknown, hint: string): IProblem {
  if (error instanceof RequestError) {
    return error.problem;
  }
  if (error instanceof TypeError || error instanceof DOMException) {
    const problem = { detail: NO_ANSWER, hint };
    LOCAL_PROBLEMS.add(problem);
    return problem;
  }
  return { detail: error instanceof Error ? error.message : String(error) };
}
