/** The plugin of the model of sessions. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { IStateDB } from "@jupyterlab/statedb";

import { memoryIn } from "../launching";
import { AgentApi } from "../request";
import { ISessionsModel, SessionsModel } from "../sessions";
import { IJobsModel } from "../tokens";

export const sessionsPlugin: JupyterFrontEndPlugin<ISessionsModel> = {
  id: "jupyter-slurm:sessions",
  description: "The person's sessions: Jupyters that Slurm jobs run.",
  provides: ISessionsModel,
  autoStart: true,
  requires: [IJobsModel],
  optional: [IStateDB],
  activate: (app: JupyterFrontEnd, jobs: IJobsModel, state: IStateDB | null): ISessionsModel =>
    new SessionsModel(new AgentApi(app.serviceManager.serverSettings), jobs, memoryIn(state)),
};
