/** Plugin of the model of the sessions. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ISettingRegistry } from "@jupyterlab/settingregistry";
import { IStateDB } from "@jupyterlab/statedb";
import { ITranslator, nullTranslator } from "@jupyterlab/translation";

import { AgentApi } from "../agent_api/agent_api";
import { DOMAIN } from "../common/identifiers";
import { IJobsModel } from "../common/jobs_model";
import { loadSettings } from "../common/jupyterlab/setting_texts";
import { IResourcesModel } from "../resources/model";
import { memoryIn } from "../sessions/commands";
import { ISessionsModel, SessionsModel } from "../sessions/model";
import { launchSettingTexts, startValues } from "../sessions/settings";

const ID = "jupyter-slurm:sessions";

export const sessionsPlugin: JupyterFrontEndPlugin<ISessionsModel> = {
  id: ID,
  description: "Your sessions: JupyterLab in Slurm jobs.",
  provides: ISessionsModel,
  autoStart: true,
  requires: [IJobsModel],
  optional: [IStateDB, IResourcesModel, ISettingRegistry, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    jobs: IJobsModel,
    state: IStateDB | null,
    resources: IResourcesModel | null,
    registry: ISettingRegistry | null,
    translator: ITranslator | null,
  ): ISessionsModel => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const settings = loadSettings(registry, ID, launchSettingTexts(trans));
    const api = new AgentApi(app.serviceManager.serverSettings);
    return new SessionsModel(api, jobs, memoryIn(state), resources, async () =>
      startValues((await settings)?.composite ?? {}),
    );
  },
};
