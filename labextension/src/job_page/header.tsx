/** What stands at the top of a job's page: how it is, why, what to do next, and what became of it so far. */
import type { TranslationBundle } from "@jupyterlab/translation";
import * as React from "react";

import type { IJob } from "../common/api/objects";
import { ACTS, type Act } from "../common/api/objects";
import { isAllowed, isCancellable, isReleased, stateKind } from "../common/job_states";
import { jobName, jobState, jobTime, problemText } from "../common/labels";
import { useTick } from "../common/periodic_redraw";
import { actName } from "../jobs/action_labels";
import { estimate, moments, reasonLines, timeLeft, when } from "./labels";
import type { JobPage } from "./model";

/** What a person can do with a job. */
export interface IJobActs {
  readonly cancel: (page: JobPage) => void;
  /** Hold, release or requeue it. */
  readonly act: (act: Act, job: IJob) => void;
  readonly resubmit: (page: JobPage) => void;
  /** Show the page of a session, where there are such. */
  readonly session: ((job: IJob) => void) | null;
  /** Open the page of another job of the same cluster. */
  readonly open: (job: string) => void;
  /** Copy the address of the page. */
  readonly link: (page: JobPage) => void;
}

interface IHeadProps {
  readonly page: JobPage;
  readonly job: IJob;
  readonly trans: TranslationBundle;
  readonly acts: IJobActs;
}

const OTHER_ACTS = ACTS.filter((act) => act !== "cancel");

function Button(props: {
  readonly label: string;
  readonly act: () => void;
  readonly isOff?: boolean;
  /** The one that is wanted most. */
  readonly isMain?: boolean;
}): React.ReactElement {
  const { label, act, isOff = false, isMain = false } = props;
  return (
    <button
      type="button"
      className={`jp-mod-styled ${isMain ? "jp-mod-accept" : "jp-mod-minimal"}`}
      disabled={isOff}
      onClick={act}
    >
      {label}
    </button>
  );
}

function Actions({ page, job, trans, acts }: IHeadProps): React.ReactElement {
  const { session, act, cancel, resubmit, link } = acts;
  const { isRepeatable, isResubmitting, isCancelling, jobs } = page;
  const again = isResubmitting ? trans.__("Submitting…") : trans.__("Submit again");
  const ending = isCancelling ? trans.__("Cancelling…") : trans.__("Cancel");
  return (
    <span className="jp-Slurm-jobActs">
      {job.session && session !== null && (
        <Button
          label={trans.__("Show the session")}
          act={() => {
            session(job);
          }}
          isMain
        />
      )}
      {isRepeatable && (
        <Button
          label={again}
          act={() => {
            resubmit(page);
          }}
          isOff={isResubmitting}
        />
      )}
      {OTHER_ACTS.filter((each) => isAllowed(each, job)).map((each) => (
        <Button
          key={each}
          label={actName(trans, each)}
          act={() => {
            act(each, job);
          }}
          isOff={jobs.acting(job) !== null}
        />
      ))}
      {isCancellable(job.state) && (
        <Button
          label={ending}
          act={() => {
            cancel(page);
          }}
          isOff={isCancelling}
        />
      )}
      <Button
        label={trans.__("Refresh")}
        act={() => {
          page.refresh();
        }}
      />
      <Button
        label={trans.__("Copy link")}
        act={() => {
          link(page);
        }}
      />
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
