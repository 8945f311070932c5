/** Plugin of the model of the sessions. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { IStateDB } from "@jupyterlab/statedb";

import { AgentApi } from "../agent_api";
import { IJobsModel } from "../common/jobs_model";
import { IResourcesModel } from "../resources/model";
import { memoryIn } from "../sessions/commands";
import { ISessionsModel, SessionsModel } from "../sessions/model";

export const sessionsPlugin: JupyterFrontEndPlugin<ISessionsModel> = {
  id: "jupyter-slurm:sessions",
  description: "The person's sessions: Jupyters that Slurm jobs run.",
  provides: ISessionsModel,
  autoStart: true,
  requires: [IJobsModel],
  optional: [IStateDB, IResourcesModel],
  activate: (
    app: JupyterFrontEnd,
    jobs: IJobsModel,
    state: IStateDB | null,
    resources: IResourcesModel | null,
  ): ISessionsModel => {
    const api = new AgentApi(app.serviceManager.serverSettings);
    return new SessionsModel(api, jobs, memoryIn(state), resources);
  },
};
