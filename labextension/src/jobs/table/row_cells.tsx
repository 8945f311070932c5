/** Cells of a row of jobs, in the table and in the narrow list. */
import type { TranslationBundle } from "@jupyterlab/translation";
import {
  caretDownIcon,
  caretRightIcon,
  consoleIcon,
  jupyterIcon,
  kernelIcon,
  listIcon,
  stopIcon,
} from "@jupyterlab/ui-components";
import * as React from "react";

import { hasParts } from "../../common/api/records";
import { countText, taskCounts } from "../../common/array_labels";
import { isAllowed } from "../../common/job_states";
import {
  jobCluster,
  jobName,
  jobState,
  jobTimes,
  nameOfCluster,
  problemText,
} from "../../common/labels";
import { actingText } from "../actions/action_labels";
import { cellText, type ColumnId } from "./columns";
import type { ITableActs } from "./keyboard";
import {
  listFacts,
  markOf,
  markText,
  reasonLines,
  reasonText,
  timeShare,
  timeText,
} from "./row_texts";
import type { IRow } from "./selectable_lines";
import type { JobsTable } from "./table_model";

/** What the cells of a row are drawn from. */
export interface ICellsProps {
  readonly table: JobsTable;
  readonly trans: TranslationBundle;
  readonly acts: ITableActs;
  readonly row: IRow;
}

const MARKS = {
  session: jupyterIcon,
  kernel: kernelIcon,
  allocation: consoleIcon,
  array: listIcon,
} as const;

/** The mark of a session, a kernel, an allocation or an array; in the narrow list its icon only. */
function Mark({ row, trans }: ICellsProps): React.ReactElement | null {
  const mark = markOf(row.job);
  if (mark === null) {
    return null;
  }
  const Icon = MARKS[mark];
  const text = markText(trans, mark, row.job);
  return (
    <span className="jp-Slurm-mark" title={text}>
      <Icon.react tag="span" aria-hidden="true" />
      <span>{text}</span>
    </span>
  );
}

/** The name of a job opens its page with one click. */
function Name({ row, trans, acts }: ICellsProps): React.ReactElement {
  const { job } = row;
  const name = jobName(job);
  return (
    <button
      type="button"
      tabIndex={-1}
      aria-label={trans.__("Open job %1", `${job.id ?? ""} ${name}`.trim())}
      onClick={(event) => {
        if (!(event.ctrlKey || event.metaKey || event.shiftKey)) {
          event.stopPropagation();
          acts.open(job);
        }
      }}
      onDoubleClick={(event) => {
        event.stopPropagation();
      }}
    >
      {name}
    </button>
  );
}

/** Return the text of the state: while an action is under way, that action. */
function stateText({ row, table, trans }: ICellsProps): string {
  const acting = table.model.pendingAct(row.job);
  return acting === null ? jobState(trans, row.job) : actingText(trans, acting);
}

function TimeCell({ row, table, trans }: ICellsProps): React.ReactElement {
  const { now } = table.model;
  const share = timeShare(row.job, now);
  return (
    <>
      {timeText(trans, row.job, now)}
      {share !== null && (
        <span className="jp-Slurm-used" aria-hidden="true">
          <span style={{ width: `${share * 100}%` }} />
        </span>
      )}
    </>
  );
}

/** The reason, or what keeps the parts of the job from being shown. */
function ReasonCell({ row, table, trans }: ICellsProps): React.ReactElement {
  const trouble = table.partsProblem(row.job);
  return trouble === null ? (
    <>{reasonText(trans, row.job)}</>
  ) : (
    <span role="alert" className="jp-Slurm-problem">
      {problemText(trans, trouble)}
    </span>
  );
}

/** Return the whole text of a cell, for a tooltip. */
function titleOf(column: ColumnId, { row, table, trans }: ICellsProps): string {
  switch (column) {
    case "id":
    case "cluster":
      return nameOfCluster(table.model, row.job.cluster);
    case "reason":
      return reasonLines(trans, row.job).join("\n");
    case "time":
      return jobTimes(trans, row.job);
    default:
      return cellText(column, row.job, table.model.now);
  }
}

