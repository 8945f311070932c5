/** Plugin of the resources of the clusters. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";

import { AgentApi } from "../agent_api/agent_api";
import { IResourcesModel, ResourcesModel } from "../resources/model";

export const resourcesPlugin: JupyterFrontEndPlugin<IResourcesModel> = {
  id: "jupyter-slurm:resources",
  description: "Free resources of your clusters, loaded when they are shown.",
  provides: IResourcesModel,
  autoStart: true,
  activate: (app: JupyterFrontEnd): IResourcesModel =>
    new ResourcesModel(new AgentApi(app.serviceManager.serverSettings)),
};
