/** Plugin that submits scripts from the file browser. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ICommandPalette } from "@jupyterlab/apputils";
import { ITranslator, nullTranslator } from "@jupyterlab/translation";

import { AgentApi } from "../agent_api";
import { CommandIDs, DOMAIN } from "../common/identifiers";
import { addPage } from "../common/jupyterlab/main_area";
import { addToPalette, commandLabel } from "../common/jupyterlab/palette";
import { openJob } from "../jobs/commands";
import { isScript, submitScript, type IScriptActs } from "../jobs/actions/script_submission";
import { gpuIcon } from "../sessions/commands";
import { ISessionsModel } from "../sessions/model";

/** ID of JupyterLab's file browser. */
const BROWSER = "filebrowser";

/** The part of the file browser that the plugin needs, without a dependency on its package. */
interface IFileBrowser {
  readonly selectedItems?: () => Iterable<{ readonly path: string; readonly type: string }>;
}

/** Return the only script that is selected in the file browser; empty: none. */
function selectedScript({ shell }: JupyterFrontEnd): string {
  const browser = [...shell.widgets("left")].find(({ id }) => id === BROWSER) as
    IFileBrowser | undefined;
  const [first, ...more] = [...(browser?.selectedItems?.() ?? [])];
  return first && more.length === 0 && isScript(first.path) ? first.path : "";
}

export const scriptPlugin: JupyterFrontEndPlugin<void> = {
  id: "jupyter-slurm:script",
  description: "Submits a script of the file browser as a job.",
  autoStart: true,
  requires: [ISessionsModel],
  optional: [ITranslator, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    model: ISessionsModel,
    translator: ITranslator | null,
    palette: ICommandPalette | null,
  ): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const { commands, serviceManager } = app;
    const acts: IScriptActs = {
      api: new AgentApi(serviceManager.serverSettings),
      contents: serviceManager.contents,
      open: (job) => void openJob(commands, job),
      show: (page) => {
        page.title.icon = gpuIcon;
        addPage(app, page);
        app.shell.activateById(page.id);
      },
      ...{ model, trans },
    };
    commands.addCommand(CommandIDs.submitScript, {
      label: (args) =>
        args["isPalette"] === true || args["isMenu"] === true
          ? commandLabel(trans, trans.__("Submit a Script…"), args)
          : trans.__("Run with sbatch…"),
      caption: trans.__("Submit a script as a Slurm job"),
      // In the context menu, only for a script.
      isVisible: ({ isContext }) => isContext !== true || selectedScript(app) !== "",
      execute: async ({ path, isContext }) => {
        const selected = isContext === true ? selectedScript(app) : "";
        await submitScript(acts, typeof path === "string" ? path : selected);
      },
    });
    addToPalette(palette, CommandIDs.submitScript);
  },
};
