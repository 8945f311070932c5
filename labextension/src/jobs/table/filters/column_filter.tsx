/** The button in the head of a column that opens its filter, and the box with the filter below it. */
import type { TranslationBundle } from "@jupyterlab/translation";
import { Button, filterIcon } from "@jupyterlab/ui-components";
import * as React from "react";

import { nameOfCluster } from "../../../common/labels";
import { columnName, type ColumnId } from "../columns";
import type { JobsTable } from "../table_model";
import { columnValues, filterKind } from "./column_filters";

interface IProps {
  readonly table: JobsTable;
  readonly trans: TranslationBundle;
  readonly column: ColumnId;
}

/** The filter that is open: its column and the place of its button. */
export interface IOpenFilter {
  readonly column: ColumnId;
  readonly left: number;
  readonly top: number;
}

/** Width of the box in pixels. */
const BOX_WIDTH = 220;

/** Return the filter below a button, within the element that scrolls with neither the rows nor the columns. */
function filterBelow(button: Element, column: ColumnId): IOpenFilter {
  const around = button.closest(".jp-Slurm-jobs")?.getBoundingClientRect();
  const { left, bottom } = button.getBoundingClientRect();
  const most = (around?.width ?? Infinity) - BOX_WIDTH - 4;
  return {
    column,
    left: Math.max(0, Math.min(left - (around?.left ?? 0), most)),
    top: bottom - (around?.top ?? 0),
  };
}

interface IFilterButtonProps extends IProps {
  /** Open a filter, or close it where it is open. */
  readonly onFilter: (filter: IOpenFilter) => void;
}

/** The mark of a column: pressed where the column is filtered. */
export function FilterButton(props: IFilterButtonProps): React.ReactElement | null {
  const { table, trans, column, onFilter } = props;
  if (filterKind(column) === null) {
    return null;
  }
  const isFiltered = table.criteria.columns[column] !== undefined;
  const label = isFiltered
    ? trans.__("%1: filtered. Change the filter.", columnName(trans, column))
    : trans.__("%1: filter", columnName(trans, column));
  return (
    <button
      type="button"
      className="jp-Slurm-columnFilter"
      data-filter={column}
      data-active={isFiltered}
      aria-haspopup="dialog"
      aria-label={label}
      title={label}
      onClick={(event) => {
        onFilter(filterBelow(event.currentTarget, column));
      }}
    >
      <filterIcon.react tag="span" aria-hidden="true" />
    </button>
  );
}

function TextFilter({ table, trans, column }: IProps): React.ReactElement {
  const filter = table.criteria.columns[column];
  return (
    <input
      type="search"
      className="jp-Slurm-filter"
      placeholder={trans.__("Filter")}
      aria-label={trans.__("Filter by %1", columnName(trans, column))}
      value={typeof filter === "string" ? filter : ""}
      onChange={(event) => {
        table.filterColumn(column, event.target.value);
      }}
    />
  );
}

function ListFilter({ table, trans, column }: IProps): React.ReactElement {
  const filter = table.criteria.columns[column];
  const chosen = React.useMemo(
    (): readonly string[] => (typeof filter === "object" ? filter : []),
    [filter],
  );
  const { jobs } = table;
  const values = React.useMemo(() => columnValues(jobs, column, chosen), [jobs, column, chosen]);
  const textOf = (value: string): string =>
    column === "cluster" ? nameOfCluster(table.model, value) : value;
  return (
    <ul>
      {values.map(([value, count]) => (
        <li key={value}>
          <label>
            <input
              type="checkbox"
              checked={chosen.includes(value)}
              onChange={({ target }) => {
                const others = chosen.filter((each) => each !== value);
                table.filterColumn(column, target.checked ? [...others, value] : others);
              }}
            />
            <span>{value === "" ? trans.__("(none)") : textOf(value)}</span>
            <span className="jp-Slurm-aside">{count}</span>
          </label>
        </li>
      ))}
    </ul>
  );
}

interface IFilterBoxProps extends IProps {
  readonly place: IOpenFilter;
  readonly close: () => void;
}

/** The filter of a column. Enter and Escape close it, and lead back to the head of the column. */
export function FilterBox(props: IFilterBoxProps): React.ReactElement {
  const { table, trans, column, place, close } = props;
  const node = React.useRef<HTMLDivElement>(null);
  React.useEffect(() => {
    node.current?.querySelector("input")?.focus();
  }, [column]);
  const leave = (): void => {
    const around = node.current?.closest(".jp-Slurm-jobs");
    close();
    around?.querySelector<HTMLElement>(`[data-filter="${column}"]`)?.focus();
  };
  return (
    <div
      ref={node}
      role="dialog"
      tabIndex={-1}
      className="jp-Slurm-filterBox"
      aria-label={trans.__("Filter by %1", columnName(trans, column))}
      style={{ left: place.left, top: place.top, width: BOX_WIDTH }}
      onKeyDown={(event) => {
        const isButton = event.target instanceof HTMLButtonElement;
        if (event.key === "Escape" || (event.key === "Enter" && !isButton)) {
          event.preventDefault();
          event.stopPropagation();
          leave();
        }
      }}
      onBlur={({ currentTarget, relatedTarget }) => {
        const isInside = currentTarget.contains(relatedTarget);
        const isItsButton = (relatedTarget as HTMLElement | null)?.dataset["filter"] === column;
        if (!isInside && !isItsButton && document.hasFocus()) {
          close();
        }
      }}
    >
      {filterKind(column) === "text" ? <TextFilter {...props} /> : <ListFilter {...props} />}
      <Button
        small
        minimal
        type="button"
        className="jp-ToolbarButtonComponent"
        disabled={table.criteria.columns[column] === undefined}
        onClick={() => {
          table.filterColumn(column, "");
          leave();
        }}
      >
        {trans.__("Clear this filter")}
      </Button>
    </div>
  );
}
