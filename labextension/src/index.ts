/**
 * The plugins: the models, the pages that launch sessions, the panel with its commands, the dialogs of log-ins, and the item
 * in the status bar. Each can be switched off alone.
 */
import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin,
} from "@jupyterlab/application";
import { ICommandPalette, MainAreaWidget, WidgetTracker } from "@jupyterlab/apputils";
import { ILauncher } from "@jupyterlab/launcher";
import { IStateDB } from "@jupyterlab/statedb";
import { IStatusBar } from "@jupyterlab/statusbar";
import { ITranslator, nullTranslator } from "@jupyterlab/translation";
import { listIcon } from "@jupyterlab/ui-components";

import { addConnecting, cancelJob, CommandIDs, disconnect } from "./commands";
import type { LaunchPanel } from "./components/launcher";
import { JobsPanel } from "./components/panel";
import { StatusItem } from "./components/status";
import { addLaunching, launchPage, memoryIn, stopSession } from "./launching";
import { Leftovers } from "./leftovers";
import { JobsModel } from "./model";
import { PromptDialogs } from "./prompts";
import { AgentApi } from "./request";
import { ISessionsModel, SessionsModel, type SessionJob } from "./sessions";
import { IJobsModel, type ICluster, type IJob } from "./tokens";

const DOMAIN = "jupyter_slurm";

const modelPlugin: JupyterFrontEndPlugin<IJobsModel> = {
  id: "jupyter-slurm:model",
  description: "Keeps the person's Slurm jobs up to date while the tab is visible.",
  provides: IJobsModel,
  autoStart: true,
  activate: (app: JupyterFrontEnd): IJobsModel => {
    const api = new AgentApi(app.serviceManager.serverSettings);
    const model = new JobsModel({ api, visible: !document.hidden });
    document.addEventListener("visibilitychange", () => {
      model.setVisible(!document.hidden);
    });
    return model;
  },
};

const sessionsPlugin: JupyterFrontEndPlugin<ISessionsModel> = {
  id: "jupyter-slurm:sessions",
  description: "The person's sessions: Jupyters that Slurm jobs run.",
  provides: ISessionsModel,
  autoStart: true,
  requires: [IJobsModel],
  optional: [IStateDB],
  activate: (app: JupyterFrontEnd, jobs: IJobsModel, state: IStateDB | null): ISessionsModel =>
    new SessionsModel(new AgentApi(app.serviceManager.serverSettings), jobs, memoryIn(state)),
};

const launchPlugin: JupyterFrontEndPlugin<void> = {
  id: "jupyter-slurm:launch",
  description:
    "Cards in the launcher that start a Jupyter on a node, and the page of each session.",
  autoStart: true,
  requires: [IJobsModel, ISessionsModel],
  optional: [ITranslator, ICommandPalette, ILayoutRestorer, ILauncher],
  activate: (
    app: JupyterFrontEnd,
    jobs: IJobsModel,
    model: ISessionsModel,
    translator: ITranslator | null,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null,
    launcher: ILauncher | null,
  ): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const tracker = new WidgetTracker<MainAreaWidget<LaunchPanel>>({
      namespace: "jupyter-slurm-launch",
    });
    const acts = {
      connect: (cluster: ICluster) => void jobs.connect(cluster),
      stop: (job: SessionJob) => void stopSession(trans, model, job),
    };
    addLaunching(app.commands, palette, launcher, jobs, trans, async (place) => {
      const isShown = ({ content }: MainAreaWidget<LaunchPanel>): boolean =>
        content.place.cluster === place.cluster && content.place.session === place.session;
      const page =
        tracker.find(isShown) ??
        launchPage(model, trans, acts, place, (changed) => void tracker.save(changed));
      if (!tracker.has(page)) {
        await tracker.add(page);
        app.shell.add(page, "main");
      }
      app.shell.activateById(page.id);
    });
    if (restorer !== null) {
      void restorer.restore(tracker, {
        command: CommandIDs.launch,
        args: ({ content }) => ({ ...content.place }),
        name: ({ content }) => content.place.page,
      });
    }
  },
};

