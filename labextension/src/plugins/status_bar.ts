/** Plugins of the items in the status bar: the number of jobs, and the session that JupyterLab runs in. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { IStatusBar } from "@jupyterlab/statusbar";
import { ITranslator, nullTranslator } from "@jupyterlab/translation";

import type { IJob } from "../common/api/objects";
import { CommandIDs, DOMAIN } from "../common/identifiers";
import { IJobsModel } from "../common/jobs_model";
import { openJob } from "../jobs/commands";
import { StatusItem } from "../jobs/status_item";
import { ownSession } from "../sessions/own_session";
import { OwnSessionItem } from "../sessions/own_session_item";

export const statusPlugin: JupyterFrontEndPlugin<void> = {
  id: "jupyter-slurm:status",
  description: "How many Slurm jobs run and wait, in the status bar.",
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
  },
};

export const ownSessionPlugin: JupyterFrontEndPlugin<void> = {
  id: "jupyter-slurm:own-session",
  description:
    "In the pages of a session: its name, its node and its time left, in the status bar.",
  autoStart: true,
  requires: [IJobsModel],
  optional: [IStatusBar, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    model: IJobsModel,
    statusBar: IStatusBar | null,
    translator: ITranslator | null,
  ): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const own = ownSession(model);
    if (own !== null) {
      const open = (job: IJob | null): void => void openJob(app.commands, job);
      const item = new OwnSessionItem({ own, trans, open });
      statusBar?.registerStatusItem("jupyter-slurm:own-session", { item, align: "left", rank: 49 });
    }
  },
};
