/** The item in the status bar. */
import type { TranslationBundle } from "@jupyterlab/translation";
import { ReactWidget, UseSignal } from "@jupyterlab/ui-components";
import * as React from "react";

import type { IJobsModel } from "../common/jobs_model";
import { isOutdated } from "../common/freshness";
import { connectionText, pendingPrompt, statusSummary } from "../common/labels";

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
            title={connectionText(this._trans, this._model) || this._trans.__("Show my Slurm jobs")}
            onClick={this._open}
          >
            {statusSummary(this._trans, this._model)}
          </button>
        )}
      </UseSignal>
    );
  }
}
