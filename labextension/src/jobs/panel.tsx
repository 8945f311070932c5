/** The panel with the clusters, the sessions and the jobs, in the side bar or in the main area. */
import type { TranslationBundle } from "@jupyterlab/translation";
import { ReactWidget, UseSignal } from "@jupyterlab/ui-components";
import type { Message } from "@lumino/messaging";
import { Panel as PanelWidget, type Widget } from "@lumino/widgets";
import * as React from "react";

import type { Act, ICluster, IJob } from "../common/api/objects";
import { isReached } from "../common/api/records";
import { HandoverButton } from "../common/jupyterlab/focus";
import { silentCluster } from "../common/freshness";
import { connectionText } from "../common/labels";
import { FoldsContext } from "../common/jupyterlab/fold";
import { AllResources } from "../resources/view";
import type { ISessionsModel, SessionJob } from "../sessions/model";
import { Sessions } from "../sessions/session_card";
import { ActProgress } from "./actions/act_progress";
import { Clusters } from "./cluster_list";
import { FirstSteps, type IFirstSteps } from "./first_steps";
import { asCsv } from "./table/columns";
import { FilterBox, type IOpenFilter } from "./table/filters/column_filter";
import { OthersStatus } from "./table/filters/owner_filter";
import { JobsTable } from "./table/table_model";
import { Table } from "./table/table_view";
import { FilterBar, TitleBar } from "./table/toolbar";
import type { IToolbarProps } from "./table/toolbar_parts";
import { UpdateTime } from "./update_time";

/** Actions of the user in the panel. */
export interface IActs {
  readonly act: (act: Act, jobs: readonly IJob[]) => void;
  readonly open: (job: IJob) => void;
  /** Write a text to the clipboard. */
  readonly write: (text: string) => void;
  readonly connect: (cluster: ICluster) => void;
  readonly disconnect: (cluster: ICluster) => void;
  /** Offered as long as there are no jobs. */
  readonly firstSteps?: IFirstSteps;
  /** Open the panel in the main area, where it is in the side bar. */
  readonly widen?: () => void;
}

/** The sessions above the jobs, and the actions on one. */
export interface IWithSessions {
  readonly model: ISessionsModel;
  readonly stop: (job: SessionJob) => void;
  readonly openTerminal?: ((job: SessionJob) => void) | undefined;
  readonly show: (job: SessionJob) => void;
}

/** Other contents of the panel. */
export interface IBeside {
  readonly sessions?: IWithSessions | null;
}

/** The parts of the panel that take the focus. */
const [FILTER, TABLE] = [".jp-Slurm-toolbar .jp-Slurm-filter", "[role=treegrid]"] as const;

/** Width in pixels below which there is a list of two-line rows instead of the table. */
const MIN_TABLE_WIDTH = 780;

interface IPanelProps extends IBeside {
  readonly table: JobsTable;
  readonly trans: TranslationBundle;
  readonly acts: IActs;
  /** Width of the panel in pixels; 0: unknown. */
  readonly width: number;
}

/** Why there is no row. */
function Nothing({
  table,
  trans,
  acts,
}: IToolbarProps & Pick<IPanelProps, "acts">): React.ReactElement {
  const { model, isFiltered } = table;
  if (model.connection !== "live") {
    return <p className="jp-Slurm-empty" />; // without a connection nothing is known; the reason stands above
  }
  if (!isFiltered) {
    return <FirstSteps trans={trans} acts={acts.firstSteps} />;
  }
  return <p className="jp-Slurm-empty">{trans.__("No jobs match.")}</p>;
}

function Jobs(props: IToolbarProps & Pick<IPanelProps, "acts">): React.ReactElement {
  const { table, trans, acts, isNarrow } = props;
  const { act, open, write } = acts;
  const copy = (jobs: readonly IJob[]): void => {
    write(asCsv(jobs));
  };
  const [filter, setFilter] = React.useState<IOpenFilter | null>(null);
  const isEmpty = table.lines.length === 0;
  const onFilter = (opened: IOpenFilter): void => {
    setFilter(filter?.column === opened.column ? null : opened);
  };
  return (
    <>
      {(!isEmpty || (table.isFiltered && !isNarrow)) && (
        <Table {...{ table, trans, isNarrow, onFilter }} acts={{ act, open, copy }} />
      )}
      {isEmpty && <Nothing {...props} />}
      {filter !== null && !isNarrow && (
        <FilterBox
          {...{ table, trans }}
          column={filter.column}
          place={filter}
          close={() => {
            setFilter(null);
          }}
        />
      )}
      {table.model.hasOlder && (
        <p className="jp-Slurm-aside">
          <HandoverButton
            className="jp-Slurm-link"
            act={() => {
              table.model.showOlder();
            }}
          >
            {trans.__("Show older jobs")}
          </HandoverButton>
        </p>
      )}
    </>
  );
}

