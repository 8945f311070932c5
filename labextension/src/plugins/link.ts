/** The plugin of addresses that lead to a job: `…/lab?slurm-job=CLUSTER/JOB`. */
import { IRouter, type JupyterFrontEnd, type JupyterFrontEndPlugin } from "@jupyterlab/application";

import { CommandIDs } from "../commands";

const NAME = "slurm-job";
const FOLLOW = "jupyter-slurm:follow-link";

export const linkPlugin: JupyterFrontEndPlugin<void> = {
  id: "jupyter-slurm:link",
  description: "Opens the job that the address of the page names.",
  autoStart: true,
  requires: [IRouter],
  activate: (app: JupyterFrontEnd, router: IRouter): void => {
    const { commands } = app;
    const follow = async ({ path, search = "", hash }: IRouter.ILocation): Promise<void> => {
      const asked = new URLSearchParams(search);
      const [cluster = "", job = ""] = (asked.get(NAME) ?? "").split("/");
      asked.delete(NAME);
      await app.restored; // before that, what opens is closed again
      const left = asked.size > 0 ? `?${asked.toString()}` : "";
      router.navigate(path + left + hash, { skipRouting: true });
      const command = commands.hasCommand(CommandIDs.openJob)
        ? CommandIDs.openJob
        : CommandIDs.select;
      if (cluster !== "" && job !== "" && commands.hasCommand(command)) {
        await commands.execute(command, { cluster, job });
      }
    };
    commands.addCommand(FOLLOW, {
      execute: () => {
        void follow(router.current); // what restores the page waits for the end of this
      },
    });
    router.register({
      command: FOLLOW,
      pattern: new RegExp(`[?&]${NAME}=`),
      rank: 30,
    });
  },
};
