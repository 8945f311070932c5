/** Plugin of the dialogs of logins. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ITranslator, nullTranslator } from "@jupyterlab/translation";

import { DOMAIN } from "../common/identifiers";
import { IJobsModel } from "../common/jobs_model";
import { PromptDialogs } from "../logins/prompt_dialogs";
import { StaleInputFields } from "../logins/stale_input_fields";

export const promptsPlugin: JupyterFrontEndPlugin<void> = {
  id: "jupyter-slurm:prompts",
  description: "Dialogs for questions of hosts during a login.",
  autoStart: true,
  requires: [IJobsModel],
  optional: [ITranslator],
  activate: (app: JupyterFrontEnd, model: IJobsModel, translator: ITranslator | null): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    void app.restored.then(() => new PromptDialogs(model, trans)); // an earlier dialog would be under the splash screen
    new StaleInputFields(model);
  },
};
