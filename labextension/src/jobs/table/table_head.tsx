/** Head of the table of jobs: a click sorts, a button filters, a drag at the edge of a column sets its width. */
import type { TranslationBundle } from "@jupyterlab/translation";
import * as React from "react";

import { columnName, type ColumnId } from "./columns";
import { FilterButton, type IOpenFilter } from "./filters/column_filter";
import type { JobsTable } from "./table_model";

interface IHeadProps {
  readonly table: JobsTable;
  readonly trans: TranslationBundle;
  readonly onFilter: (filter: IOpenFilter) => void;
}

interface IColumnProps extends IHeadProps {
  readonly column: ColumnId;
}

interface IEdgeProps extends Omit<IHeadProps, "onFilter"> {
  readonly column: ColumnId;
}

/** Pixels by which an arrow key with Shift widens a column. */
const KEY_STEP = 16;

function widthOf(element: Element): number {
  return element.closest("[role=columnheader]")?.getBoundingClientRect().width ?? 0;
}

/** The edge of a column: dragged, it sets the width; a double click restores the initial one. */
function Edge({ table, trans, column }: IEdgeProps): React.ReactElement {
  const start = React.useRef<{ readonly x: number; readonly width: number } | null>(null);
  return (
    <span
      aria-hidden="true"
      className="jp-Slurm-edge"
      title={trans.__("Drag to resize. Double-click to restore the width.")}
      onPointerDown={(event) => {
        if (event.button === 0) {
          event.preventDefault();
          event.currentTarget.setPointerCapture(event.pointerId);
          start.current = { x: event.clientX, width: widthOf(event.currentTarget) };
        }
      }}
      onPointerMove={(event) => {
        if (start.current !== null) {
          table.resize(column, start.current.width + event.clientX - start.current.x);
        }
      }}
      onPointerUp={() => {
        start.current = null;
      }}
      onLostPointerCapture={() => {
        start.current = null;
      }}
      onDoubleClick={() => {
        table.resize(column, null);
      }}
    />
  );
}

function ColumnHead({ table, trans, column, onFilter }: IColumnProps): React.ReactElement {
  const { sort } = table.criteria;
  const isSorted = sort?.column === column;
  return (
    <div
      role="columnheader"
      className={`jp-Slurm-cell jp-Slurm-${column}`}
      aria-sort={!isSorted ? "none" : sort.isDescending ? "descending" : "ascending"}
    >
      <button
        type="button"
        title={trans.__(
          "%1: sort. Shift and an arrow key resize the column.",
          columnName(trans, column),
        )}
        onClick={() => {
          table.sortBy(column);
        }}
        onKeyDown={(event) => {
          const by = { ArrowLeft: -KEY_STEP, ArrowRight: KEY_STEP }[event.key];
          if (event.shiftKey && by !== undefined) {
            event.preventDefault();
            table.resize(column, widthOf(event.currentTarget) + by);
          }
        }}
      >
        {columnName(trans, column)}
        {isSorted && <span aria-hidden="true">{sort.isDescending ? " ▼" : " ▲"}</span>}
      </button>
      <FilterButton {...{ table, trans, column, onFilter }} />
      <Edge {...{ table, trans, column }} />
    </div>
  );
}

export function Head({ table, trans, onFilter }: IHeadProps): React.ReactElement {
  return (
    <div role="rowgroup" className="jp-Slurm-head">
      <div role="row" aria-rowindex={1} className="jp-Slurm-row">
        <div role="columnheader">
          <span className="jp-Slurm-unseen">{trans.__("Parts")}</span>
        </div>
        {table.columns.map((column) => (
          <ColumnHead key={column} {...{ table, trans, column, onFilter }} />
        ))}
        <div role="columnheader" className="jp-Slurm-action">
          <span className="jp-Slurm-unseen">{trans.__("Actions")}</span>
        </div>
      </div>
    </div>
  );
}
