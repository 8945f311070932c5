/** Toolbars of the table of jobs: the actions on the selected jobs, the filter and the columns. */
import type { TranslationBundle } from "@jupyterlab/translation";
import {
  Button,
  ellipsesIcon,
  filterIcon,
  historyIcon,
  launchIcon,
  pauseIcon,
  redoIcon,
  refreshIcon,
  runIcon,
  stopIcon,
  type LabIcon,
} from "@jupyterlab/ui-components";
import * as React from "react";

import { ACTS, type Act, type IJob } from "../../common/api/objects";
import { isAllowed, type StateKind } from "../../common/job_states";
import { actLabel, actName, failureLines } from "../action_labels";
import { asCsv, asJson, columnName, COLUMNS, type ColumnId } from "./columns";
import { OwnerFilter } from "./owner_filter";
import type { JobsTable } from "./table_model";

const KINDS = ["running", "pending", "done", "failed", "cancelled"] as const;

const ICONS: Readonly<Record<Act, LabIcon>> = {
  cancel: stopIcon,
  hold: pauseIcon,
  release: runIcon,
  requeue: redoIcon,
  limit: historyIcon,
};

export interface IToolbarActs {
  readonly act: (act: Act, jobs: readonly IJob[]) => void;
  readonly write: (text: string) => void;
  /** Open the panel in the main area, where it is in the side bar. */
  readonly widen?: () => void;
}

export interface IToolbarProps {
  readonly table: JobsTable;
  readonly trans: TranslationBundle;
  readonly acts: IToolbarActs;
  /** Width of the panel in pixels; 0: unknown. */
  readonly width: number;
  /** Whether there is room for icons and a list of two-line rows only. */
  readonly isNarrow: boolean;
}

interface IIconButtonProps {
  readonly icon: LabIcon;
  readonly label: string;
  readonly isPressed?: boolean;
  readonly onClick: () => void;
}

/** A button of JupyterLab's toolbars, with an icon only. */
function IconButton({ icon, label, isPressed, onClick }: IIconButtonProps): React.ReactElement {
  return (
    <Button
      minimal
      type="button"
      className="jp-ToolbarButtonComponent"
      aria-label={label}
      aria-pressed={isPressed}
      title={label}
      onClick={onClick}
    >
      <icon.react tag="span" aria-hidden="true" />
    </Button>
  );
}

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

/** Focus the table, also from a button that disappears after its action. */
function focusTable(from: Element): void {
  from.closest(".jp-Slurm-panel")?.querySelector<HTMLElement>("[role=treegrid]")?.focus();
}

/** Width of a letter, and of a chip without its text, in pixels. */
const [LETTER, CHIP] = [7, 26];

