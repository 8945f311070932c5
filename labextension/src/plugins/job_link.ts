/** Plugin of the links to jobs. */
import { IRouter, type JupyterFrontEnd, type JupyterFrontEndPlugin } from "@jupyterlab/application";

import { CommandIDs } from "../common/identifiers";
import { LINK_PARAMETER, parseJobLink } from "../job_page/job_link";

const FOLLOW = "jupyter-slurm:follow-link";

export const linkPlugin: JupyterFrontEndPlugin<void> = {
  id: "jupyter-slurm:link",
  description: "Opens the job that the address of the page names.",
  autoStart: true,
  requires: [IRouter],
  activate: (app: JupyterFrontEnd, router: IRouter): void => {
    const { commands } = app;
    const follow = async ({ path, search = "", hash }: IRouter.ILocation): Promise<void> => {
      const { place, rest } = parseJobLink(search);
      await app.restored; // an earlier page would be closed again
      router.navigate(path + rest + hash, { skipRouting: true });
      const command = commands.hasCommand(CommandIDs.openJob)
        ? CommandIDs.openJob
        : CommandIDs.select;
      if (place !== null && commands.hasCommand(command)) {
        await commands.execute(command, { ...place });
      }
    };
    commands.addCommand(FOLLOW, {
      execute: () => {
        void follow(router.current); // the restorer of the page waits for the end of this command
      },
    });
    router.register({
      command: FOLLOW,
      pattern: new RegExp(`[?&]${LINK_PARAMETER}=`),
      rank: 30,
    });
  },
};
