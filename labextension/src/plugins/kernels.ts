/**
 * Plugin of remote kernels: commands that remove them and that move notebooks to them, and an item in the status bar
 * for the kernel in front.
 */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ICommandPalette } from "@jupyterlab/apputils";
import { IStatusBar } from "@jupyterlab/statusbar";
import { ITranslator, nullTranslator } from "@jupyterlab/translation";
import type { Widget } from "@lumino/widgets";

import { AgentApi } from "../agent_api/agent_api";
import { DOMAIN } from "../common/identifiers";
import { IJobsModel } from "../common/jobs_model";
import { openJob } from "../jobs/commands";
import { addKernelCommands, isSlurmKernel } from "../kernels/commands";
import { KernelWatch, type IContext } from "../kernels/kernel_watch";
import {
  addMoveCommands,
  confirmGiveUp,
  displayName,
  showMoveNotices,
} from "../kernels/move_commands";
import { Moves } from "../kernels/move_model";
import { KernelItem } from "../kernels/status_item";

/** Interval of requests for an allocation that is not known yet, in milliseconds. */
const PLACE_POLL_MS = 5_000;

/** Return the context of a widget with a kernel: a notebook or a console. */
function contextOf(widget: Widget | null): IContext | null {
  return (widget as { sessionContext?: IContext } | null)?.sessionContext ?? null;
}

export const kernelsPlugin: JupyterFrontEndPlugin<void> = {
  id: "jupyter-slurm:kernels",
  description:
    "Remote kernels: commands, and the time left of the kernel of the notebook in front.",
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
    showMoveNotices(acts);
    if (statusBar === null) {
      return; // Notebook 7 has none, so that nothing is followed
    }
    const watch = new KernelWatch(api, jobs, (name) => isSlurmKernel(specs, name), moves);
    const follow = (): void => {
      watch.follow(front());
    };
    const isShown = (): boolean => watch.kernelState !== null || watch.move !== null;
    shell.currentChanged?.connect(follow);
    specs.specsChanged.connect(watch.recheck);
    follow();
    setInterval(() => {
      if (!document.hidden) {
        watch.poll();
      }
    }, PLACE_POLL_MS);
    statusBar.registerStatusItem("jupyter-slurm:kernel", {
      item: new KernelItem(watch, jobs, trans, {
        open: (job) => void openJob(commands, job),
        shownAs: (kernel) => displayName(specs, kernel),
        giveUp: (move) => void confirmGiveUp(acts, move),
      }),
      align: "left",
      rank: 51,
      isActive: isShown,
      activeStateChanged: watch.changed,
    });
  },
};