export function Cell(props: ICellsProps & { readonly column: ColumnId }): React.ReactElement {
  const { column, row, table, trans } = props;
  const content = (): React.ReactNode => {
    switch (column) {
      case "id":
        return row.job.id ?? trans.__("being submitted");
      case "name":
        return <NameAndMark {...props} />;
      case "state":
        return <span className="jp-Slurm-badge">{stateText(props)}</span>;
      case "time":
        return <TimeCell {...props} />;
      case "reason":
        return <ReasonCell {...props} />;
      case "cluster":
        return nameOfCluster(table.model, row.job.cluster);
      default:
        return cellText(column, row.job, table.model.now);
    }
  };
  return (
    <div
      role="gridcell"
      className={`jp-Slurm-cell jp-Slurm-${column}`}
      title={titleOf(column, props)}
    >
      {content()}
    </div>
  );
}

function NameAndMark(props: ICellsProps): React.ReactElement {
  return (
    <>
      {jobName(props.row.job) !== "" && <Name {...props} />}
      <Mark {...props} />
    </>
  );
}

/** The cells of a row of two lines: a dot, the name and the number; the time and the partition. */
export function ListCells(props: ICellsProps): React.ReactElement {
  const { row, table, trans } = props;
  const { job } = row;
  const { model } = table;
  const acting = model.pendingAct(job);
  const trouble = table.partsProblem(job);
  const facts = listFacts(trans, job, model.now, jobCluster(model, job));
  const counts = taskCounts(job);
  const reason = reasonText(trans, job, { counts: false });
  const title = [...facts, ...reasonLines(trans, job), jobTimes(trans, job)];
  return (
    <>
      <div role="gridcell" className="jp-Slurm-cell jp-Slurm-state" title={jobState(trans, job)}>
        <span className="jp-Slurm-badge">
          <span className="jp-Slurm-unseen">{stateText(props)}</span>
        </span>
      </div>
      <div role="gridcell" className="jp-Slurm-cell jp-Slurm-name" title={jobName(job)}>
        <NameAndMark {...props} />
      </div>
      <div
        role="gridcell"
        className="jp-Slurm-cell jp-Slurm-id"
        title={nameOfCluster(model, job.cluster)}
      >
        {table.showsAllUsers && job.user ? `${job.user} ` : ""}
        {job.id}
      </div>
      <div
        role="gridcell"
        className="jp-Slurm-cell jp-Slurm-facts"
        title={title.filter((line) => line !== "").join("\n")}
      >
        {trouble !== null ? (
          <span role="alert" className="jp-Slurm-problem">
            {problemText(trans, trouble)}
          </span>
        ) : (
          <>
            {counts.map(([kind, count]) => (
              <span key={kind} className="jp-Slurm-count" data-kind={kind}>
                <span className="jp-Slurm-badge" aria-hidden="true" />
                <span aria-hidden="true">{count}</span>
                <span className="jp-Slurm-unseen">{countText(trans, [kind, count])}, </span>
              </span>
            ))}
            {(acting === null ? facts : [actingText(trans, acting)]).join(" · ")}
            {reason !== "" && <span className="jp-Slurm-listReason"> · {reason}</span>}
          </>
        )}
      </div>
    </>
  );
}

/** The triangle that unfolds an array or an allocation; parts are indented. */
export function Fold({ row, table, trans }: ICellsProps): React.ReactElement {
  const { job, parent } = row;
  const isUnfolded = table.isUnfolded(job);
  if (parent !== null || !hasParts(job)) {
    return <span className="jp-Slurm-fold" data-part={parent !== null} />;
  }
  const Caret = isUnfolded ? caretDownIcon : caretRightIcon;
  return (
    <button
      type="button"
      tabIndex={-1}
      className="jp-Slurm-fold"
      aria-label={
        isUnfolded
          ? trans.__("Hide the parts of job %1", job.id ?? "")
          : trans.__("Show the parts of job %1", job.id ?? "")
      }
      onClick={(event) => {
        event.stopPropagation();
        table.fold(job, !isUnfolded);
      }}
    >
      <Caret.react tag="span" />
    </button>
  );
}

/** The button of a row: it has its place whether the job can be cancelled or not. */
export function CancelCell({ row, table, trans, acts }: ICellsProps): React.ReactElement {
  const { job } = row;
  const label = trans.__("Cancel job %1", job.id ?? jobName(job));
  return (
    <div role="gridcell" className="jp-Slurm-action">
      {isAllowed("cancel", job) && (
        <button
          type="button"
          tabIndex={-1}
          className="jp-Button jp-mod-minimal"
          disabled={table.model.pendingAct(job) !== null}
          aria-label={label}
          title={label}
          onClick={(event) => {
            event.stopPropagation();
            acts.act("cancel", [job]);
          }}
        >
          <stopIcon.react tag="span" aria-hidden="true" />
        </button>
      )}
    </div>
  );
}
