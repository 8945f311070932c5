/** Labels of actions on jobs, in the language of the user. */
import type { TranslationBundle } from "@jupyterlab/translation";

import type { Act, IFailure, IJob } from "../common/api/objects";
import { cancelBody, cancelTitle, jobName, problemText } from "../common/labels";

/** Number of names and failures in a list; of the others their number is shown. */
const MAX_LISTED = 8;

export function actName(trans: TranslationBundle, act: Act): string {
  switch (act) {
    case "cancel":
      return trans.__("Cancel");
    case "hold":
      return trans.__("Hold");
    case "release":
      return trans.__("Release");
    case "requeue":
      return trans.__("Requeue");
    case "limit":
      return trans.__("Time limit…");
  }
}

/** Return the label of an action in progress. */
export function actingText(trans: TranslationBundle, act: Act): string {
  switch (act) {
    case "cancel":
      return trans.__("Cancelling…");
    case "hold":
      return trans.__("Holding…");
    case "release":
      return trans.__("Releasing…");
    case "requeue":
      return trans.__("Requeuing…");
    case "limit":
      return trans.__("Setting the time limit…");
  }
}

/** Return the accessible label of a button, with the number of jobs. */
export function actLabel(trans: TranslationBundle, act: Act, count: number): string {
  switch (act) {
    case "cancel":
      return trans._n("Cancel %1 job", "Cancel %1 jobs", count);
    case "hold":
      return trans._n("Hold %1 job", "Hold %1 jobs", count);
    case "release":
      return trans._n("Release %1 job", "Release %1 jobs", count);
    case "requeue":
      return trans._n("Requeue %1 job", "Requeue %1 jobs", count);
    case "limit":
      return trans._n("Time limit of %1 job…", "Time limit of %1 jobs…", count);
  }
}

function listed(trans: TranslationBundle, lines: readonly string[]): string[] {
  const more = lines.length - MAX_LISTED;
  return more > 0
    ? [...lines.slice(0, MAX_LISTED), trans._n("and %1 more", "and %1 more", more)]
    : [...lines];
}

/** Return the question before jobs end: the title, the consequence, and the labels of the two buttons. */
export function actQuestion(
  trans: TranslationBundle,
  act: "cancel" | "requeue",
  jobs: readonly IJob[],
): { title: string; body: string; keep: string; end: string } {
  const [job] = jobs;
  if (act === "cancel" && jobs.length === 1 && job !== undefined) {
    const end = trans.__("Cancel the job");
    return {
      title: cancelTitle(trans, job),
      body: cancelBody(trans, job),
      keep: trans.__("Keep it"),
      end,
    };
  }
  const names = jobs.map((each) => `${each.id ?? ""} ${jobName(each)}`.trim());
  const lost =
    act === "cancel"
      ? trans.__("Unsaved output of these jobs is lost.")
      : trans.__("The jobs stop now and start again. Unsaved work will be lost.");
  return {
    title: `${actLabel(trans, act, jobs.length)}?`,
    body: [lost, ...listed(trans, names)].join("\n"),
    keep: jobs.length === 1 ? trans.__("Keep it") : trans.__("Keep them"),
    end: actLabel(trans, act, jobs.length),
  };
}

/** Return the jobs on which an action failed and the reasons, a line each. */
export function failureLines(trans: TranslationBundle, failures: readonly IFailure[]): string[] {
  return listed(
    trans,
    failures.map(
      ({ job, problem }) =>
        `${job.id ?? jobName(job)}: ${problemText(trans, problem).replaceAll("\n", " ")}`,
    ),
  );
}
