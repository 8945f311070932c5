/** Plugin that launches sessions and has a page for each. */
import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin,
} from "@jupyterlab/application";
import { ICommandPalette, MainAreaWidget, WidgetTracker } from "@jupyterlab/apputils";
import { ILauncher } from "@jupyterlab/launcher";
import { ITranslator, nullTranslator } from "@jupyterlab/translation";

import { AgentApi } from "../agent_api/agent_api";
import type { ICluster } from "../common/api/objects";
import { CommandIDs, DOMAIN } from "../common/identifiers";
import { IJobsModel } from "../common/jobs_model";
import type { ILaunchForm } from "../common/launch_request";
import { addPage } from "../common/jupyterlab/main_area";
import { addKernel, type IKernelActs } from "../kernels/commands";
import {
  addLaunchCommands,
  addLaunchInJob,
  launchPage,
  stopSession,
  terminalAct,
} from "../sessions/commands";
import { ISessionsModel, type SessionJob } from "../sessions/model";
import type { LaunchPanel } from "../sessions/session_page";
import { saveTemplate } from "../sessions/template_files";

export const launchPlugin: JupyterFrontEndPlugin<void> = {
  id: "jupyter-slurm:launch",
  description:
    "Cards in the launcher that start a session on a node, and the page of each session.",
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
    const { commands, serviceManager } = app;
    const api = new AgentApi(serviceManager.serverSettings);
    const kernels: IKernelActs = { api, specs: serviceManager.kernelspecs, commands, trans };
    const acts = {
      connect: (cluster: ICluster) => void jobs.connect(cluster),
      stop: (job: SessionJob) => void stopSession(trans, model, job),
      openTerminal: terminalAct(commands),
      save: (cluster: ICluster, form: ILaunchForm) =>
        void saveTemplate(app.serviceManager.contents, trans, cluster, form),
      addKernel: (cluster: ICluster, form: ILaunchForm) => void addKernel(kernels, cluster, form),
    };
    addLaunchCommands(app.commands, palette, launcher, jobs, trans, async (place) => {
      const isShown = ({ content }: MainAreaWidget<LaunchPanel>): boolean =>
        content.place.cluster === place.cluster && content.place.session === place.session;
      const page =
        tracker.find(isShown) ??
        launchPage(model, trans, acts, place, (changed) => void tracker.save(changed));
      if (!tracker.has(page)) {
        await tracker.add(page);
        addPage(app, page);
      }
      app.shell.activateById(page.id);
    });
    addLaunchInJob(commands, model, trans);
    if (restorer !== null) {
      void restorer.restore(tracker, {
        command: CommandIDs.launch,
        args: ({ content }) => ({ ...content.place }),
        name: ({ content }) => content.place.page,
      });
    }
  },
};
