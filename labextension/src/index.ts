/**
 * The plugins: models, the panel, the pages of jobs and sessions, templates, commands of menu and palette, scripts of
 * the file browser, cells of widgets, dialogs of logins, notifications, the items in the status bar, remote kernels,
 * files and terminals of the clusters. Each can be disabled alone.
 */
import { commandsPlugin } from "./plugins/commands";
import { filesPlugin } from "./plugins/files";
import { cellsPlugin } from "./plugins/insert_cell";
import { linkPlugin } from "./plugins/job_link";
import { jobPlugin } from "./plugins/job_page";
import { modelPlugin } from "./plugins/jobs_model";
import { panelPlugin } from "./plugins/jobs_panel";
import { kernelsPlugin } from "./plugins/kernels";
import { promptsPlugin } from "./plugins/logins";
import { noticesPlugin } from "./plugins/notices";
import { ownSessionPlugin } from "./plugins/own_session";
import { resourcesPlugin } from "./plugins/resources";
import { launchPlugin } from "./plugins/session_launcher";
import { templatesPlugin } from "./plugins/session_templates";
import { sessionsPlugin } from "./plugins/sessions";
import { statusPlugin } from "./plugins/status_bar";
import { scriptPlugin } from "./plugins/submit_script";
import { terminalsPlugin } from "./plugins/terminals";

export { IResourcesModel } from "./resources/model";
export { ISessionsModel } from "./sessions/model";
export { IJobsModel } from "./common/jobs_model";
export default [
  modelPlugin,
  resourcesPlugin,
  sessionsPlugin,
  launchPlugin,
  templatesPlugin,
  panelPlugin,
  commandsPlugin,
  scriptPlugin,
  jobPlugin,
  linkPlugin,
  cellsPlugin,
  promptsPlugin,
  noticesPlugin,
  statusPlugin,
  ownSessionPlugin,
  kernelsPlugin,
  filesPlugin,
  terminalsPlugin,
];