/** The states that occur, with the number of jobs: without words where there is no room for them in one line. */
function Kinds({ table, trans, width, isNarrow }: IToolbarProps): React.ReactElement | null {
  const { counts, criteria } = table;
  const chips = KINDS.map((kind) => {
    const count = counts.get(kind) ?? 0;
    return { kind, count, text: trans.__("%1 %2", kindName(trans, kind), count) };
  }).filter(({ kind, count }) => count > 0 || criteria.kinds.has(kind));
  const needed = chips.reduce((sum, { text }) => sum + text.length * LETTER + CHIP, 0);
  const isShort = isNarrow && width > 0 && needed > width;
  return chips.length === 0 ? null : (
    <span role="group" className="jp-Slurm-kinds" aria-label={trans.__("States")}>
      {chips.map(({ kind, count, text }) => (
        <button
          key={kind}
          type="button"
          className="jp-Slurm-chip"
          data-kind={kind}
          aria-pressed={criteria.kinds.has(kind)}
          aria-label={text}
          title={text}
          onClick={() => {
            table.toggleKind(kind);
          }}
        >
          {isShort ? count : text}
        </button>
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

interface IMenuProps extends React.PropsWithChildren {
  readonly name: string;
  /** Shown instead of the name. */
  readonly icon?: LabIcon;
  /** Whether a click on one of its buttons closes it. */
  readonly closes?: boolean;
}

/** A box that opens below its name, and closes with Escape. */
function Menu({ name, icon: Icon, children, closes = false }: IMenuProps): React.ReactElement {
  return (
    <details
      className="jp-Slurm-menu"
      onClick={(event) => {
        if (closes && (event.target as Element).closest("button") !== null) {
          event.currentTarget.open = false;
        }
      }}
      onKeyDown={(event) => {
        if (event.key === "Escape") {
          event.currentTarget.open = false;
          event.currentTarget.querySelector("summary")?.focus();
        }
      }}
    >
      {Icon ? (
        <summary
          className="jp-Button jp-mod-minimal jp-ToolbarButtonComponent"
          aria-label={name}
          title={name}
        >
          <Icon.react tag="span" aria-hidden="true" />
        </summary>
      ) : (
        <summary>{name}</summary>
      )}
      <div>{children}</div>
    </details>
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

interface IActionProps extends IToolbarProps {
  readonly action: Act;
  /** Whether the icon stands alone. */
  readonly isIcon?: boolean;
}

/** The button of an action: it keeps its place and its text, so that nothing moves when jobs are selected. */
function Action(props: IActionProps): React.ReactElement {
  const { table, trans, acts, action, isIcon = false } = props;
  const jobs = table.marked.filter(
    (job) => isAllowed(action, job) && table.model.pendingAct(job) === null,
  );
  const label = jobs.length > 0 ? actLabel(trans, action, jobs.length) : actName(trans, action);
  const Icon = ICONS[action];
  return (
    <Button
      minimal
      type="button"
      className="jp-ToolbarButtonComponent"
      aria-label={label}
      title={label}
      disabled={jobs.length === 0}
      onClick={(event) => {
        focusTable(event.currentTarget);
        acts.act(action, jobs);
      }}
    >
      <Icon.react tag="span" aria-hidden="true" />
      {isIcon ? null : actName(trans, action)}
    </Button>
  );
}

function ClearSelection({ table, trans }: IToolbarProps): React.ReactElement {
  return (
    <Button
      minimal
      type="button"
      className="jp-ToolbarButtonComponent"
      disabled={table.marked.length === 0}
      onClick={(event) => {
        focusTable(event.currentTarget);
        table.unmark();
      }}
    >
      {trans.__("Clear selection")}
    </Button>
  );
}

/** The selected jobs, or all jobs of the table, as text. */
function Copies({ table, trans, acts }: IToolbarProps): React.ReactElement {
  const copied = (): readonly IJob[] =>
    table.marked.length > 0 ? table.marked : table.lines.map(({ job }) => job);
  const formats = [
    [trans.__("Copy as CSV"), asCsv],
    [trans.__("Copy as JSON"), asJson],
  ] as const;
  return (
    <>
      {formats.map(([label, written]) => (
        <Button
          key={label}
          minimal
          type="button"
          className="jp-ToolbarButtonComponent"
          title={trans.__("%1: the selected jobs, or all jobs of the table", label)}
          onClick={() => {
            acts.write(written(copied()));
          }}
        >
          {label}
        </Button>
      ))}
    </>
  );
}

/** Actions on the selected jobs. In a narrow panel, all but the first are in a menu. */
function Marked(props: IToolbarProps): React.ReactElement {
  const { trans, isNarrow } = props;
  const [first, ...others] = ACTS;
  const rest = (
    <>
      {others.map((action) => (
        <Action key={action} {...{ ...props, action }} />
      ))}
      <ClearSelection {...props} />
    </>
  );
  return (
    <span
      role="group"
      className="jp-Slurm-marked"
      aria-label={trans.__("Actions on the selected jobs")}
    >
      <Action {...{ ...props, action: first }} isIcon={isNarrow} />
      {isNarrow ? (
        <Menu name={trans.__("More")} icon={ellipsesIcon} closes>
          {rest}
          <Copies {...props} />
        </Menu>
      ) : (
        rest
      )}
    </span>
  );
}

interface ITitleBarProps extends IToolbarProps {
  readonly isFiltering: boolean;
  readonly setFiltering: (isFiltering: boolean) => void;
}

/** The title of the panel, and the actions on the panel and on the selected jobs. */
export function TitleBar(props: ITitleBarProps): React.ReactElement {
  const { table, trans, acts, isNarrow, isFiltering, setFiltering } = props;
  return (
    <div className="jp-Slurm-title">
      <h2>
        {table.showsAllUsers ? trans.__("Slurm jobs of all users") : trans.__("My Slurm jobs")}
      </h2>
      {!isNarrow && <Marked {...props} />}
      <span className="jp-Slurm-icons">
        <IconButton
          icon={refreshIcon}
          label={trans.__("Refresh")}
          onClick={() => {
            table.model.refresh();
            table.loadAllJobs();
          }}
        />
        {acts.widen && (
          <IconButton icon={launchIcon} label={trans.__("Open in a tab")} onClick={acts.widen} />
        )}
        {isNarrow && (
          <>
            <IconButton
              icon={filterIcon}
              label={trans.__("Filter")}
              isPressed={isFiltering}
              onClick={() => {
                setFiltering(!isFiltering);
              }}
            />
            <Marked {...props} />
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
        {failureLines(trans, failures).map((line) => (
          <li key={line}>{line}</li>
        ))}
      </ul>
      <button
        type="button"
        className="jp-mod-styled jp-mod-minimal"
        onClick={(event) => {
          focusTable(event.currentTarget);
          table.model.dismiss();
        }}
      >
        {trans.__("Dismiss")}
      </button>
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

/** The filter, the states that occur, and the choice of columns. */
export function FilterBar(props: IFilterBarProps): React.ReactElement {
  const { isNarrow, isFiltering } = props;
  return (
    <div className="jp-Slurm-toolbar">
      {(!isNarrow || isFiltering) && <Filter {...props} />}
      {(!isNarrow || isFiltering) && <OwnerFilter {...props} />}
      <Kinds {...props} />
      {!isNarrow && (
        <span className="jp-Slurm-tools">
          <Copies {...props} />
          <Columns {...props} />
        </span>
      )}
      <Failures {...props} />
    </div>
  );
}
