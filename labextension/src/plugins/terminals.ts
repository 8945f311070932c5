/** Plugin of terminals on clusters; where the Jupyter server allows no terminals, there are none. */
import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin,
} from "@jupyterlab/application";
import { ICommandPalette, IThemeManager, WidgetTracker } from "@jupyterlab/apputils";
import { PageConfig } from "@jupyterlab/coreutils";
import { ILauncher } from "@jupyterlab/launcher";
import { ITranslator, nullTranslator } from "@jupyterlab/translation";

import { AgentApi } from "../agent_api/agent_api";
import { CommandIDs, DOMAIN } from "../common/identifiers";
import { IJobsModel } from "../common/jobs_model";
import { addPage } from "../common/jupyterlab/main_area";
import { nameOfCluster } from "../common/labels";
import { addTerminalCommand } from "../terminals/commands";
import type { ITerminalLocation } from "../terminals/model";
import { terminalPage, type TerminalPage } from "../terminals/page";

export const terminalsPlugin: JupyterFrontEndPlugin<void> = {
  id: "jupyter-slurm:terminals",
  description: "Terminals on the login nodes of clusters and inside running jobs.",
  autoStart: true,
  requires: [IJobsModel],
  optional: [ITranslator, ICommandPalette, ILayoutRestorer, ILauncher, IThemeManager],
  activate: (
    app: JupyterFrontEnd,
    model: IJobsModel,
    given: ITranslator | null,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null,
    launcher: ILauncher | null,
    themes: IThemeManager | null,
  ): void => {
    if (PageConfig.getOption("jupyterSlurmHasTerminals") !== "true") {
      return;
    }
    const translator = given ?? nullTranslator;
    const trans = translator.load(DOMAIN);
    const api = new AgentApi(app.serviceManager.serverSettings);
    const tracker = new WidgetTracker<TerminalPage>({ namespace: "jupyter-slurm-terminal" });
    const find = (place: ITerminalLocation): TerminalPage | undefined =>
      tracker.find(
        (page) => page.place.cluster === place.cluster && page.place.terminal === place.terminal,
      );
    const open = async (place: ITerminalLocation): Promise<void> => {
      const page =
        find(place) ??
        terminalPage(api, translator, trans, place, nameOfCluster(model, place.cluster));
      if (!tracker.has(page)) {
        await tracker.add(page);
        addPage(app, page);
      }
      app.shell.activateById(page.id);
    };
    const isShown = (place: ITerminalLocation): boolean => find(place) !== undefined;
    const acts = { api, model, trans, commands: app.commands, open, isShown };
    addTerminalCommand(acts, palette, launcher);
    themes?.themeChanged.connect(() => {
      tracker.forEach(({ content }) => {
        content.setOption("theme", "inherit");
      });
    });
    if (restorer !== null) {
      void restorer.restore(tracker, {
        command: CommandIDs.terminal,
        args: ({ place }) => ({ ...place }),
        name: ({ place }) => `${place.cluster}:${place.terminal}`,
      });
    }
  },
};
