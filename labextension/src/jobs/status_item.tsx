/** The items in the status bar. */
import type { TranslationBundle } from "@jupyterlab/translation";
import { ReactWidget, UseSignal } from "@jupyterlab/ui-components";
import * as React from "react";

import type { IJobsModel } from "../common/jobs_model";
import { isOutdated } from "../common/freshness";
import { connectionText, pendingPrompt, statusSummary } from "../common/labels";
import { countKinds } from "./table/row_order";

export class StatusItem extends ReactWidget {
  constructor(
    private readonly _model: IJobsModel,
    private readonly _trans: TranslationBundle,
    private readonly _open: () => void,
  ) {
    super();
    this.addClass("jp-Slurm-status");
  }

  protected override render(): React.ReactElement {
    return (
      <UseSignal signal={this._model.changed}>
        {() => (
          <button
            type="button"
            data-connection={this._model.connection}
            data-old={isOutdated(this._model)}
            data-wanted={pendingPrompt(this._model) !== undefined}
            title={connectionText(this._trans, this._model) || this._trans.__("Show your jobs")}
            onClick={this._open}
          >
            {statusSummary(this._trans, this._model)}
          </button>
        )}
      </UseSignal>
    );
  }
}

/** How many of the listed jobs have failed: a link to them. */
export class FailedItem extends ReactWidget {
  constructor(
    private readonly _model: IJobsModel,
    private readonly _trans: TranslationBundle,
    private readonly _open: () => void,
  ) {
    super();
    this.addClass("jp-Slurm-failedStatus");
  }

  get count(): number {
    return countKinds(this._model.jobs).get("failed") ?? 0;
  }

  protected override render(): React.ReactElement {
    return (
      <UseSignal signal={this._model.changed}>
        {() => (
          <button
            type="button"
            title={this._trans.__("Show the jobs that have failed")}
            onClick={this._open}
          >
            {this._trans._n("%1 failed", "%1 failed", this.count)}
          </button>
        )}
      </UseSignal>
    );
  }
}
