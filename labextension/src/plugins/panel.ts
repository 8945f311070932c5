/** The plugin of the table of jobs. */
import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin,
} from "@jupyterlab/application";
import { ICommandPalette, MainAreaWidget, WidgetTracker } from "@jupyterlab/apputils";
import { ILauncher } from "@jupyterlab/launcher";
import { ITranslator, nullTranslator } from "@jupyterlab/translation";
import { listIcon } from "@jupyterlab/ui-components";

import { cancelJob, CommandIDs, disconnect } from "../commands";
import { JobsPanel } from "../components/panel";
import { stopSession } from "../launching";
import { addPage } from "../place";
import { ISessionsModel, type SessionJob } from "../sessions";
import { DOMAIN, IJobsModel, type ICluster, type IJob } from "../tokens";

export const panelPlugin: JupyterFrontEndPlugin<void> = {
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
          addPage(app, widget);
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
