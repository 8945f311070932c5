/** Plugin of the commands that belong to no single view; the menu and the keys are in its schema. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ICommandPalette } from "@jupyterlab/apputils";
import { ITranslator, nullTranslator } from "@jupyterlab/translation";

import { CommandIDs, DOMAIN } from "../common/identifiers";
import { IJobsModel } from "../common/jobs_model";
import { addToPalette } from "../common/jupyterlab/palette";
import { addJobCommands } from "../jobs/commands";
import { addConnectionCommands } from "../logins/connection_commands";

export const commandsPlugin: JupyterFrontEndPlugin<void> = {
  id: "jupyter-slurm:commands",
  description: "Commands for logins and jobs, the Slurm menu, and keyboard shortcuts.",
  autoStart: true,
  requires: [IJobsModel],
  optional: [ITranslator, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    model: IJobsModel,
    translator: ITranslator | null,
    palette: ICommandPalette | null,
  ): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    addConnectionCommands(app.commands, palette, model, trans);
    addJobCommands(app.commands, model, trans);
    for (const command of [CommandIDs.openJobById, CommandIDs.cancel]) {
      addToPalette(palette, command);
    }
  },
};
