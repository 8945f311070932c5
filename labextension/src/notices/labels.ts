/** Texts of notifications. All values are text, never markup. */
import type { TranslationBundle } from "@jupyterlab/translation";

import type { IJob } from "../common/api/objects";
import { failedTasksText } from "../common/array_labels";
import { isReleased, stateKind } from "../common/job_states";
import { jobName } from "../common/labels";
import { translateReason } from "../common/reason_texts";
import { remainingSeconds } from "../common/time_limit";
import { lossText } from "../kernels/labels";
import type { INotice, NoticeKind } from "./model";

/** Largest number of changes with a notification each; more of them are summed up in one. */
const MAX_SEPARATE = 3;
const MAX_NAME_CHARS = 40;

/** A notification as it is shown. */
export interface INotification {
  readonly text: string;
  readonly type: "info" | "success" | "warning" | "error";
  /** The job that its button opens; null: the panel. */
  readonly job: IJob | null;
  /** The failed task of an array, which its button opens; null: the job. */
  readonly task: number | null;
  /** Whether it is about a login, for which a dialog asks: only the browser shows it. */
  readonly isLogin: boolean;
  /** Whether the allocation of a kernel is near its end, so that another one may be requested. */
  readonly isNearEnd: boolean;
  /** What its first button shows: the log of what has failed, a session that is ready. */
  readonly shows: "job" | "log" | "session";
}

/** Return the failures that have a notification of their own. */
export function separateFailures(notices: readonly INotice[]): readonly IJob[] {
  const changes = notices.filter(({ prompt }) => prompt === null);
  return changes.length > MAX_SEPARATE
    ? []
    : changes.flatMap(({ kind, job }) => (kind === "failed" && job !== null ? [job] : []));
}

/**
 * Return the notifications for some changes: a few one by one, many as their number.
 *
 * @param errors - The last line of the error of a job, where it is known.
 * @param clusterOf - Returns the name of the cluster of a job; empty where there is only one.
 */
export function describeNotices(
  trans: TranslationBundle,
  notices: readonly INotice[],
  now: number,
  errors: ReadonlyMap<IJob, string> = new Map(),
  clusterOf: (job: IJob) => string = () => "",
): readonly INotification[] {
  const logins = notices.filter(({ prompt }) => prompt !== null);
  const changes = notices.filter(({ prompt }) => prompt === null);
  const one = (notice: INotice): INotification => ({
    text: noticeText(trans, notice, now, errors, clusterOf),
    type: typeOf([notice]),
    job: notice.job,
    task: notice.kind === "failed" ? (notice.job?.failed_task?.task ?? null) : null,
    isLogin: notice.prompt !== null,
    isNearEnd: notice.kind === "near-limit" && Boolean(notice.job?.kernel),
    shows: notice.kind === "failed" ? "log" : notice.kind === "ready" ? "session" : "job",
  });
  const many = {
    ...{ text: countText(trans, changes), type: typeOf(changes), job: null },
    ...{ isLogin: false, isNearEnd: false, task: null, shows: "job" as const },
  };
  return [...logins.map(one), ...(changes.length > MAX_SEPARATE ? [many] : changes.map(one))];
}

/** Return the label of the button of a notification. */
export function openLabel(
  trans: TranslationBundle,
  { job, task, shows }: Pick<INotification, "job" | "task" | "shows">,
): string {
  if (job === null) {
    return trans.__("Show jobs");
  }
  if (task !== null) {
    return trans.__("Show task %1", task);
  }
  const labels = {
    log: trans.__("Show log"),
    session: trans.__("Open"),
    job: trans.__("Show job"),
  };
  return labels[shows];
}

/** Return the name of a job within a sentence, with its cluster where there are several. */
function jobPhrase(trans: TranslationBundle, job: IJob, cluster: string): string {
  const phrase = namePhrase(trans, job);
  return cluster === "" ? phrase : trans.__("%1 on %2", phrase, cluster);
}

