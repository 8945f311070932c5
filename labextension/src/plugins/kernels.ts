/** The plugin of kernels on nodes: a command that removes them, and an item of the status bar that tells of the one in front. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ICommandPalette } from "@jupyterlab/apputils";
import { IStatusBar } from "@jupyterlab/statusbar";
import { ITranslator, nullTranslator } from "@jupyterlab/translation";
import type { Widget } from "@lumino/widgets";

import { KernelItem } from "../components/kernel";
import { openJob } from "../job-commands";
import { addKernelCommands, startsHere } from "../kernel-commands";
import { KernelWatch, type IContext } from "../kernel-watch";
import { AgentApi } from "../request";
import { DOMAIN, IJobsModel } from "../tokens";

/** How often a place that is not known yet is asked for, in milliseconds. */
const TICK = 5_000;

/** What has a kernel: a notebook, a console. */
function contextOf(widget: Widget | null): IContext | null {
  return (widget as { sessionContext?: IContext } | null)?.sessionContext ?? null;
}

export const kernelsPlugin: JupyterFrontEndPlugin<void> = {
  id: "jupyter-slurm:kernels",
  description: "Kernels that run on nodes, and how long the one of the notebook in front has yet.",
  autoStart: true,
  requires: [IJobsModel],
  optional: [IStatusBar, ITranslator, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    jobs: IJobsModel,
    statusBar: IStatusBar | null,
    translator: ITranslator | null,
    palette: ICommandPalette | null,
  ): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const { commands, shell, serviceManager } = app;
    const [api, specs] = [new AgentApi(serviceManager.serverSettings), serviceManager.kernelspecs];
    addKernelCommands({ api, specs, commands, trans }, palette);
    if (statusBar === null) {
      return; // Notebook 7 has none: there is nothing to be followed
    }
    const watch = new KernelWatch(api, jobs, (name) => startsHere(specs, name));
    const follow = (): void => {
      watch.follow(contextOf(shell.currentWidget));
    };
    shell.currentChanged?.connect(follow);
    follow();
    setInterval(() => {
      if (!document.hidden) {
        watch.tick();
      }
    }, TICK);
    statusBar.registerStatusItem("jupyter-slurm:kernel", {
      item: new KernelItem(watch, jobs, trans, (job) => void openJob(commands, job)),
      align: "left",
      rank: 51,
      isActive: () => watch.shown !== null,
      activeStateChanged: watch.changed,
    });
  },
};
