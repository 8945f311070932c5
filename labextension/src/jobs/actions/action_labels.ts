/** Labels of actions on jobs, in the language of the user. */
import type { TranslationBundle } from "@jupyterlab/translation";

import type { Act, AnyAct, IActProgress, IFailure, IJob } from "../../common/api/objects";
import { activeTasks, cancelBody, cancelTitle, jobName, problemText } from "../../common/labels";

/** Returns the name of the cluster of a job; empty where there is only one. */
export type ClusterOf = (job: IJob) => string;

/** Number of failures in a list; of the others their number is shown. */
const MAX_LISTED = 8;

/** Number of jobs from which on an action that loses nothing needs a confirmation. */
const MANY_TO_CONFIRM = 20;

/** Number of jobs in the scrolling list of a confirmation. */
const MAX_CONFIRMED = 2000;

/** Actions that may need a confirmation. */
type ConfirmedAct = Exclude<Act, "limit">;

export function actName(trans: TranslationBundle, act: AnyAct): string {
  switch (act) {
    case "cancel":
      return trans.__("Cancel");
    case "hold":
      return trans.__("Hold");
    case "release":
      return trans.__("Release");
    case "requeue":
      return trans.__("Requeue");
    case "requeuehold":
      return trans.__("Requeue and hold");
    case "suspend":
      return trans.__("Suspend");
    case "resume":
      return trans.__("Resume");
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

/** Return the progress of an action on many jobs, or its result. */
export function actProgressText(trans: TranslationBundle, progress: IActProgress): string {
  const { act, state, done, total, failed, error } = progress;
  if (state === "stopping") {
    return trans.__("Stopping… %1 of %2 jobs are done.", done, total);
  }
  if (state === "running") {
    switch (act) {
      case "cancel":
        return trans.__("Cancelling %1 of %2 jobs…", done, total);
      case "hold":
        return trans.__("Holding %1 of %2 jobs…", done, total);
      case "release":
        return trans.__("Releasing %1 of %2 jobs…", done, total);
      case "requeue":
        return trans.__("Requeuing %1 of %2 jobs…", done, total);
      case "limit":
        return trans.__("Setting the time limit of %1 of %2 jobs…", done, total);
      default:
        return trans.__("%1: %2 of %3 jobs…", actName(trans, act), done, total);
    }
  }
  const parts = [
    state === "stopped"
      ? trans.__("%1: stopped after %2 of %3 jobs.", actName(trans, act), done, total)
      : trans.__("%1: %2 jobs.", actName(trans, act), total),
  ];
  if (failed > 0 && error !== null) {
    parts.push(trans._n("It failed for %1 job.", "It failed for %1 jobs.", failed));
    parts.push(problemText(trans, error).replaceAll("\n", " "));
  }
  return parts.join(" ");
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

function listed(trans: TranslationBundle, lines: readonly string[], most = MAX_LISTED): string[] {
  const more = lines.length - most;
  return more > 0
    ? [...lines.slice(0, most), trans._n("and %1 more", "and %1 more", more)]
    : [...lines];
}

/** Return a job as a line of a list: name, ID, the number of its tasks that the action affects, and its cluster. */
function jobLine(trans: TranslationBundle, job: IJob, clusterOf: ClusterOf): string {
  const count = activeTasks(job);
  const tasks = count > 0 ? trans._n("%1 task", "%1 tasks", count) : "";
  return [jobName(job), job.id ?? "", tasks, clusterOf(job)].filter(Boolean).join(" · ");
}

/** Return the jobs of a dialog, one a line; of many the first ones. */
export function jobLines(
  trans: TranslationBundle,
  jobs: readonly IJob[],
  clusterOf: ClusterOf,
): string[] {
  return listed(
    trans,
    jobs.map((each) => jobLine(trans, each, clusterOf)),
    MAX_CONFIRMED,
  );
}

/** Return the number of tasks behind the arrays among some jobs; empty without an array. */
function arraysText(trans: TranslationBundle, jobs: readonly IJob[]): string {
  const arrays = jobs.filter((job) => activeTasks(job) > 0);
  const tasks = arrays.reduce((sum, job) => sum + activeTasks(job), 0);
  return arrays.length === 0
    ? ""
    : trans._n(
        "%1 of them is an array (tasks: %2).",
        "%1 of them are arrays (tasks: %2).",
        arrays.length,
        tasks,
      );
}

function consequence(trans: TranslationBundle, act: ConfirmedAct): string {
  switch (act) {
    case "cancel":
      return trans.__("Unsaved output of these jobs is lost.");
    case "requeue":
      return trans.__("The jobs stop now and start again. Unsaved work will be lost.");
    case "hold":
      return trans.__("Held jobs do not start until they are released.");
    case "release":
      return trans.__("Released jobs start when resources are free.");
  }
}

/** Whether an action needs a confirmation: work is lost, or many jobs change that cannot be told apart afterwards. */
export function needsConfirmation(act: Act, jobs: readonly IJob[]): act is ConfirmedAct {
  return (
    act === "cancel" || act === "requeue" || (act !== "limit" && jobs.length >= MANY_TO_CONFIRM)
  );
}

/** Return the question before an action: the title, the consequence, the jobs, and the labels of the two buttons. */
export function actQuestion(
  trans: TranslationBundle,
  act: ConfirmedAct,
  jobs: readonly IJob[],
  clusterOf: ClusterOf,
): { title: string; body: string; items: string[]; keep: string; end: string } {
  const [job] = jobs;
  const end = actLabel(trans, act, jobs.length);
  const keep = jobs.length === 1 ? trans.__("Keep it") : trans.__("Keep them");
  if (jobs.length === 1 && job !== undefined) {
    return act === "cancel"
      ? {
          ...{ title: cancelTitle(trans, job, clusterOf(job)), body: cancelBody(trans, job) },
          ...{ items: [], keep },
          end: trans.__("Cancel the job"),
        }
      : {
          ...{ title: `${end}?`, body: consequence(trans, act), keep, end },
          items: [jobLine(trans, job, clusterOf)],
        };
  }
  return {
    title: `${end}?`,
    body: [consequence(trans, act), arraysText(trans, jobs)].filter(Boolean).join(" "),
    items: jobLines(trans, jobs, clusterOf),
    keep,
    end,
  };
}

/** Return the jobs on which an action failed and the reasons: a line for each reason, with the number of its jobs. */
export function failureLines(
  trans: TranslationBundle,
  failures: readonly IFailure[],
  clusterOf: ClusterOf,
): string[] {
  const groups = new Map<string, { first: string; text: string; count: number }>();
  for (const { job, problem } of failures) {
    const name = job.id ?? jobName(job);
    const text = problemText(trans, problem).replaceAll("\n", " ");
    const reason = text.replaceAll(name, "");
    const first = [name, clusterOf(job)].filter(Boolean).join(" · ");
    const group = groups.get(reason) ?? { first, text, count: 0 };
    groups.set(reason, { ...group, count: group.count + 1 });
  }
  return listed(
    trans,
    [...groups.values()].map(({ first, text, count }) =>
      count === 1
        ? `${first}: ${text}`
        : trans.__("%1 jobs, for example %2: %3", count, first, text),
    ),
  );
}
