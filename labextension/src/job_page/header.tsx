/** Header of the page of a job: its state, the reason, the next step, and its timeline. */
import type { TranslationBundle } from "@jupyterlab/translation";
import { linkIcon, refreshIcon, runIcon } from "@jupyterlab/ui-components";
import * as React from "react";

import { ACTS, type Act, type IJob } from "../common/api/objects";
import { countsText, failedTaskReference } from "../common/array_labels";
import { formatTime } from "../common/format";
import { isAllowed, isCancellable, isFinished, isReleased, stateKind } from "../common/job_states";
import { jobCluster, jobName, jobState, jobTime, problemText } from "../common/labels";
import { HandoverButton } from "../common/jupyterlab/focus";
import { ToolbarButton } from "../common/jupyterlab/toolbar_button";
import { usePeriodicRedraw } from "../common/jupyterlab/periodic_redraw";
import { ACT_ICONS } from "../jobs/actions/act_icons";
import { actName } from "../jobs/actions/action_labels";
import { estimate, reasonLines, remainingTime, timelineEvents } from "./labels";
import type { JobPage } from "./model";

/** Actions of the user on a job. */
export interface IJobActs {
  readonly cancel: (page: JobPage) => void;
  /** Hold, release or requeue the job. */
  readonly act: (act: Act, job: IJob) => void;
  readonly resubmit: (page: JobPage) => void;
  /** Show the page of a session, where there are sessions. */
  readonly session: ((job: IJob) => void) | null;
  /** Open the page of another job of the same cluster. */
  readonly open: (job: string) => void;
  /** Copy the address of the page. */
  readonly link: (page: JobPage) => void;
}

interface IHeaderProps {
  readonly page: JobPage;
  readonly job: IJob;
  readonly trans: TranslationBundle;
  readonly acts: IJobActs;
}

const OTHER_ACTS = ACTS.filter((act) => act !== "cancel");

/** The action that the person most likely wants. */
function MainButton({
  label,
  act,
  isOff = false,
}: {
  readonly label: string;
  readonly act: () => void;
  readonly isOff?: boolean;
}): React.ReactElement {
  return (
    <HandoverButton className="jp-mod-styled jp-mod-accept" {...{ act, isOff }}>
      {label}
    </HandoverButton>
  );
}

function SubmitAgain({ page, job, trans, acts }: IHeaderProps): React.ReactElement {
  const { isForeign, isResubmitting } = page;
  const repeat = isForeign ? trans.__("Edit and resubmit…") : trans.__("Submit again");
  const props = {
    label: isResubmitting ? trans.__("Submitting…") : repeat,
    isOff: isResubmitting,
    act: () => {
      acts.resubmit(page);
    },
  };
  return isFinished(job.state) ? (
    <MainButton {...props} />
  ) : (
    <ToolbarButton icon={runIcon} isNamed {...props} />
  );
}

function Actions(props: IHeaderProps): React.ReactElement {
  const { page, job, trans, acts } = props;
  const { session, act, cancel, link } = acts;
  const { isRepeatable, isForeign, isCancelling, jobs } = page;
  return (
    <span className="jp-Slurm-jobActs">
      {job.session && session !== null && (
        <MainButton
          label={trans.__("Show the session")}
          act={() => {
            session(job);
          }}
        />
      )}
      {(isRepeatable || isForeign) && <SubmitAgain {...props} />}
      {OTHER_ACTS.filter((each) => isAllowed(each, job)).map((each) => (
        <ToolbarButton
          key={each}
          icon={ACT_ICONS[each]}
          label={actName(trans, each)}
          isNamed
          isOff={jobs.pendingAct(job) !== null}
          act={() => {
            act(each, job);
          }}
        />
      ))}
      <ToolbarButton
        icon={refreshIcon}
        label={trans.__("Refresh")}
        act={() => {
          page.refresh();
        }}
      />
      <ToolbarButton
        icon={linkIcon}
        label={trans.__("Copy link")}
        act={() => {
          link(page);
        }}
      />
      {isCancellable(job.state) && (
        <span className="jp-Slurm-apart">
          <ToolbarButton
            icon={ACT_ICONS.cancel}
            label={isCancelling ? trans.__("Cancelling…") : trans.__("Cancel")}
            isNamed
            isOff={isCancelling}
            act={() => {
              cancel(page);
            }}
          />
        </span>
      )}
    </span>
  );
}

function RemainingTime({
  page,
  job,
  trans,
}: Omit<IHeaderProps, "acts">): React.ReactElement | null {
  const remaining = remainingTime(trans, job, page.jobs.now);
  return remaining === null ? null : (
    <p className="jp-Slurm-timeLeft" data-near={remaining.warning !== ""}>
      <progress aria-label={trans.__("Time used")} value={remaining.used} />{" "}
      <span>{remaining.text}</span>
      {/** The state without the remaining time, which a screen reader would read again each second. */}
      <span role="alert">{remaining.warning}</span>
    </p>
  );
}

function Timeline({ page, job, trans }: Omit<IHeaderProps, "acts">): React.ReactElement {
  return (
    <ol className="jp-Slurm-timeline" aria-label={trans.__("History of the job")}>
      {timelineEvents(trans, job, page.observedStates).map(
        ({ what, detail, time, kind }, index) => (
          <li key={index} data-kind={kind}>
            <span className="jp-Slurm-badge">{what}</span>
            <span className="jp-Slurm-aside">{time === null ? "" : formatTime(time)}</span>
            <span className="jp-Slurm-detail">{detail}</span>
          </li>
        ),
      )}
    </ol>
  );
}

export function Header(props: IHeaderProps): React.ReactElement {
  const { page, job, trans, acts } = props;
  usePeriodicRedraw();
  const failedTask = failedTaskReference(job);
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
          {[
            job.id ? trans.__("job %1", job.id) : trans.__("being submitted"),
            jobCluster(page.jobs, job),
            countsText(trans, job),
            job.nodes,
            time,
          ]
            .filter(Boolean)
            .join(" · ")}
        </span>
      </p>
      {[estimate(trans, job, page.jobs.now), ...reasonLines(trans, job, page.hasOutput)]
        .filter((line) => line !== "")
        .map((line, index) => (
          <p key={line} className={index > 0 ? "jp-Slurm-aside" : "jp-Slurm-why"}>
            {line}
          </p>
        ))}
      {failedTask !== null && (
        <p>
          <button
            type="button"
            className="jp-Slurm-link"
            onClick={() => {
              acts.open(failedTask);
            }}
          >
            {trans.__("Show task %1", job.failed_task?.task)}
          </button>
        </p>
      )}
      {[...(job.warnings ?? []), ...(job.doubts ?? [])].map((warning) => (
        <p key={warning} className="jp-Slurm-doubt">
          {warning}
        </p>
      ))}
      <RemainingTime {...{ page, job, trans }} />
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