const panelPlugin: JupyterFrontEndPlugin<void> = {
  id: "jupyter-slurm:panel",
  description: "The table of the person's Slurm jobs, and the commands that open and refresh it.",
  autoStart: true,
  requires: [IJobsModel],
  optional: [ITranslator, ICommandPalette, ILayoutRestorer, ILauncher, ISessionsModel],
  activate: (
    app: JupyterFrontEnd,
    model: IJobsModel,
    translator: ITranslator | null,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null,
    launcher: ILauncher | null,
    sessions: ISessionsModel | null,
  ): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const above = sessions && {
      model: sessions,
      stop: (job: SessionJob) => void stopSession(trans, sessions, job),
      show: ({ cluster, key }: SessionJob) =>
        void app.commands.execute(CommandIDs.launch, { cluster, session: key }),
    };
    const tracker = new WidgetTracker<MainAreaWidget<JobsPanel>>({ namespace: "jupyter-slurm" });
    const create = (): MainAreaWidget<JobsPanel> => {
      const acts = {
        cancel: (job: IJob) => void cancelJob(trans, model, job),
        connect: (cluster: ICluster) => void model.connect(cluster),
        disconnect: (cluster: ICluster) => void disconnect(trans, model, cluster),
      };
      const content = new JobsPanel(model, trans, acts, above);
      const widget = new MainAreaWidget({ content });
      widget.id = "jupyter-slurm-panel";
      widget.toolbar.hide(); // an empty one would be a stripe above the table
      widget.title.label = trans.__("Slurm jobs");
      widget.title.icon = listIcon;
      widget.title.closable = true;
      return widget;
    };
    app.commands.addCommand(CommandIDs.open, {
      // The palette shows the category, "Slurm", before it; a card of the launcher has room for two words.
      label: ({ isPalette, isCard }) =>
        isCard
          ? trans.__("Slurm Jobs")
          : isPalette
            ? trans.__("Show Jobs")
            : trans.__("Show Slurm Jobs"),
      icon: ({ isPalette }) => (isPalette ? undefined : listIcon),
      caption: trans.__("Open the table of one's own Slurm jobs"),
      execute: async () => {
        const widget = tracker.currentWidget ?? create();
        if (!tracker.has(widget)) {
          await tracker.add(widget);
          app.shell.add(widget, "main");
        }
        app.shell.activateById(widget.id);
      },
    });
    app.commands.addCommand(CommandIDs.refresh, {
      label: ({ isPalette }) =>
        isPalette ? trans.__("Refresh Jobs") : trans.__("Refresh Slurm Jobs"),
      execute: () => {
        model.refresh();
      },
    });
    addConnecting(app.commands, palette, model, trans);
    for (const command of [CommandIDs.open, CommandIDs.refresh]) {
      palette?.addItem({ command, category: "Slurm", args: { isPalette: true } });
    }
    launcher?.add({
      command: CommandIDs.open,
      category: "Slurm",
      rank: 100,
      args: { isCard: true },
    });
    if (restorer !== null) {
      void restorer.restore(tracker, { command: CommandIDs.open, name: () => "jobs" });
    }
  },
};

const statusPlugin: JupyterFrontEndPlugin<void> = {
  id: "jupyter-slurm:status",
  description: "How many Slurm jobs run and wait, in the status bar.",
  autoStart: true,
  requires: [IJobsModel, IStatusBar],
  optional: [ITranslator],
  activate: (
    app: JupyterFrontEnd,
    model: IJobsModel,
    statusBar: IStatusBar,
    translator: ITranslator | null,
  ): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const item = new StatusItem(model, trans, () => void app.commands.execute(CommandIDs.open));
    statusBar.registerStatusItem("jupyter-slurm:status", { item, align: "left", rank: 50 });
  },
};

const promptsPlugin: JupyterFrontEndPlugin<void> = {
  id: "jupyter-slurm:prompts",
  description: "Dialogs for what hosts ask during a log-in, whoever began it.",
  autoStart: true,
  requires: [IJobsModel],
  optional: [ITranslator],
  activate: (app: JupyterFrontEnd, model: IJobsModel, translator: ITranslator | null): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    void app.restored.then(() => new PromptDialogs(model, trans)); // before that a dialog is under the splash screen
    new Leftovers(model);
  },
};

export { ISessionsModel } from "./sessions";
export { IJobsModel } from "./tokens";
export default [
  modelPlugin,
  sessionsPlugin,
  launchPlugin,
  panelPlugin,
  promptsPlugin,
  statusPlugin,
];
