/** Toolbar of the table of jobs: the actions on the selected jobs. */
import { Button, ellipsesIcon } from "@jupyterlab/ui-components";
import * as React from "react";

import { ACTS, type Act, type IJob } from "../../common/api/objects";
import { isAllowed } from "../../common/job_states";
import { focusTable } from "../../common/jupyterlab/focus";
import { ACT_ICONS } from "../actions/act_icons";
import { actLabel, actName } from "../actions/action_labels";
import { asCsv, asJson } from "./columns";
import { Menu, type IToolbarProps } from "./toolbar_parts";

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
  const Icon = ACT_ICONS[action];
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
export function Copies({ table, trans, acts }: IToolbarProps): React.ReactElement {
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

/** Width in pixels below which the actions beside the title are icons. */
const MIN_NAMED_WIDTH = 860;

/** Actions on the selected jobs. In a narrow panel, all but the first are in a menu. */
export function SelectionActions(props: IToolbarProps): React.ReactElement {
  const { trans, isNarrow, width } = props;
  const isIcon = width > 0 && width < MIN_NAMED_WIDTH;
  const [first, ...others] = ACTS;
  const rest = (
    <>
      {others.map((action) => (
        <Action key={action} {...{ ...props, action }} isIcon={isIcon && !isNarrow} />
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
      <Action {...{ ...props, action: first }} isIcon={isIcon || isNarrow} />
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
