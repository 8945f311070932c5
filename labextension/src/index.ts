/**
 * The plugins: the models, the pages that launch sessions, the panel with its commands, the dialogs of log-ins, and the item
 * in the status bar. Each can be switched off alone.
 */
import { launchPlugin } from "./plugins/launch";
import { modelPlugin } from "./plugins/model";
import { panelPlugin } from "./plugins/panel";
import { promptsPlugin } from "./plugins/prompts";
import { sessionsPlugin } from "./plugins/sessions";
import { statusPlugin } from "./plugins/status";

export { ISessionsModel } from "./sessions";
export { IJobsModel } from "./tokens";
export default [
  modelPlugin,
  sessionsPlugin,
  launchPlugin,
  panelPlugin,
  promptsPlugin,
  statusPlugin,
];
