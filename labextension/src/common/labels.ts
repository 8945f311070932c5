/** Labels of jobs, clusters and connections, in the language of the user. All values are text, never markup. */
import type { TranslationBundle } from "@jupyterlab/translation";

import type { ICluster, IConnection, IJob, IProblem, IPrompt } from "./api/objects";
import { isLocalProblem } from "./api/problem";
import { formatClock, formatDuration, formatMinute, formatTime } from "./format";
import { figuresTime, isOutdated, silentCluster } from "./freshness";
import { isAllowed, isFinished, isReleased, stateKind } from "./job_states";
import type { IJobsModel } from "./jobs_model";
import { reasonText } from "./reason_texts";
import { isUnlimited, presentTime } from "./time_limit";

/** Return the description of a problem, and on a line of its own the next step where that is known. */
export function problemText(trans: TranslationBundle, problem: IProblem): string {
  const [what, next] = [problem.detail ?? problem.title, problem.hint].map((text) =>
    text && isLocalProblem(problem) ? trans.gettext(text) : text,
  );
  return [what ?? trans.__("The request failed."), next].filter(Boolean).join("\n");
}

/** Return the text of the item in the status bar. */
export function statusSummary(trans: TranslationBundle, model: IJobsModel): string {
  if (model.connection === "broken") {
    return trans.__("Slurm: not reachable");
  }
  const parts: string[] = [];
  const link = linkText(trans, model);
  if (link !== "") {
    parts.push(link);
  }
  if (model.running > 0) {
    parts.push(trans._n("%1 running", "%1 running", model.running));
  }
  if (model.pending > 0) {
    parts.push(trans._n("%1 pending", "%1 pending", model.pending));
  }
  const counts = parts.join(", ");
  const text = counts === "" ? trans.__("Slurm: no jobs") : trans.__("Slurm: %1", counts);
  const time = figuresTime(model, formatMinute);
  return time !== "" && isOutdated(model) ? trans.__("%1 (checked %2)", text, time) : text;
}

/** Return the latest change of the connection to a cluster, while it is recent; else an empty text. */
function linkText(trans: TranslationBundle, model: IJobsModel): string {
  const asking = pendingPrompt(model);
  if (asking) {
    return trans.__("login to %1 required", nameOfCluster(model, asking.cluster));
  }
  const [lost, connecting] = (["lost", "connecting"] as const).map((state) =>
    model.clusters.find(({ connection }) => connection?.state === state),
  );
  if (lost) {
    return trans.__("connection to %1 lost", clusterName(lost));
  }
  if (connecting) {
    return trans.__("logging in to %1", clusterName(connecting));
  }
  return model.reconnected
    ? trans.__("connection to %1 restored", clusterName(model.reconnected))
    : "";
}

/** Return the first prompt that waits for an answer of the user. */
export function pendingPrompt({ prompts }: IJobsModel): IPrompt | undefined {
  return prompts.find(({ questions }) => questions.length > 0);
}

/** Return the state of the login to a cluster, in a line. */
export function connectionState(trans: TranslationBundle, connection: IConnection): string {
  const since = formatTime(connection.since);
  switch (connection.state) {
    case "connected":
      return trans.__("connected since %1, by %2", since, connection.hosts.join(" → "));
    case "connecting":
      return trans.__("logging in");
    case "lost":
      return trans.__("connection lost since %1; reconnecting", since);
    default:
      return trans.__("not connected");
  }
}

/**
 * Return the origin of a prompt, in words of the panel: the words of a host stand below it and cannot be taken for it.
 */
export function promptHead(trans: TranslationBundle, { kind, host, questions }: IPrompt): string {
  if (kind === "passphrase" || kind === "host-key") {
    return trans.__("jupyter_slurm asks, about %1:", host);
  }
  return questions.length > 0 ? trans.__("%1 asks:", host) : trans.__("%1 says:", host);
}

/** Return the title of the dialog that shows a prompt. */
export function promptTitle(trans: TranslationBundle, { cluster }: IPrompt): string {
  return trans.__("Login to %1", cluster);
}

