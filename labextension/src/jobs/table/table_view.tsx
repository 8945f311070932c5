/** Table of jobs: only visible rows are drawn, so that fifty thousand are as fast as ten. */
import type { TranslationBundle } from "@jupyterlab/translation";
import { caretDownIcon, caretRightIcon } from "@jupyterlab/ui-components";
import { useVirtualizer } from "@tanstack/react-virtual";
import * as React from "react";

import type { IJob } from "../../common/api/objects";
import { hasParts, identity } from "../../common/api/records";
import { isAllowed, isReleased, stateKind } from "../../common/job_states";
import type { IJobsModel } from "../../common/jobs_model";
import {
  jobName,
  jobReason,
  jobState,
  jobTasks,
  jobTime,
  jobTimes,
  problemText,
} from "../../common/labels";
import { usePeriodicRedraw } from "../../common/periodic_redraw";
import { actingText } from "../action_labels";
import { cellText, columnName, WIDTHS, type ColumnId } from "./columns";
import { handleKey, type ITableActs } from "./keyboard";
import type { IRow, JobsTable } from "./table_model";

export interface ITableProps {
  readonly table: JobsTable;
  readonly trans: TranslationBundle;
  readonly acts: ITableActs;
}

/** Height of a row with its padding, and of the heading, relative to the font size. */
const ROW_HEIGHT = 3.4;
const HEAD_HEIGHT = 2.4;
const USUAL_LETTERS = 13;
/** Rows outside the visible part that are drawn in advance. */
const BEYOND = 8;

interface ICellProps {
  readonly column: ColumnId;
  readonly job: IJob;
  readonly model: IJobsModel;
  readonly trans: TranslationBundle;
  readonly open: (job: IJob) => void;
}

/** Return the lines of a cell, and its whole text for a tooltip. */
function cellLines({ column, job, model, trans }: ICellProps): [readonly string[], string] {
  const text = cellText(column, job, model.now);
  switch (column) {
    case "id":
      return [
        [
          job.id ?? trans.__("being submitted"),
          jobTasks(trans, job) || (model.clusters.length > 1 ? job.cluster : ""),
        ],
        job.cluster,
      ];
    case "reason": {
      const lines = jobReason(trans, job);
      return [lines, lines.join("\n")];
    }
    case "time":
      return [[jobTime(job, model.now)], jobTimes(trans, job)];
    default:
      return [[text], text];
  }
}

function Cell(props: ICellProps): React.ReactElement {
  const { column, job, trans, open } = props;
  const [lines, title] = cellLines(props);
  return (
    <div role="gridcell" className={`jp-Slurm-cell jp-Slurm-${column}`} title={title}>
      {column === "state" ? (
        <span className="jp-Slurm-badge">{jobState(trans, job)}</span>
      ) : (
        lines
          .filter((line) => line !== "")
          .slice(0, 2)
          .map((line, index) => (
            <div key={line} className={index > 0 ? "jp-Slurm-aside" : undefined}>
              {column === "name" ? <Name {...{ line, job, trans, open }} /> : line}
            </div>
          ))
      )}
    </div>
  );
}

interface INameProps extends Pick<ICellProps, "job" | "trans" | "open"> {
  readonly line: string;
}

/** The name of a job opens its page with one click. */
function Name({ line, job, trans, open }: INameProps): React.ReactElement {
  return (
    <button
      type="button"
      tabIndex={-1}
      aria-label={trans.__("Open job %1", `${job.id ?? ""} ${line}`.trim())}
      onClick={(event) => {
        if (!(event.ctrlKey || event.metaKey || event.shiftKey)) {
          event.stopPropagation();
          open(job);
        }
      }}
      onDoubleClick={(event) => {
        event.stopPropagation();
      }}
    >
      {line}
    </button>
  );
}

interface IRowProps extends ITableProps {
  readonly row: IRow;
  readonly index: number;
  readonly id: string;
  readonly top: number;
  readonly isActive: boolean;
  /** The job that the first click of a double click has hit: the rows may move before the second. */
  readonly pressed: React.MutableRefObject<IJob | null>;
}

