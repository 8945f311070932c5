/** Toolbars of the table of jobs: the title, the filter and the columns. */
import type { TranslationBundle } from "@jupyterlab/translation";
import { filterIcon, launchIcon, refreshIcon } from "@jupyterlab/ui-components";
import * as React from "react";

import type { StateKind } from "../../common/job_states";
import { jobCluster } from "../../common/labels";
import { focusTable, HandoverButton } from "../../common/jupyterlab/focus";
import { ToolbarButton } from "../../common/jupyterlab/toolbar_button";
import { failureLines } from "../actions/action_labels";
import { columnName, COLUMNS, type ColumnId } from "./columns";
import { OwnerFilter } from "./filters/owner_filter";
import { ClearFilters, PeriodChoice } from "./filters/period_choice";
import { Copies, SelectionActions } from "./selection_actions";
import { Menu, type IToolbarProps } from "./toolbar_parts";

const KINDS = ["running", "pending", "done", "failed", "cancelled"] as const;

function kindName(trans: TranslationBundle, kind: StateKind): string {
  switch (kind) {
    case "running":
      return trans.__("Running");
    case "pending":
      return trans.__("Pending");
    case "done":
      return trans.__("Done");
    case "failed":
      return trans.__("Failed");
    case "cancelled":
      return trans.__("Cancelled");
    default:
      return trans.__("Unknown");
  }
}

/** Width of a letter, of a chip without its text, and of what stands beside the chips of the table, in pixels. */
const [LETTER, CHIP, BESIDE] = [7, 34, 490];

/** The states that occur, with the number of jobs: without words where there is no room for them in one line. */
function Kinds({ table, trans, width, isNarrow }: IToolbarProps): React.ReactElement | null {
  const { counts, criteria } = table;
  const chips = KINDS.map((kind) => {
    const count = counts.get(kind) ?? 0;
    return { kind, count, text: trans.__("%1 %2", kindName(trans, kind), count) };
  }).filter(({ kind, count }) => count > 0 || criteria.kinds.has(kind));
  const needed = chips.reduce((sum, { text }) => sum + text.length * LETTER + CHIP, 0);
  const isShort = width > 0 && needed > (isNarrow ? width : width - BESIDE);
  return chips.length === 0 ? null : (
    <span role="group" className="jp-Slurm-kinds" aria-label={trans.__("States")}>
      {chips.map(({ kind, count, text }) => (
        <HandoverButton
          key={kind}
          className="jp-Slurm-chip"
          data-kind={kind}
          aria-pressed={criteria.kinds.has(kind)}
          aria-label={text}
          title={text}
          act={() => {
            table.toggleKind(kind);
          }}
        >
          {isShort ? count : text}
        </HandoverButton>
      ))}
    </span>
  );
}

interface IColumnProps extends Pick<IToolbarProps, "table" | "trans"> {
  readonly column: ColumnId;
}

function Column({ table, trans, column }: IColumnProps): React.ReactElement {
  const name = columnName(trans, column);
  const at = table.chosen.indexOf(column);
  const moves = [
    { by: -1, sign: "↑", label: trans.__("Move column %1 to the left", name), isOff: at < 1 },
    {
      by: 1,
      sign: "↓",
      label: trans.__("Move column %1 to the right", name),
      isOff: at < 0 || at === table.chosen.length - 1,
    },
  ] as const;
  return (
    <li>
      <label>
        <input
          type="checkbox"
          checked={at >= 0}
          disabled={at >= 0 && table.chosen.length === 1}
          onChange={() => {
            table.toggleColumn(column);
          }}
        />
        {name}
      </label>
      {moves.map(({ by, sign, label, isOff }) => (
        <button
          key={by}
          type="button"
          aria-label={label}
          disabled={isOff}
          onClick={() => {
            table.moveColumn(column, by);
          }}
        >
          {sign}
        </button>
      ))}
    </li>
  );
}

/** The choice of the columns and of their order. */
function Columns({ table, trans }: IToolbarProps): React.ReactElement {
  const hidden = COLUMNS.filter((column) => !table.chosen.includes(column));
  return (
    <Menu name={trans.__("Columns")}>
      <ul>
        {[...table.chosen, ...hidden].map((column) => (
          <Column key={column} {...{ table, trans, column }} />
        ))}
      </ul>
    </Menu>
  );
}

