/** What a notice says. Everything here is text, never markup. */
import type { TranslationBundle } from "@jupyterlab/translation";

import type { IJob } from "../common/api/objects";
import { stateKind } from "../common/job_states";
import { jobName, jobReason } from "../common/labels";
import { timeLeft } from "../common/time_limit";
import { lossText } from "../kernels/labels";
import type { INotice, NoticeKind } from "./model";

/** As many changes are told one by one; more of them in one line. */
const ONE_BY_ONE = 3;

/** A notice as it is shown. */
export interface ITold {
  readonly text: string;
  readonly type: "info" | "success" | "warning" | "error";
  /** What its button opens; null: the jobs. */
  readonly job: IJob | null;
  /** Of a log-in, which a dialog asks for: it is told by the browser only. */
  readonly isAsked: boolean;
  /** Of the allocation of a kernel that is near its end: another one may be asked for. */
  readonly isNearEnd: boolean;
}

/** Return what is said of some changes: a few one by one, many by their number. */
export function toldOf(
  trans: TranslationBundle,
  notices: readonly INotice[],
  now: number,
): readonly ITold[] {
  const asked = notices.filter(({ prompt }) => prompt !== null);
  const changes = notices.filter(({ prompt }) => prompt === null);
  const one = (notice: INotice): ITold => ({
    text: noticeText(trans, notice, now),
    type: typeOf([notice]),
    job: notice.job,
    isAsked: notice.prompt !== null,
    isNearEnd: notice.kind === "near-limit" && Boolean(notice.job?.kernel),
  });
  const many = {
    ...{ text: countText(trans, changes), type: typeOf(changes), job: null },
    ...{ isAsked: false, isNearEnd: false },
  };
  return [...asked.map(one), ...(changes.length > ONE_BY_ONE ? [many] : changes.map(one))];
}

/** Return what a job is called in a sentence. */
function called(trans: TranslationBundle, job: IJob): string {
  const name = jobName(job);
  const short = name.length > 40 ? `${name.slice(0, 40)}…` : name;
  return job.id === null || name === ""
    ? trans.__("Job %1", job.id ?? short)
    : trans.__("Job %1 (%2)", job.id, short);
}

function noticeText(trans: TranslationBundle, { kind, job, prompt }: INotice, now: number): string {
  if (job === null) {
    return trans.__("%1 asks for the log-in to %2.", prompt?.host ?? "", prompt?.cluster ?? "");
  }
  const name = called(trans, job);
  switch (kind) {
    case "started":
      return job.nodes === null
        ? trans.__("%1 has started.", name)
        : trans.__("%1 has started on %2.", name, job.nodes);
    case "near-limit": {
      const minutes = Math.ceil((timeLeft(job, now) ?? 0) / 60);
      const text = trans._n(
        "%2 reaches its time limit in %1 minute.",
        "%2 reaches its time limit in %1 minutes.",
        minutes,
        name,
      );
      return job.kernel ? `${text} ${lossText(trans)}` : text;
    }
    case "failed":
      return [trans.__("%1 has failed: %2.", name, job.state), ...jobReason(trans, job)].join(" ");
    default:
      return stateKind(job.state) === "cancelled" && !job.released
        ? trans.__("%1 was cancelled.", name)
        : trans.__("%1 has ended.", name);
  }
}

/** Return how many changes there are of which kind, what matters most first. */
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

function typeOf(notices: readonly INotice[]): ITold["type"] {
  const kinds = new Set(notices.map(({ kind }) => kind));
  if (kinds.has("failed")) {
    return "error";
  }
  if (kinds.has("near-limit") || kinds.has("log-in")) {
    return "warning";
  }
  return kinds.has("ended") ? "success" : "info";
}