/** Return the question before a login ends. */
export function disconnectTitle(trans: TranslationBundle, cluster: ICluster): string {
  return trans.__("Disconnect from %1?", clusterName(cluster));
}

/** Return the number and the names of the notebooks and other processes that use a login; empty for none. */
export function usersText(trans: TranslationBundle, { users = [] }: ICluster): string {
  if (users.length === 0) {
    return "";
  }
  const names = users.map(({ name, kind }) => name || kind).join(", ");
  return users.every(({ kind }) => kind === "kernel")
    ? trans._n("%1 notebook uses it: %2", "%1 notebooks use it: %2", users.length, names)
    : trans._n("%1 process uses it: %2", "%1 processes use it: %2", users.length, names);
}

/** Return the users of a login, and the consequence of its end for them. */
export function disconnectBody(trans: TranslationBundle, cluster: ICluster): string {
  const meaning = trans.__("Jobs keep running. The next command on the cluster needs a new login.");
  return `${usersText(trans, cluster)}.\n${meaning}`;
}

/**
 * Return the state of the connection to the agent, for the tooltip and the head of the panel; empty without a problem.
 */
export function connectionText(trans: TranslationBundle, model: IJobsModel): string {
  if (model.problem !== null) {
    return problemText(trans, model.problem);
  }
  const silent = silentCluster(model);
  if (silent !== undefined) {
    return trans.__("%1: %2", clusterName(silent), pollError(trans, silent));
  }
  return model.connection === "connecting" ? trans.__("Connecting…") : "";
}

/** Return the name of a cluster, different from those of all others; of one that needs a login that of its profile. */
export function clusterName({ connection, id, label, name }: ICluster): string {
  return label ?? (connection ? id : (name ?? id));
}

/** Return the name of the cluster of an ID. */
export function nameOfCluster({ clusters }: Pick<IJobsModel, "clusters">, wanted: string): string {
  const found = clusters.find(({ id }) => id === wanted);
  return found === undefined ? wanted : clusterName(found);
}

/** Return the name of the cluster of a job; empty where there is only one. */
export function jobCluster(model: Pick<IJobsModel, "clusters">, { cluster }: IJob): string {
  return model.clusters.length > 1 ? nameOfCluster(model, cluster) : "";
}

function pollError(trans: TranslationBundle, cluster: ICluster): string {
  const { error } = cluster.poll;
  return typeof error === "string" ? error : problemText(trans, error ?? {});
}

/** Return the state as Slurm names it, but of a released allocation: CANCELLED would look like a failure. */
export function jobState(trans: TranslationBundle, job: IJob): string {
  if (!isReleased(job)) {
    return job.state;
  }
  return isFinished(job.state) ? trans.__("released") : trans.__("being released");
}

/** Return the time that a released allocation has used, and the reason of its release. */
function releaseReason(trans: TranslationBundle, job: IJob): string[] {
  const lines = [];
  if (isFinished(job.state) && job.start_time !== null && job.end_time !== null) {
    const used = formatDuration(job.end_time - job.start_time);
    lines.push(
      job.time_limit && !isUnlimited(job.time_limit)
        ? trans.__("Used %1 of %2.", used, formatDuration(job.time_limit))
        : trans.__("Used %1.", used),
    );
  }
  if (job.released === "forgotten") {
    lines.push(trans.__("Its kernel was killed and did not restart."));
  }
  return lines;
}

/** Return a time limit in words. */
export function limitText(trans: TranslationBundle, limit: number): string {
  return isUnlimited(limit) ? trans.__("no limit") : formatDuration(limit);
}

/** Return the run time of a job, or its waiting time while it is pending. */
export function jobTime(job: IJob, now: number): string {
  const end = isFinished(job.state) ? job.end_time : presentTime(job, now);
  // The tasks of an array that have run count from the first one.
  const hasBegun = Boolean(job.tasks) && job.start_time !== null;
  const pending = stateKind(job.state) === "pending" && !hasBegun;
  const start = pending ? job.submit_time : job.start_time;
  return start === null || end === null ? "" : formatDuration(end - start);
}

