/** Plugin that submits scripts from the file browser. */
import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin,
} from "@jupyterlab/application";
import { ICommandPalette, WidgetTracker, type MainAreaWidget } from "@jupyterlab/apputils";
import { ITranslator, nullTranslator } from "@jupyterlab/translation";

import { AgentApi } from "../agent_api/agent_api";
import { CommandIDs, DOMAIN } from "../common/identifiers";
import { addPage } from "../common/jupyterlab/main_area";
import { contextIcon } from "../common/jupyterlab/menu_icons";
import { addToPalette, commandLabel } from "../common/jupyterlab/palette";
import { FilesApi } from "../files/api";
import { locateFile } from "../files/server_paths";
import { openJob } from "../jobs/commands";
import type { ScriptPanel } from "../jobs/actions/script_form";
import {
  isScript,
  restoreScript,
  submitScript,
  type IScriptActs,
} from "../jobs/actions/script_submission";
import { gpuIcon } from "../sessions/commands";
import { ISessionsModel } from "../sessions/model";

/** Time for which the layout of JupyterLab waits for a form, in milliseconds; a later one is added at the end. */
const RESTORE_WAIT_MS = 3_000;

/** The part of the file browser that the plugin needs, without a dependency on its package. */
interface IFileBrowser {
  readonly selectedItems?: () => Iterable<{ readonly path: string; readonly type: string }>;
}

/** Return the only script that is selected in the file browser with an ID; empty: none. */
function selectedScript({ shell }: JupyterFrontEnd, id: unknown): string {
  const browser = [...shell.widgets("left")].find((widget) => widget.id === id) as
    IFileBrowser | undefined;
  const [first, ...more] = [...(browser?.selectedItems?.() ?? [])];
  return first && more.length === 0 && isScript(first.path) ? first.path : "";
}

export const scriptPlugin: JupyterFrontEndPlugin<void> = {
  id: "jupyter-slurm:script",
  description: "Submits a script of the file browser as a job.",
  autoStart: true,
  requires: [ISessionsModel],
  optional: [ITranslator, ICommandPalette, ILayoutRestorer],
  activate: (
    app: JupyterFrontEnd,
    model: ISessionsModel,
    translator: ITranslator | null,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null,
  ): void => {
    const tracker = new WidgetTracker<MainAreaWidget<ScriptPanel>>({
      namespace: "jupyter-slurm-script",
    });
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const { commands, serviceManager } = app;
    const { contents } = serviceManager;
    const api = new AgentApi(serviceManager.serverSettings);
    const files = new FilesApi(api);
    const acts: IScriptActs = {
      api,
      locate: (path) => locateFile(contents, files, trans, path),
      contents,
      open: (job) => void openJob(commands, job),
      show: (page) => {
        page.title.icon = gpuIcon;
        void tracker.add(page);
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
      icon: (args) => contextIcon(gpuIcon, args),
      // The context menu of a file browser gives the ID of the browser (`schema/commands.json`): only for a script.
      isVisible: ({ browser }) => browser === undefined || selectedScript(app, browser) !== "",
      execute: async ({ path, cluster, browser }) => {
        if (typeof path === "string" && typeof cluster === "string") {
          const restored = restoreScript(acts, { path, cluster }).catch(() => undefined); // the file is gone
          const late = new Promise((resolve) => setTimeout(resolve, RESTORE_WAIT_MS));
          await Promise.race([restored, late]);
          return;
        }
        const selected = selectedScript(app, browser);
        await submitScript(acts, typeof path === "string" ? path : selected);
      },
    });
    addToPalette(palette, CommandIDs.submitScript);
    if (restorer !== null) {
      void restorer.restore(tracker, {
        command: CommandIDs.submitScript,
        args: ({ content }) => ({ ...content.place }),
        name: ({ content }) => `${content.place.cluster}/${content.place.path}`,
      });
    }
  },
};
