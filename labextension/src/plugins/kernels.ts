/**
 * The plugin of kernels on nodes: commands that remove them and that move notebooks to them, and an item of the status bar that
 * tells of the one in front.
 */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ICommandPalette } from "@jupyterlab/apputils";
import { IStatusBar } from "@jupyterlab/statusbar";
import { ITranslator, nullTranslator } from "@jupyterlab/translation";
import type { Widget } from "@lumino/widgets";

import { AgentApi } from "../agent_api";
import { DOMAIN } from "../common/identifiers";
import { IJobsModel } from "../common/jobs_model";
import { openJob } from "../jobs/commands";
import { addKernelCommands, startsHere } from "../kernels/commands";
import { KernelWatch, type IContext } from "../kernels/kernel_watch";
import { addMoveCommands, giveUp, shownAs, tellMoves } from "../kernels/move_commands";
import { Moves } from "../kernels/move_model";
import { KernelItem } from "../kernels/status_item";

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
    const [moves, { sessions }] = [new Moves(api), serviceManager];
    const front = (): IContext | null => contextOf(shell.currentWidget);
    const acts = { api, moves, specs, sessions, commands, trans, front };
    addMoveCommands(acts, palette);
    tellMoves(acts);
    if (statusBar === null) {
      return; // Notebook 7 has none: there is nothing to be followed
    }
    const watch = new KernelWatch(api, jobs, (name) => startsHere(specs, name), moves);
    const follow = (): void => {
      watch.follow(front());
    };
    const isShown = (): boolean => watch.shown !== null || watch.move !== null;
    shell.currentChanged?.connect(follow);
    specs.specsChanged.connect(watch.again);
    follow();
    setInterval(() => {
      if (!document.hidden) {
        watch.tick();
      }
    }, TICK);
    statusBar.registerStatusItem("jupyter-slurm:kernel", {
      item: new KernelItem(watch, jobs, trans, {
        open: (job) => void openJob(commands, job),
        shownAs: (kernel) => shownAs(specs, kernel),
        giveUp: (move) => void giveUp(acts, move),
      }),
      align: "left",
      rank: 51,
      isActive: isShown,
      activeStateChanged: watch.changed,
    });
  },
};
