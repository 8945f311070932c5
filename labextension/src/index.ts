/**
 * The plugins: the models, the pages that launch sessions, the panel, the commands of menu and palette, the dialogs of
 * log-ins, the notices, and the item in the status bar. Each can be switched off alone.
 */
import { commandsPlugin } from "./plugins/commands";
import { launchPlugin } from "./plugins/launch";
import { modelPlugin } from "./plugins/model";
import { noticesPlugin } from "./plugins/notices";
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
  commandsPlugin,
  promptsPlugin,
  noticesPlugin,
  statusPlugin,
];
