/** What stands at the top of a job's page: how it is, why, what to do next, and what became of it so far. */
import type { TranslationBundle } from "@jupyterlab/translation";
import * as React from "react";

import { actName } from "../../act-words";
import type { IJobDetail } from "../../job-api";
import type { JobPage } from "../../job-page";
import { estimate, moments, reasonLines, timeLeft, when } from "../../job-words";
import { isAllowed, isCancellable, isReleased, stateKind } from "../../states";
import type { Act } from "../../tokens";
import { jobName, jobState, jobTime, problemText } from "../../words";
import { useTick } from "../tick";

/** What a person can do with a job. */
export interface IJobActs {
  readonly cancel: (page: JobPage) => void;
  /** Hold, release or requeue it. */
  readonly act: (act: Act, job: IJobDetail) => void;
  readonly resubmit: (page: JobPage) => void;
  /** Show the page of a session, where there are such. */
  readonly session: ((job: IJobDetail) => void) | null;
  /** Open the page of another job of the same cluster. */
  readonly open: (job: string) => void;
  /** Copy the address of the page. */
  readonly link: (page: JobPage) => void;
}

interface IHeadProps {
  readonly page: JobPage;
  readonly job: IJobDetail;
  readonly trans: TranslationBundle;
  readonly acts: IJobActs;
}

const OTHER_ACTS: readonly Act[] = ["hold", "release", "requeue"];

/** Only what was submitted here, and has a text of its own, can be submitted again. */
function isRepeatable({ key, kind }: IJobDetail): boolean {
  return key !== null && (kind === "script" || kind === "python");
}

function Actions({ page, job, trans, acts }: IHeadProps): React.ReactElement {
  const { session } = acts;
  return (
    <span className="jp-Slurm-jobActs">
      {job.session && session !== null && (
        <button
          type="button"
          className="jp-mod-styled jp-mod-accept"
          onClick={() => {
            session(job);
          }}
        >
          {trans.__("Show the session")}
        </button>
      )}
      {isRepeatable(job) && (
        <button
          type="button"
          className="jp-mod-styled jp-mod-minimal"
          disabled={page.isResubmitting}
          onClick={() => {
            acts.resubmit(page);
          }}
        >
          {page.isResubmitting ? trans.__("Submitting…") : trans.__("Submit again")}
        </button>
      )}
      {OTHER_ACTS.filter((act) => isAllowed(act, job)).map((act) => (
        <button
          key={act}
          type="button"
          className="jp-mod-styled jp-mod-minimal"
          disabled={page.jobs.acting(job) !== null}
          onClick={() => {
            acts.act(act, job);
          }}
        >
          {actName(trans, act)}
        </button>
      ))}
      {isCancellable(job.state) && (
        <button
          type="button"
          className="jp-mod-styled jp-mod-minimal"
          disabled={page.isCancelling}
          onClick={() => {
            acts.cancel(page);
          }}
        >
          {page.isCancelling ? trans.__("Cancelling…") : trans.__("Cancel")}
        </button>
      )}
      <button
        type="button"
        className="jp-mod-styled jp-mod-minimal"
        onClick={() => {
          page.refresh();
        }}
      >
        {trans.__("Refresh")}
      </button>
      <button
        type="button"
        className="jp-mod-styled jp-mod-minimal"
        onClick={() => {
          acts.link(page);
        }}
      >
        {trans.__("Copy link")}
      </button>
    </span>
  );
}

function TimeLeft({ page, job, trans }: Omit<IHeadProps, "acts">): React.ReactElement | null {
  const left = timeLeft(trans, job, page.jobs.now);
  return left === null ? null : (
    <p className="jp-Slurm-timeLeft" data-near={left.warning !== ""}>
      <progress aria-label={trans.__("Time used")} value={left.used} /> <span>{left.text}</span>
      {/* Without the time that is left, which would be read aloud anew with each second. */}
      <span role="alert">{left.warning}</span>
    </p>
  );
}

function Timeline({ page, job, trans }: Omit<IHeadProps, "acts">): React.ReactElement {
  return (
    <ol className="jp-Slurm-timeline" aria-label={trans.__("What became of it")}>
      {moments(trans, job, page.seen).map(({ what, detail, time, kind }, index) => (
        <li key={index} data-kind={kind}>
          <span className="jp-Slurm-badge">{what}</span>
          <span className="jp-Slurm-aside">{time === null ? "" : when(time)}</span>
          <span className="jp-Slurm-detail">{detail}</span>
        </li>
      ))}
    </ol>
  );
}

export function Head(props: IHeadProps): React.ReactElement {
  const { page, job, trans } = props;
  useTick();
  const kind = stateKind(job.state);
  const time = jobTime(job, page.jobs.now);
  const { problem, actProblem } = page;
  return (
    <div className="jp-Slurm-jobHead">
      <div className="jp-Slurm-jobTitle">
        <h2 title={jobName(job)}>{jobName(job) || trans.__("Job %1", job.id ?? "")}</h2>
        <Actions {...props} />
      </div>
      <p data-kind={kind === "cancelled" && isReleased(job) ? "done" : kind} data-known={job.known}>
        <span className="jp-Slurm-badge jp-Slurm-state" aria-live="polite">
          {jobState(trans, job)}
        </span>{" "}
        <span className="jp-Slurm-aside">
          {[job.id ? trans.__("job %1", job.id) : trans.__("being submitted"), job.nodes, time]
            .filter(Boolean)
            .join(" · ")}
        </span>
      </p>
      {[...reasonLines(trans, job), estimate(trans, job, page.jobs.now)]
        .filter((line) => line !== "")
        .map((line, index) => (
          <p key={line} className={index > 0 ? "jp-Slurm-aside" : "jp-Slurm-why"}>
            {line}
          </p>
        ))}
      {[...(job.warnings ?? []), ...(job.doubts ?? [])].map((warning) => (
        <p key={warning} className="jp-Slurm-doubt">
          {warning}
        </p>
      ))}
      <TimeLeft {...{ page, job, trans }} />
      {[...new Set([problem, actProblem, page.jobs.problem])].map(
        (each, index) =>
          each && (
            <p key={index} role="alert" className="jp-Slurm-problem">
              {problemText(trans, each)}
            </p>
          ),
      )}
      <Timeline {...{ page, job, trans }} />
    </div>
  );
}
