/** The panel with the clusters, the sessions and the jobs, in the side bar or in the main area. */
import type { TranslationBundle } from "@jupyterlab/translation";
import { ReactWidget, UseSignal } from "@jupyterlab/ui-components";
import type { Message } from "@lumino/messaging";
import { Panel as PanelWidget } from "@lumino/widgets";
import * as React from "react";

import type { Act, ICluster, IJob } from "../common/api/objects";
import { isReached } from "../common/api/records";
import { connectionText, silentCluster } from "../common/labels";
import { AllResources } from "../resources/view";
import type { ISessionsModel, SessionJob } from "../sessions/model";
import { Sessions } from "../sessions/session_card";
import { ActProgress } from "./act_progress";
import { Clusters } from "./cluster_list";
import { asCsv } from "./table/columns";
import { JobsTable } from "./table/table_model";
import { Table } from "./table/table_view";
import { Toolbar } from "./table/toolbar";

/** Actions of the user in the panel. */
export interface IActs {
  readonly act: (act: Act, jobs: readonly IJob[]) => void;
  readonly open: (job: IJob) => void;
  /** Write a text to the clipboard. */
  readonly write: (text: string) => void;
  readonly connect: (cluster: ICluster) => void;
  readonly disconnect: (cluster: ICluster) => void;
  /** Open the panel in the main area, where it is in the side bar. */
  readonly widen?: () => void;
}

/** The sessions above the jobs, and the actions on one. */
export interface IWithSessions {
  readonly model: ISessionsModel;
  readonly stop: (job: SessionJob) => void;
  readonly show: (job: SessionJob) => void;
}

/** Other contents of the panel. */
export interface IBeside {
  readonly sessions?: IWithSessions | null;
}

interface IPanelProps extends IBeside {
  readonly table: JobsTable;
  readonly trans: TranslationBundle;
  readonly acts: IActs;
}

function Jobs({ table, trans, acts }: IPanelProps): React.ReactElement {
  const { model, lines, criteria } = table;
  const { act, open, write } = acts;
  const isFiltered = criteria.text !== "" || criteria.kinds.size > 0;
  const nothing = isFiltered ? trans.__("No jobs match.") : trans.__("No jobs.");
  const copy = (jobs: readonly IJob[]): void => {
    write(asCsv(jobs));
  };
  return (
    <section className="jp-Slurm-jobs" aria-label={trans.__("Jobs")}>
      <Toolbar {...{ table, trans, acts }} isNarrow={acts.widen !== undefined} />
      <ActProgress {...{ model, trans }} />
      {lines.length === 0 ? (
        // Without a connection nothing is known; the reason stands above.
        <p className="jp-Slurm-empty">{model.connection === "live" ? nothing : ""}</p>
      ) : (
        <Table {...{ table, trans }} acts={{ act, open, copy }} />
      )}
      {model.hasOlder && (
        <p className="jp-Slurm-aside">
          <button
            type="button"
            className="jp-Slurm-link"
            onClick={() => {
              model.showOlder();
            }}
          >
            {trans.__("Show older ones")}
          </button>
        </p>
      )}
    </section>
  );
}

function Panel(props: IPanelProps): React.ReactElement {
  const { table, sessions, trans, acts } = props;
  const { model } = table;
  return (
    <>
      <div className="jp-Slurm-title">
        <h2>
          {table.showsAllUsers ? trans.__("Slurm jobs of all users") : trans.__("My Slurm jobs")}
        </h2>
        <span>
          {acts.widen && (
            <button type="button" className="jp-mod-styled jp-mod-minimal" onClick={acts.widen}>
              {trans.__("Open in a tab")}
            </button>
          )}
          <button
            type="button"
            className="jp-mod-styled jp-mod-minimal"
            onClick={() => {
              model.refresh();
              table.loadAllJobs();
            }}
          >
            {trans.__("Refresh")}
          </button>
        </span>
      </div>
      <p
        className="jp-Slurm-notice"
        role="status"
        data-problem={model.problem !== null || silentCluster(model) !== undefined}
      >
        {connectionText(trans, model)}
      </p>
      <Clusters {...{ model, trans }} connect={acts.connect} disconnect={acts.disconnect} />
      {sessions && <Sessions {...sessions} trans={trans} />}
      {sessions?.model.resources && (
        <AllResources
          model={sessions.model.resources}
          clusters={model.clusters.filter(isReached)}
          trans={trans}
        />
      )}
      <Jobs {...props} />
    </>
  );
}

export class JobsPanel extends ReactWidget {
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
  }

  override dispose(): void {
    this.table.dispose();
    super.dispose();
  }

  protected override onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    this.table.model.refreshQueue();
    this.table.loadAllJobs();
    this.update();
  }

  protected override onAfterHide(msg: Message): void {
    super.onAfterHide(msg);
    this.update();
  }

  /** Focus the filter, from which an arrow key leads into the table. */
  protected override onActivateRequest(msg: Message): void {
    super.onActivateRequest(msg);
    if (!this.node.contains(document.activeElement)) {
      this.node.focus();
    }
    void this.renderPromise?.then(() => {
      if (document.activeElement === this.node) {
        this.node.querySelector<HTMLElement>(".jp-Slurm-filter")?.focus(); // not after a click on something else
      }
    });
  }

  /** Render nothing while hidden: the side bar has its panel from the start. */
  protected override render(): React.ReactElement {
    if (!this.isVisible) {
      return <></>;
    }
    const panel = (): React.ReactElement => (
      <UseSignal signal={this.table.changed}>
        {() => <Panel table={this.table} trans={this._trans} acts={this._acts} {...this._beside} />}
      </UseSignal>
    );
    const { sessions } = this._beside;
    return sessions ? (
      <UseSignal signal={sessions.model.changed}>{panel}</UseSignal>
    ) : (
      <>{panel()}</>
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