/** Return the name of a job; of one without a name, its number. */
function namePhrase(trans: TranslationBundle, job: IJob): string {
  const name = jobName(job);
  const short = name.length > MAX_NAME_CHARS ? `${name.slice(0, MAX_NAME_CHARS)}…` : name;
  if (job.session) {
    return trans.__("Session %1", short || (job.id ?? ""));
  }
  return short || trans.__("Job %1", job.id ?? "");
}

/** Return how a job failed: its exit code or signal, else the state that Slurm gave it. */
function failureText(trans: TranslationBundle, job: IJob): string {
  if (job.signal && job.state === "FAILED") {
    return trans.__("signal %1", job.signal);
  }
  return job.exit_code && job.state === "FAILED"
    ? trans.__("exit code %1", job.exit_code)
    : job.state;
}

function failedText(trans: TranslationBundle, job: IJob, name: string, error: string): string {
  // The sentence on an exit code says no more than the code. Other ends have a cause that no output shows.
  const isPlain = job.state === "FAILED" && Boolean(job.exit_code);
  const why = isPlain ? error : translateReason(trans, job.reason_text) || error;
  const what = [name, failureText(trans, job)] as const;
  return why === ""
    ? trans.__("%1 failed (%2).", ...what)
    : trans.__("%1 failed (%2): %3", ...what, why);
}

function noticeText(
  trans: TranslationBundle,
  { kind, job, prompt }: INotice,
  now: number,
  errors: ReadonlyMap<IJob, string>,
  clusterOf: (job: IJob) => string,
): string {
  if (job === null) {
    return trans.__("%1 asks for the login to %2.", prompt?.host ?? "", prompt?.cluster ?? "");
  }
  const name = jobPhrase(trans, job, clusterOf(job));
  switch (kind) {
    case "started":
      return job.nodes === null
        ? trans.__("%1 has started.", name)
        : trans.__("%1 has started on %2.", name, job.nodes);
    case "near-limit": {
      const minutes = Math.ceil((remainingSeconds(job, now) ?? 0) / 60);
      const text = trans._n(
        "%2 reaches its time limit in %1 minute.",
        "%2 reaches its time limit in %1 minutes.",
        minutes,
        name,
      );
      return job.kernel ? `${text} ${lossText(trans)}` : text;
    }
    case "ready":
      return trans.__("%1 is ready.", name);
    case "failed": {
      const tasks = failedTasksText(trans, job);
      return tasks === ""
        ? failedText(trans, job, name, errors.get(job) ?? "")
        : trans.__("%1: %2", name, tasks);
    }
    default:
      return stateKind(job.state) === "cancelled" && !isReleased(job)
        ? trans.__("%1 was cancelled.", name)
        : trans.__("%1 has ended.", name);
  }
}

/** Return the number of changes of each kind, the most important kind first. */
function countText(trans: TranslationBundle, notices: readonly INotice[]): string {
  const count = (kind: NoticeKind): number => notices.filter((each) => each.kind === kind).length;
  const [failed, ended, started] = [count("failed"), count("ended"), count("started")];
  const [ready, near] = [count("ready"), count("near-limit")];
  return [
    failed > 0 ? trans._n("%1 job has failed", "%1 jobs have failed", failed) : "",
    ready > 0 ? trans._n("%1 session is ready", "%1 sessions are ready", ready) : "",
    near > 0
      ? trans._n("%1 job is near its time limit", "%1 jobs are near their time limits", near)
      : "",
    ended > 0 ? trans._n("%1 job has ended", "%1 jobs have ended", ended) : "",
    started > 0 ? trans._n("%1 job has started", "%1 jobs have started", started) : "",
  ]
    .filter((part) => part !== "")
    .join(", ");
}

function typeOf(notices: readonly INotice[]): INotification["type"] {
  const kinds = new Set(notices.map(({ kind }) => kind));
  if (kinds.has("failed")) {
    return "error";
  }
  if (kinds.has("near-limit") || kinds.has("log-in")) {
    return "warning";
  }
  return kinds.has("ended") || kinds.has("ready") ? "success" : "info";
}