interface ITitleBarProps extends IToolbarProps {
  readonly isFiltering: boolean;
  readonly setFiltering: (isFiltering: boolean) => void;
}

/** Return the title of the panel; in a narrow one, that which fits beside the icons. */
function panelTitle({ table, trans, isNarrow }: ITitleBarProps): string {
  if (isNarrow) {
    return trans.__("Slurm jobs");
  }
  return table.showsAllUsers ? trans.__("Slurm jobs of all users") : trans.__("My Slurm jobs");
}

/** Menus of the table: copies, and the choice of columns. */
function TableMenus(props: IToolbarProps): React.ReactElement {
  return (
    <span className="jp-Slurm-tools">
      <Menu name={props.trans.__("Copy")} closes>
        <Copies {...props} />
      </Menu>
      <Columns {...props} />
    </span>
  );
}

/** The title of the panel, and the actions on the panel and on the selected jobs. */
export function TitleBar(props: ITitleBarProps): React.ReactElement {
  const { table, trans, acts, isNarrow, isFiltering, setFiltering } = props;
  return (
    <div className="jp-Slurm-title">
      <h2>{panelTitle(props)}</h2>
      {!isNarrow && <SelectionActions {...props} />}
      <span className="jp-Slurm-icons">
        {!isNarrow && <TableMenus {...props} />}
        <ToolbarButton
          icon={refreshIcon}
          label={trans.__("Refresh")}
          act={() => {
            table.model.refresh();
            table.loadAllJobs();
            table.loadPastJobs();
          }}
        />
        {acts.widen && (
          <ToolbarButton icon={launchIcon} label={trans.__("Open in a tab")} act={acts.widen} />
        )}
        {isNarrow && (
          <>
            <ToolbarButton
              icon={filterIcon}
              label={trans.__("Filter")}
              isPressed={isFiltering}
              act={() => {
                setFiltering(!isFiltering);
              }}
            />
            <SelectionActions {...props} />
          </>
        )}
      </span>
    </div>
  );
}

/** Failures of an action on several jobs. */
function Failures({ table, trans }: IToolbarProps): React.ReactElement | null {
  const { failures } = table.model;
  return failures.length === 0 ? null : (
    <div role="alert" className="jp-Slurm-failures jp-Slurm-problem">
      {trans._n("Failed for %1 job:", "Failed for %1 jobs:", failures.length)}
      <ul>
        {failureLines(trans, failures, (job) => jobCluster(table.model, job)).map((line) => (
          <li key={line}>{line}</li>
        ))}
      </ul>
      <ToolbarButton
        label={trans.__("Dismiss")}
        act={() => {
          table.model.dismiss();
        }}
      />
    </div>
  );
}

/** The filter shows typed text at once, however long the search takes. */
function Filter({ table, trans }: IToolbarProps): React.ReactElement {
  const { text } = table.criteria;
  const [typed, setTyped] = React.useState(text);
  React.useEffect(() => {
    setTyped(text);
  }, [text]); // a link to a job clears the filter
  return (
    <input
      type="search"
      className="jp-Slurm-filter"
      placeholder={trans.__("Filter")}
      aria-label={trans.__("Filter jobs by number, name, user, state, partition, nodes, reason")}
      value={typed}
      onChange={(event) => {
        setTyped(event.target.value);
        table.filter(event.target.value);
      }}
      onKeyDown={(event) => {
        if (event.key === "ArrowDown" && table.lines.length > 0) {
          event.preventDefault();
          table.moveTo(Math.max(0, table.active), false);
          focusTable(event.currentTarget);
        }
      }}
    />
  );
}

interface IFilterBarProps extends IToolbarProps {
  /** Whether the filter is shown in a narrow panel. */
  readonly isFiltering: boolean;
}

/** The filter, and the states that occur. */
export function FilterBar(props: IFilterBarProps): React.ReactElement {
  const { isNarrow, isFiltering } = props;
  return (
    <div className="jp-Slurm-toolbar">
      {(!isNarrow || isFiltering) && <Filter {...props} />}
      {(!isNarrow || isFiltering) && <OwnerFilter {...props} />}
      {(!isNarrow || isFiltering) && <PeriodChoice {...props} />}
      <Kinds {...props} />
      <ClearFilters {...props} />
      <Failures {...props} />
    </div>
  );
}
