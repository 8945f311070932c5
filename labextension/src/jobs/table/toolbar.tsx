/** Toolbar of the table of jobs: the filter, the columns, and the actions on the selected jobs. */
import type { TranslationBundle } from "@jupyterlab/translation";
import * as React from "react";

import { ACTS, type Act, type IJob } from "../../common/api/objects";
import { isAllowed, type StateKind } from "../../common/job_states";
import { actLabel, actName, failureLines } from "../action_labels";
import { asCsv, asJson, columnName, COLUMNS, type ColumnId } from "./columns";
import { OwnerFilter } from "./owner_filter";
import type { JobsTable } from "./table_model";

const KINDS = ["running", "pending", "done", "failed", "cancelled"] as const;

export interface IToolbarActs {
  readonly act: (act: Act, jobs: readonly IJob[]) => void;
  readonly write: (text: string) => void;
}

export interface IToolbarProps {
  readonly table: JobsTable;
  readonly trans: TranslationBundle;
  readonly acts: IToolbarActs;
  /** Whether the panel is in the side bar. */
  readonly isNarrow: boolean;
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
  const jobs = from.closest(".jp-Slurm-jobs");
  jobs?.querySelector<HTMLElement>("[role=treegrid]")?.focus();
}

function Kinds({ table, trans }: IToolbarProps): React.ReactElement {
  const { counts, criteria } = table;
  return (
    <span role="group" className="jp-Slurm-kinds" aria-label={trans.__("States")}>
      {KINDS.map((kind) => (
        <button
          key={kind}
          type="button"
          className="jp-Slurm-chip"
          data-kind={kind}
          aria-pressed={criteria.kinds.has(kind)}
          onClick={() => {
            table.toggleKind(kind);
          }}
        >
          {trans.__("%1 %2", kindName(trans, kind), counts.get(kind) ?? 0)}
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
  /** Whether a click on one of its buttons closes it. */
  readonly closes?: boolean;
}

/** A box that opens below its name, and closes with Escape. */
function Menu({ name, children, closes = false }: IMenuProps): React.ReactElement {
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
      <summary>{name}</summary>
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
}

/** The button of an action: it keeps its place and its text, so that nothing moves when jobs are selected. */
function Action({ table, trans, acts, action }: IActionProps): React.ReactElement {
  const jobs = table.marked.filter(
    (job) => isAllowed(action, job) && table.model.pendingAct(job) === null,
  );
  const label = jobs.length > 0 ? actLabel(trans, action, jobs.length) : actName(trans, action);
  return (
    <button
      type="button"
      className="jp-mod-styled jp-mod-minimal"
      aria-label={label}
      title={label}
      disabled={jobs.length === 0}
      onClick={(event) => {
        focusTable(event.currentTarget);
        acts.act(action, jobs);
      }}
    >
      {actName(trans, action)}
    </button>
  );
}

function ClearSelection({ table, trans }: IToolbarProps): React.ReactElement {
  return (
    <button
      type="button"
      className="jp-mod-styled jp-mod-minimal"
      disabled={table.marked.length === 0}
      onClick={(event) => {
        focusTable(event.currentTarget);
        table.unmark();
      }}
    >
      {trans.__("Clear selection")}
    </button>
  );
}

/** Actions on the selected jobs. In a narrow panel, all but the first are in a menu. */
function Marked(props: IToolbarProps): React.ReactElement {
  const { table, trans, isNarrow } = props;
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
    <div
      role="group"
      className="jp-Slurm-marked"
      aria-label={trans.__("Actions on the selected jobs")}
    >
      <span className="jp-Slurm-selected" aria-live="polite">
        {trans._n("%1 selected", "%1 selected", table.marked.length)}
      </span>
      <Action {...{ ...props, action: first }} />
      {isNarrow ? (
        <Menu name={trans.__("More")} closes>
          {rest}
        </Menu>
      ) : (
        rest
      )}
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

export function Toolbar(props: IToolbarProps): React.ReactElement {
  const { table, trans, acts } = props;
  const copied = (): readonly IJob[] =>
    table.marked.length > 0 ? table.marked : table.lines.map(({ job }) => job);
  return (
    <div className="jp-Slurm-toolbar">
      <Filter {...props} />
      <Kinds {...props} />
      <span className="jp-Slurm-tools">
        <Columns {...props} />
        {(
          [
            ["CSV", trans.__("Copy as CSV"), asCsv],
            ["JSON", trans.__("Copy as JSON"), asJson],
          ] as const
        ).map(([name, label, written]) => (
          <button
            key={name}
            type="button"
            className="jp-Slurm-link"
            aria-label={label}
            title={trans.__("%1: the selected jobs, or all jobs of the table", label)}
            onClick={() => {
              acts.write(written(copied()));
            }}
          >
            {name}
          </button>
        ))}
      </span>
      <OwnerFilter {...props} />
      <Marked {...props} />
      <Failures {...props} />
    </div>
  );
}
