/** Plugin of the item in the status bar. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { IStatusBar } from "@jupyterlab/statusbar";
import { ITranslator, nullTranslator } from "@jupyterlab/translation";

import { CommandIDs, DOMAIN } from "../common/identifiers";
import { IJobsModel } from "../common/jobs_model";
import { FailedItem, StatusItem } from "../jobs/status_item";

export const statusPlugin: JupyterFrontEndPlugin<void> = {
  id: "jupyter-slurm:status",
  description: "Numbers of running, pending and failed Slurm jobs in the status bar.",
  autoStart: true,
  requires: [IJobsModel],
  optional: [IStatusBar, ITranslator], // Notebook 7 has no status bar
  activate: (
    app: JupyterFrontEnd,
    model: IJobsModel,
    statusBar: IStatusBar | null,
    translator: ITranslator | null,
  ): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const item = new StatusItem(model, trans, () => void app.commands.execute(CommandIDs.open));
    statusBar?.registerStatusItem("jupyter-slurm:status", { item, align: "left", rank: 50 });
    const failed = new FailedItem(
      model,
      trans,
      () => void app.commands.execute(CommandIDs.open, { kind: "failed" }),
    );
    statusBar?.registerStatusItem("jupyter-slurm:failed", {
      item: failed,
      align: "left",
      rank: 51,
      isActive: () => failed.count > 0,
      activeStateChanged: model.changed,
    });
  },
};