/** The triangle that unfolds an array or an allocation; parts are indented. */
function Fold({ row, table, trans }: IRowProps): React.ReactElement {
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

function Row(props: IRowProps): React.ReactElement {
  const { row, index, id, top, isActive, pressed, table, trans, acts } = props;
  const { job, parent } = row;
  const { model } = table;
  const kind = stateKind(job.state);
  const acting = model.pendingAct(job);
  const trouble = table.partsProblem(job);
  return (
    <div
      role="row"
      id={id}
      aria-rowindex={index + 2}
      aria-level={parent === null ? 1 : 2}
      aria-selected={table.isMarked(job)}
      aria-expanded={parent === null && hasParts(job) ? table.isUnfolded(job) : undefined}
      className="jp-Slurm-row"
      data-kind={kind === "cancelled" && isReleased(job) ? "done" : kind}
      data-known={job.known}
      data-active={isActive}
      data-acting={acting}
      style={{ transform: `translateY(${top}px)` }}
      onClick={(event) => {
        if (event.detail < 2) {
          pressed.current = job;
          table.click(index, { adds: event.ctrlKey || event.metaKey, extends: event.shiftKey });
        }
      }}
      onDoubleClick={() => {
        acts.open(pressed.current ?? job);
      }}
    >
      <div role="gridcell">
        <Fold {...props} />
      </div>
      {table.columns.map((column) => (
        <Cell key={column} {...{ column, job, model, trans }} open={acts.open} />
      ))}
      <div role="gridcell" className="jp-Slurm-action">
        {isAllowed("cancel", job) && (
          <button
            type="button"
            tabIndex={-1}
            className="jp-mod-styled jp-mod-minimal"
            disabled={acting !== null}
            aria-label={trans.__("Cancel job %1", job.id ?? jobName(job))}
            onClick={(event) => {
              event.stopPropagation();
              acts.act("cancel", [job]);
            }}
          >
            {acting === null ? trans.__("Cancel") : actingText(trans, acting)}
          </button>
        )}
        {trouble !== null && (
          <span role="alert" className="jp-Slurm-problem">
            {problemText(trans, trouble)}
          </span>
        )}
      </div>
    </div>
  );
}

function Head({ table, trans }: ITableProps): React.ReactElement {
  const { sort } = table.criteria;
  return (
    <div role="rowgroup" className="jp-Slurm-head">
      <div role="row" aria-rowindex={1} className="jp-Slurm-row">
        <div role="columnheader">
          <span className="jp-Slurm-unseen">{trans.__("Parts")}</span>
        </div>
        {table.columns.map((column) => (
          <div
            key={column}
            role="columnheader"
            className={`jp-Slurm-cell jp-Slurm-${column}`}
            aria-sort={
              sort?.column !== column ? "none" : sort.isDescending ? "descending" : "ascending"
            }
          >
            <button
              type="button"
              onClick={() => {
                table.sortBy(column);
              }}
            >
              {columnName(trans, column)}
              {sort?.column === column && (
                <span aria-hidden="true">{sort.isDescending ? " ▼" : " ▲"}</span>
              )}
            </button>
          </div>
        ))}
        <div role="columnheader" className="jp-Slurm-action">
          <span className="jp-Slurm-unseen">{trans.__("Actions")}</span>
        </div>
      </div>
    </div>
  );
}

/** Return the columns of all rows as a CSS grid template. */
function template(columns: readonly ColumnId[]): string {
  const widths = columns.map((column) => {
    const [least, share] = WIDTHS[column];
    return share > 0 ? `minmax(${least}px, ${share}fr)` : `${least}px`;
  });
  return ["22px", ...widths, "auto"].join(" ");
}

export function Table({ table, trans, acts }: ITableProps): React.ReactElement {
  usePeriodicRedraw();
  const node = React.useRef<HTMLDivElement>(null);
  const pressed = React.useRef<IJob | null>(null);
  const name = React.useId();
  const [letters, setLetters] = React.useState(USUAL_LETTERS);
  React.useLayoutEffect(() => {
    const size = node.current && Number.parseFloat(getComputedStyle(node.current).fontSize);
    setLetters(size || USUAL_LETTERS);
  }, []);
  const { lines, active } = table;
  const [row, head] = [ROW_HEIGHT * letters, HEAD_HEIGHT * letters].map(Math.round) as [
    number,
    number,
  ];
  const virtual = useVirtualizer({
    count: lines.length,
    getScrollElement: () => node.current,
    estimateSize: () => row,
    overscan: BEYOND,
    scrollMargin: head,
    scrollPaddingStart: head,
    useFlushSync: false,
  });
  React.useEffect(() => {
    virtual.measure();
  }, [virtual, row]);
  const key = active < 0 ? null : identity(lines[active]?.job as IJob);
  React.useEffect(() => {
    if (active >= 0) {
      virtual.scrollToIndex(active);
    }
  }, [key]); // scroll only when the user has moved: a line that moves does not scroll the page
  const drawn = virtual.getVirtualItems();
  const isActiveDrawn = drawn.some(({ index }) => index === active);
  const page = Math.max(1, Math.floor((virtual.scrollRect?.height ?? 0) / row) - 1);
  const least = table.columns.reduce((sum, column) => sum + WIDTHS[column][0] + 8, 22);
  const style = {
    "--jp-slurm-columns": template(table.columns),
    "--jp-slurm-row": `${row}px`,
    "--jp-slurm-head": `${head}px`,
    "--jp-slurm-least": `${least}px`,
  } as React.CSSProperties;
  return (
    <div
      ref={node}
      role="treegrid"
      tabIndex={0}
      className="jp-Slurm-table"
      style={style}
      aria-label={trans.__("Jobs")}
      aria-rowcount={lines.length + 1}
      aria-multiselectable={true}
      aria-activedescendant={isActiveDrawn ? `${name}-${active}` : undefined}
      onKeyDown={(event) => {
        if (event.target === node.current && handleKey(event, { table, acts, page })) {
          event.preventDefault();
          event.stopPropagation();
        }
      }}
    >
      <Head {...{ table, trans, acts }} />
      <div role="rowgroup" className="jp-Slurm-body" style={{ height: virtual.getTotalSize() }}>
        {drawn.map(({ index, start }) => {
          const line = lines[index];
          return (
            line && (
              <Row
                key={`${line.parent === null ? "" : "part "}${identity(line.job)}`}
                row={line}
                id={`${name}-${index}`}
                top={start - head}
                isActive={index === active}
                {...{ index, pressed, table, trans, acts }}
              />
            )
          );
        })}
      </div>
    </div>
  );
}
