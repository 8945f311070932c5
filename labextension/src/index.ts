/**
 * The plugins: the models, the pages that launch sessions and the templates of their form, the panel, the pages of jobs, the
 * commands of menu and palette, the cells that widgets write, the dialogs of log-ins, the notices, the item in the status bar,
 * and kernels on nodes. Each can be switched off alone.
 */
import { cellsPlugin } from "./plugins/cells";
import { commandsPlugin } from "./plugins/commands";
import { jobPlugin } from "./plugins/job";
import { kernelsPlugin } from "./plugins/kernels";
import { launchPlugin } from "./plugins/launch";
import { linkPlugin } from "./plugins/link";
import { modelPlugin } from "./plugins/model";
import { noticesPlugin } from "./plugins/notices";
import { panelPlugin } from "./plugins/panel";
import { promptsPlugin } from "./plugins/prompts";
import { resourcesPlugin } from "./plugins/resources";
import { sessionsPlugin } from "./plugins/sessions";
import { statusPlugin } from "./plugins/status";
import { templatesPlugin } from "./plugins/templates";

export { IResourcesModel } from "./resources";
export { ISessionsModel } from "./sessions";
export { IJobsModel } from "./tokens";
export default [
  modelPlugin,
  resourcesPlugin,
  sessionsPlugin,
  launchPlugin,
  templatesPlugin,
  panelPlugin,
  commandsPlugin,
  jobPlugin,
  linkPlugin,
  cellsPlugin,
  promptsPlugin,
  noticesPlugin,
  statusPlugin,
  kernelsPlugin,
];
