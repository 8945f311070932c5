/** Reasons in the language of the user: why a job waits or how it ended. */
import type { TranslationBundle } from "@jupyterlab/translation";

import type { IJob } from "./api/objects";

type Say = (trans: TranslationBundle, found: readonly string[]) => string;

/** The most frequent sentences of the agent. Their words are the agent's (tests/domain compares them). */
const SENTENCES: readonly (readonly [RegExp, Say])[] = [
  [
    /^The job ended with exit code (\d+)\.$/,
    (trans, [, code]) => trans.__("The job ended with exit code %1.", code),
  ],
  [
    /^The job was ended by (.+)\.$/,
    (trans, [, signal]) => trans.__("The job was ended by %1.", signal),
  ],
  [
    /^A program of the job was ended by (.+)\.$/,
    (trans, [, signal]) => trans.__("A program of the job was ended by %1.", signal),
  ],
  [
    /^The job reached its time limit of (.+)\.$/,
    (trans, [, limit]) => trans.__("The job reached its time limit of %1.", limit),
  ],
  [/^The job reached its time limit\.$/, (trans) => trans.__("The job reached its time limit.")],
  [
    /^The job used more memory than it requested\.$/,
    (trans) => trans.__("The job used more memory than it requested."),
  ],
  [/^The job was cancelled\.$/, (trans) => trans.__("The job was cancelled.")],
  [/^The job failed\.$/, (trans) => trans.__("The job failed.")],
  [/^A node of the job failed\.$/, (trans) => trans.__("A node of the job failed.")],
  [
    /^The number of tasks that you allowed at a time is running\.$/,
    (trans) => trans.__("The number of tasks that you allowed at a time is running."),
  ],
  [/^Other jobs come first\.$/, (trans) => trans.__("Other jobs come first.")],
  [/^It is held\.$/, (trans) => trans.__("It is held.")],
  [
    /^It waits for other jobs \(--dependency\)\.$/,
    (trans) => trans.__("It waits for other jobs (--dependency)."),
  ],
];

/** Return the agent's explanation of a reason, translated where it is a frequent one. */
export function translateReason(trans: TranslationBundle, text: string): string {
  for (const [pattern, say] of SENTENCES) {
    const found = pattern.exec(text);
    if (found !== null) {
      return say(trans, found);
    }
  }
  return text;
}

/** Return the reason of a job in words; Slurm's word where the agent explains nothing. */
export function reasonText(
  trans: TranslationBundle,
  { reason_text, reason }: Pick<IJob, "reason_text" | "reason">,
): string {
  return translateReason(trans, reason_text) || reason;
}
