/** Table of jobs: only visible rows are drawn, so that fifty thousand are as fast as ten. */
import type { TranslationBundle } from "@jupyterlab/translation";
import { useVirtualizer } from "@tanstack/react-virtual";
import * as React from "react";

import type { IJob } from "../../common/api/objects";
import { hasParts, identity } from "../../common/api/records";
import { isReleased, stateKind } from "../../common/job_states";
import { useHandover } from "../../common/jupyterlab/focus";
import { usePeriodicRedraw } from "../../common/jupyterlab/periodic_redraw";
import { gridColumns } from "./columns";
import type { IOpenFilter } from "./filters/column_filter";
import { handleKey, type ITableActs } from "./keyboard";
import { CancelCell, Cell, Fold, ListCells } from "./row_cells";
import { Head } from "./table_head";
import type { IRow } from "./selectable_lines";
import type { JobsTable } from "./table_model";

export interface ITableProps {
  readonly table: JobsTable;
  readonly trans: TranslationBundle;
  readonly acts: ITableActs;
  /** Whether there is room for a list of two-line rows only. */
  readonly isNarrow: boolean;
  readonly onFilter: (filter: IOpenFilter) => void;
}

/** Heights relative to the font size: of a row of the table, of one of the narrow list, and of the heading. */
const ROW_HEIGHT = { comfortable: 2.3, compact: 1.85 } as const;
const LIST_ROW_HEIGHT = { comfortable: 3.4, compact: 2.9 } as const;
const HEAD_HEIGHT = 2.2;
const USUAL_LETTERS = 13;
/** Rows outside the visible part that are drawn in advance. */
const BEYOND = 8;

interface IRowProps extends ITableProps {
  readonly row: IRow;
  readonly index: number;
  readonly id: string;
  readonly top: number;
  readonly isActive: boolean;
  /** The job that the first click of a double click has hit: the rows may move before the second. */
  readonly pressed: React.MutableRefObject<IJob | null>;
  /** What a redraw of the table changes, but not scrolling: the table changes in place. */
  readonly redraw: ITableProps;
  readonly redraws: number;
}

/** A row of the table. Scrolling draws only the rows that come into view. */
const Row = React.memo(function Row(props: IRowProps): React.ReactElement {
  const { row, index, id, top, isActive, pressed, table, trans, acts, isNarrow } = props;
  const { job, parent } = row;
  const kind = stateKind(job.state);
  const cells = { table, trans, acts, row };
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
      data-acting={table.model.pendingAct(job)}
      style={{ top }}
      onClick={(event) => {
        if (event.detail < 2) {
          pressed.current = job;
          const how = { adds: event.ctrlKey || event.metaKey, extends: event.shiftKey };
          table.click(table.lineOf(row), how);
        }
      }}
      onDoubleClick={() => {
        acts.open(pressed.current ?? job);
      }}
      onContextMenu={(event) => {
        const line = table.lineOf(row);
        table.pointAt(line);
        if (line < 0) {
          event.preventDefault(); // a menu would be for the jobs selected before
          event.stopPropagation();
        }
      }}
    >
      <div role="gridcell" className="jp-Slurm-lead">
        <Fold {...cells} />
      </div>
      {isNarrow ? (
        <ListCells {...cells} />
      ) : (
        table.columns.map((column) => <Cell key={column} {...cells} column={column} />)
      )}
      <CancelCell {...cells} />
    </div>
  );
});

export function Table(props: ITableProps): React.ReactElement {
  const { table, trans, acts, isNarrow, onFilter } = props;
  const redraws = usePeriodicRedraw();
  const node = React.useRef<HTMLDivElement>(null);
  useHandover(node); // where no row is left, there is no table
  const pressed = React.useRef<IJob | null>(null);
  const name = React.useId();
  const [letters, setLetters] = React.useState(USUAL_LETTERS);
  React.useLayoutEffect(() => {
    const size = node.current && Number.parseFloat(getComputedStyle(node.current).fontSize);
    setLetters(size || USUAL_LETTERS);
  }, []);
  const { lines, active } = table;
  const density = table.isCompact ? "compact" : "comfortable";
  const row = Math.round((isNarrow ? LIST_ROW_HEIGHT : ROW_HEIGHT)[density] * letters);
  const head = isNarrow ? 0 : Math.round(HEAD_HEIGHT * letters);
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
  const { template, least } = gridColumns(table.columns, table.widths);
  const style = {
    "--jp-slurm-columns": template,
    "--jp-slurm-row": `${row}px`,
    "--jp-slurm-head": `${head}px`,
    "--jp-slurm-least": isNarrow ? "0" : `${least}px`,
  } as React.CSSProperties;
  return (
    <div
      ref={node}
      role="treegrid"
      tabIndex={0}
      className="jp-Slurm-table"
      data-narrow={isNarrow}
      data-density={density}
      data-empty={lines.length === 0}
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
      {!isNarrow && <Head {...{ table, trans, onFilter }} />}
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
                redraw={props} // the same object until the parent draws
                {...props}
                {...{ index, pressed, redraws }}
              />
            )
          );
        })}
      </div>
    </div>
  );
}