function Panel(props: IPanelProps): React.ReactElement {
  const { table, sessions, trans, acts, width } = props;
  const { model } = table;
  const [isChosen, setFiltering] = React.useState(false);
  const isNarrow = width > 0 ? width < MIN_TABLE_WIDTH : acts.widen !== undefined;
  const isFiltering =
    isChosen || table.criteria.text !== "" || table.showsAllUsers || table.period !== null;
  const bar = { table, trans, acts, width, isNarrow, isFiltering };
  const resources = sessions?.model.resources && (
    <AllResources
      key="resources"
      model={sessions.model.resources}
      clusters={model.clusters.filter(isReached)}
      trans={trans}
    />
  );
  const jobs = (
    <React.Fragment key="jobs">
      <section className="jp-Slurm-jobs" aria-label={trans.__("Jobs")}>
        <FilterBar {...bar} />
        <Jobs {...bar} />
      </section>
      <ActProgress {...{ model, trans }} />
    </React.Fragment>
  );
  return (
    <>
      <TitleBar {...bar} setFiltering={setFiltering} />
      <p
        className="jp-Slurm-notice"
        role="status"
        data-problem={model.problem !== null || silentCluster(model) !== undefined}
      >
        {connectionText(trans, model)}
      </p>
      <Clusters {...{ model, trans }} connect={acts.connect} disconnect={acts.disconnect} />
      {sessions && <Sessions {...sessions} trans={trans} />}
      {/* With keys, the lists that are open stay open where the width changes their place. */}
      {isNarrow ? [jobs, resources] : [resources, jobs]}
      <div className="jp-Slurm-foot jp-Slurm-aside">
        <UpdateTime {...{ model, trans }} />
        <OthersStatus {...{ table, trans }} />
        <span className="jp-Slurm-selected" aria-live="polite">
          {table.marked.length > 0 && trans._n("%1 selected", "%1 selected", table.marked.length)}
        </span>
      </div>
    </>
  );
}

export class JobsPanel extends ReactWidget {
  private _width = 0;
  private readonly _folds = new Set<string>();
  /** Whether the table had the focus last, not the toolbar. */
  private _wasInTable = false;

  constructor(
    readonly table: JobsTable,
    private readonly _trans: TranslationBundle,
    private readonly _acts: IActs,
    private readonly _beside: IBeside = {},
  ) {
    super();
    this.addClass("jp-Slurm-panel");
    this.addClass("jp-Slurm-withTable");
    this.node.tabIndex = -1;
    this.node.addEventListener("focusin", ({ target }) => {
      if (target !== this.node) {
        this._wasInTable = (target as Element).matches(TABLE);
      }
    });
  }

  override dispose(): void {
    this.table.dispose();
    super.dispose();
  }

  protected override onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    this.table.model.refreshQueue();
    this.table.loadAllJobs();
    this.table.loadPastJobs();
    this.update();
  }

  /** Draw again when the width has changed: of a narrow panel the rows have two lines. */
  protected override onResize(msg: Widget.ResizeMessage): void {
    super.onResize(msg);
    if (this.isVisible && this.node.clientWidth !== this._width) {
      this.update();
    }
  }

  protected override onAfterHide(msg: Message): void {
    super.onAfterHide(msg);
    this.update();
  }

  /** Focus the filter, from which an arrow key leads into the table; where the table had the focus last, the table. */
  protected override onActivateRequest(msg: Message): void {
    super.onActivateRequest(msg);
    if (!this.node.contains(document.activeElement)) {
      this.node.focus();
    }
    void this.renderPromise?.then(() => {
      if (document.activeElement === this.node) {
        const first = (this._wasInTable ? [TABLE, FILTER] : [FILTER, TABLE]).map((selector) =>
          this.node.querySelector<HTMLElement>(selector),
        );
        first.find(Boolean)?.focus(); // not after a click on something else
      }
    });
  }

  /** Render nothing while hidden: the side bar has its panel from the start. */
  protected override render(): React.ReactElement {
    if (!this.isVisible) {
      return <></>;
    }
    this._width = this.node.clientWidth;
    const panel = (): React.ReactElement => (
      <UseSignal signal={this.table.changed}>
        {() => (
          <Panel
            table={this.table}
            trans={this._trans}
            acts={this._acts}
            width={this._width}
            {...this._beside}
          />
        )}
      </UseSignal>
    );
    const { sessions } = this._beside;
    return (
      <FoldsContext.Provider value={this._folds}>
        {sessions ? <UseSignal signal={sessions.model.changed}>{panel}</UseSignal> : panel()}
      </FoldsContext.Provider>
    );
  }
}

/** The place of a panel in the side bar, which is made when it is first shown. */
export class SideBar extends PanelWidget {
  constructor(private readonly _make: () => JobsPanel) {
    super();
    this.addClass("jp-Slurm-side");
  }

  /** The panel, once it was shown. */
  get panels(): readonly JobsPanel[] {
    return this.widgets.filter((widget) => widget instanceof JobsPanel);
  }

  /** Focus the panel. Not by activating it: JupyterLab does that too when it restores its layout. */
  enter(): void {
    this.panels[0]?.activate();
  }

  protected override onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    if (this.widgets.length === 0) {
      this.addWidget(this._make());
    }
  }
}
