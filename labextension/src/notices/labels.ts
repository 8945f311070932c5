/** Texts of notifications. All values are text, never markup. */
import type { TranslationBundle } from "@jupyterlab/translation";

import type { IJob } from "../common/api/objects";
import { failedTasksText } from "../common/array_labels";
import { stateKind } from "../common/job_states";
import { jobName, jobReason } from "../common/labels";
import { remainingSeconds } from "../common/time_limit";
import { lossText } from "../kernels/labels";
import type { INotice, NoticeKind } from "./model";

/** Largest number of changes with a notification each; more of them are summed up in one. */
const MAX_SEPARATE = 3;

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
}

/** Return the notifications for some changes: a few one by one, many as their number. */
export function describeNotices(
  trans: TranslationBundle,
  notices: readonly INotice[],
  now: number,
): readonly INotification[] {
  const logins = notices.filter(({ prompt }) => prompt !== null);
  const changes = notices.filter(({ prompt }) => prompt === null);
  const one = (notice: INotice): INotification => ({
    text: noticeText(trans, notice, now),
    type: typeOf([notice]),
    job: notice.job,
    task: notice.kind === "failed" ? (notice.job?.failed_task?.task ?? null) : null,
    isLogin: notice.prompt !== null,
    isNearEnd: notice.kind === "near-limit" && Boolean(notice.job?.kernel),
  });
  const many = {
    ...{ text: countText(trans, changes), type: typeOf(changes), job: null },
    ...{ isLogin: false, isNearEnd: false, task: null },
  };
  return [...logins.map(one), ...(changes.length > MAX_SEPARATE ? [many] : changes.map(one))];
}

/** Return the name of a job within a sentence. */
function jobPhrase(trans: TranslationBundle, job: IJob): string {
  const name = jobName(job);
  const short = name.length > 40 ? `${name.slice(0, 40)}…` : name;
  return job.id === null || name === ""
    ? trans.__("Job %1", job.id ?? short)
    : trans.__("Job %1 (%2)", job.id, short);
}

function noticeText(trans: TranslationBundle, { kind, job, prompt }: INotice, now: number): string {
  if (job === null) {
    return trans.__("%1 asks for the login to %2.", prompt?.host ?? "", prompt?.cluster ?? "");
  }
  const name = jobPhrase(trans, job);
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
    case "failed": {
      const tasks = failedTasksText(trans, job);
      if (tasks !== "") {
        return trans.__("%1: %2", jobName(job) || name, tasks);
      }
      return [trans.__("%1 failed: %2.", name, job.state), ...jobReason(trans, job)].join(" ");
    }
    default:
      return stateKind(job.state) === "cancelled" && !job.released
        ? trans.__("%1 was cancelled.", name)
        : trans.__("%1 has ended.", name);
  }
}

/** Return the number of changes of each kind, the most important kind first. */
function countText(trans: TranslationBundle, notices: readonly INotice[]): string {
  const count = (kind: NoticeKind): number => notices.filter((each) => each.kind === kind).length;
  const [failed, ended, started] = [count("failed"), count("ended"), count("started")];
  const near = count("near-limit");
  return [
    failed > 0 ? trans._n("%1 job has failed", "%1 jobs have failed", failed) : "",
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
  return kinds.has("ended") ? "success" : "info";
}
