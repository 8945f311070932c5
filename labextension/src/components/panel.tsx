/** The table of one's own jobs. */
import { ReactWidget, UseSignal } from "@jupyterlab/ui-components";
import type { TranslationBundle } from "@jupyterlab/translation";
import * as React from "react";

import { isCancellable, isFinished, isReleased, stateKind } from "../states";
import type { ISessionsModel, SessionJob } from "../sessions";
import type { ICluster, IJob, IJobsModel } from "../tokens";
import {
  connectionText,
  jobName,
  jobReason,
  jobState,
  jobTasks,
  jobTime,
  jobTimes,
  silentCluster,
} from "../words";
import { isReached } from "../records";
import { Clusters } from "./clusters";
import { AllResources } from "./resources";
import { Sessions } from "./session";
import { useTick } from "./tick";

/** A browser draws no more rows than this at ease. */
const ROWS = 1_000;

interface IRowProps {
  readonly job: IJob;
  readonly model: IJobsModel;
  readonly trans: TranslationBundle;
  readonly cancel: (job: IJob) => void;
}

function Row({ job, model, trans, cancel }: IRowProps): React.ReactElement {
  const name = jobName(job);
  const cancelling = model.isCancelling(job);
  const kind = stateKind(job.state);
  return (
    <tr data-kind={kind === "cancelled" && isReleased(job) ? "done" : kind} data-known={job.known}>
      <td className="jp-Slurm-id">
        <div>{job.id ?? trans.__("being submitted")}</div>
        <div className="jp-Slurm-aside">{jobTasks(trans, job)}</div>
        {model.clusters.length > 1 && <div className="jp-Slurm-aside">{job.cluster}</div>}
      </td>
      <td className="jp-Slurm-name">
        <div title={name}>{name}</div>
      </td>
      <td className="jp-Slurm-state">
        <span className="jp-Slurm-badge">{jobState(trans, job)}</span>
      </td>
      <td className="jp-Slurm-reason">
        {jobReason(trans, job).map((line, index) => (
          <div key={line} className={index > 0 ? "jp-Slurm-aside" : undefined}>
            {line}
          </div>
        ))}
      </td>
      <td>{job.partition}</td>
      <td className="jp-Slurm-nodes">{job.nodes}</td>
      <td className="jp-Slurm-time" title={jobTimes(trans, job)}>
        {jobTime(job, model.now)}
      </td>
      <td className="jp-Slurm-action">
        {isCancellable(job.state) && (
          <button
            type="button"
            className="jp-mod-styled jp-mod-minimal"
            disabled={cancelling}
            aria-label={trans.__("Cancel job %1", job.id ?? name)}
            onClick={() => {
              cancel(job);
            }}
          >
            {cancelling ? trans.__("Cancelling…") : trans.__("Cancel")}
          </button>
        )}
      </td>
    </tr>
  );
}

/** What a person can do here. */
export interface IActs {
  readonly cancel: (job: IJob) => void;
  readonly connect: (cluster: ICluster) => void;
  readonly disconnect: (cluster: ICluster) => void;
}

/** The sessions above the jobs, and what a person can do with one. */
export interface IWithSessions {
  readonly model: ISessionsModel;
  readonly stop: (job: SessionJob) => void;
  readonly show: (job: SessionJob) => void;
}

interface IPanelProps {
  readonly model: IJobsModel;
  readonly sessions: IWithSessions | null;
  readonly trans: TranslationBundle;
  readonly acts: IActs;
}

interface ITableProps {
  readonly model: IJobsModel;
  readonly trans: TranslationBundle;
  readonly cancel: (job: IJob) => void;
  readonly jobs: readonly IJob[];
  /** Whether there are jobs that are not among these. */
  readonly older: boolean;
}

function Table({ model, trans, cancel, jobs, older }: ITableProps): React.ReactElement {
  useTick();
  if (jobs.length === 0) {
    return <p className="jp-Slurm-empty">{trans.__("No jobs.")}</p>;
  }
  const heads = [
    trans.__("Job"),
    trans.__("Name"),
    trans.__("State"),
    trans.__("Reason"),
    trans.__("Partition"),
    trans.__("Nodes"),
    trans.__("Time"),
    "",
  ];
  return (
    <>
      <table>
        <thead>
          <tr>
            {heads.map((head) => (
              <th key={head} scope="col">
                {head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {jobs.slice(0, ROWS).map((job) => (
            <Row
              key={`${job.cluster}/${job.key ?? ""}/${job.id ?? ""}`}
              {...{ job, model, trans, cancel }}
            />
          ))}
        </tbody>
      </table>
      {(older || jobs.length > ROWS) && (
        <p className="jp-Slurm-aside">{trans.__("Older ones: jupyter slurm jobs --all")}</p>
      )}
    </>
  );
}

function Panel({ model, sessions, trans, acts }: IPanelProps): React.ReactElement {
  const [hidden, setHidden] = React.useState(false);
  const going = model.jobs.filter(({ state }) => !isFinished(state));
  const finished = model.jobs.length - going.length;
  return (
    <>
      <header>
        <h2>{trans.__("My Slurm jobs")}</h2>
        <span>
          <button
            type="button"
            className="jp-mod-styled jp-mod-minimal"
            onClick={() => {
              setHidden(!hidden);
            }}
          >
            {hidden ? trans.__("Show finished (%1)", finished) : trans.__("Hide finished")}
          </button>
          <button
            type="button"
            className="jp-mod-styled jp-mod-minimal"
            onClick={() => {
              model.refresh();
            }}
          >
            {trans.__("Refresh")}
          </button>
        </span>
      </header>
      <p
        className="jp-Slurm-notice"
        role="status"
        data-problem={model.problem !== null || silentCluster(model) !== undefined}
      >
        {connectionText(trans, model)}
      </p>
      <Clusters {...{ model, trans }} connect={acts.connect} disconnect={acts.disconnect} />
      {sessions !== null && <Sessions {...sessions} trans={trans} />}
      {sessions?.model.resources && (
        <AllResources
          model={sessions.model.resources}
          clusters={model.clusters.filter(isReached)}
          trans={trans}
        />
      )}
      <Table
        {...{ model, trans }}
        cancel={acts.cancel}
        jobs={hidden ? going : model.jobs}
        older={model.older && !hidden}
      />
    </>
  );
}

export class JobsPanel extends ReactWidget {
  constructor(
    private readonly _model: IJobsModel,
    private readonly _trans: TranslationBundle,
    private readonly _acts: IActs,
    private readonly _sessions: IWithSessions | null = null,
  ) {
    super();
    this.addClass("jp-Slurm-panel");
  }

  protected override render(): React.ReactElement {
    const panel = (): React.ReactElement => (
      <Panel model={this._model} sessions={this._sessions} trans={this._trans} acts={this._acts} />
    );
    return this._sessions === null ? (
      <UseSignal signal={this._model.changed}>{panel}</UseSignal>
    ) : (
      <UseSignal signal={this._sessions.model.changed}>{panel}</UseSignal>
    );
  }
}
