/** Plugin of the model of the jobs. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";

import { AgentApi } from "../agent_api/agent_api";
import { IJobsModel } from "../common/jobs_model";
import { JobsModel } from "../jobs/model";

export const modelPlugin: JupyterFrontEndPlugin<IJobsModel> = {
  id: "jupyter-slurm:model",
  description: "Keeps your Slurm jobs up to date while the tab is visible.",
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