/** Return the number of tasks of an array job; empty for any other job. */
export function jobTasks(trans: TranslationBundle, job: IJob): string {
  const count = Object.values(job.tasks ?? {}).reduce((sum, each) => sum + each, 0);
  return count === 0 ? "" : trans._n("%1 task", "%1 tasks", count);
}

/** Controls, and characters that change the direction of the text after them, beyond the text that has them (UAX #9). */
// eslint-disable-next-line no-control-regex -- they are what is sought
const CONTROLS = /[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;

/** Return a text that cannot change the text beside it. */
export function withoutControls(text: string): string {
  return text.replace(CONTROLS, "\ufffd");
}

/** Return the name of a job, without characters that would change the direction of the text beside it. */
export function jobName(job: IJob): string {
  return withoutControls(job.kernel?.display_name || (job.label ?? job.name ?? ""));
}

/**
 * Return the question before a job is cancelled, with as much of its name as fits into a line.
 *
 * @param cluster - The name of the cluster; empty where there is only one.
 */
export function cancelTitle(trans: TranslationBundle, job: IJob, cluster = ""): string {
  const name = jobName(job);
  const short = name.length > 40 ? `${name.slice(0, 40)}…` : name;
  const [id, ...more] = [job.id ?? "", short, cluster].filter(Boolean);
  return more.length === 0
    ? trans.__("Cancel job %1?", id ?? "")
    : trans.__("Cancel job %1 (%2)?", id ?? "", more.join(" · "));
}

/** Return the number of tasks of an array that have not finished. */
export function activeTasks(job: IJob): number {
  const going = Object.entries(job.tasks ?? {}).filter(([state]) => !isFinished(state));
  return going.reduce((sum, [, each]) => sum + each, 0);
}

/** Return the consequence of cancelling a job, and the number of its tasks that are affected. */
export function cancelBody(trans: TranslationBundle, job: IJob): string {
  const lost = trans.__("Unsaved output of this job is lost.");
  const count = activeTasks(job);
  if (count === 0) {
    return lost;
  }
  const tasks = trans._n(
    "This array has %1 unfinished task, which is cancelled.",
    "This array has %1 unfinished tasks, which are cancelled.",
    count,
  );
  return `${tasks} ${lost}`;
}

/** Return the times of submission, start and end of a job, a line each. */
export function jobTimes(trans: TranslationBundle, job: IJob): string {
  const lines = [];
  if (job.submit_time !== null) {
    lines.push(trans.__("Submitted %1", formatTime(job.submit_time)));
  }
  if (job.start_time !== null && stateKind(job.state) !== "pending") {
    lines.push(trans.__("Started %1", formatTime(job.start_time)));
  }
  if (job.end_time !== null && isFinished(job.state)) {
    lines.push(trans.__("Ended %1", formatTime(job.end_time)));
  }
  return lines.join("\n");
}

/** Return the running job that has what a waiting job needs and is expected to end next; empty where it is not known. */
export function nextEndText(trans: TranslationBundle, { next_end: next }: IJob): string {
  if (!next) {
    return "";
  }
  const time = formatMinute(next.time);
  return next.own
    ? trans.__("Next expected to end: %1 (yours), by %2.", next.name || next.id, time)
    : trans.__("Next expected to end: job %1 of another user, by %2.", next.id, time);
}

/** Return the next step without the command of a terminal for which there is a button. */
function nextStep(job: IJob): string {
  const step = job.next_step;
  return isAllowed("release", job) ? step.replace(/ with scontrol release \S+\.$/, ".") : step;
}

/**
 * Return the reason why a job waits or how it ended, since when its state is unknown, and the next step: a line each.
 */
export function jobReason(trans: TranslationBundle, job: IJob): string[] {
  const lines = isReleased(job)
    ? releaseReason(trans, job)
    : [reasonText(trans, job), nextStep(job)];
  if (!job.known && job.unknown_since !== null) {
    const since = formatClock(job.unknown_since);
    lines.unshift(trans.__("State unknown since %1.", since));
  }
  return lines.filter((line) => line && line !== "None");
}
