/** Plugin of the notifications about jobs. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ICommandPalette, Notification } from "@jupyterlab/apputils";
import { ISettingRegistry } from "@jupyterlab/settingregistry";
import { ITranslator, nullTranslator, type TranslationBundle } from "@jupyterlab/translation";

import { failedTaskReference } from "../common/array_labels";
import { createClaim, createTurnRequest } from "../common/browser_tabs";
import { CommandIDs, DOMAIN } from "../common/identifiers";
import { IJobsModel } from "../common/jobs_model";
import { openJob } from "../jobs/commands";
import { followUpActions } from "../kernels/move_commands";
import * as browser from "../notices/browser_notifications";
import { describeNotices, type INotification } from "../notices/labels";
import { DEFAULT_SETTINGS, Notices, type INoticeSettings } from "../notices/model";
import { translatedSchema } from "../notices/setting_labels";

const ID = "jupyter-slurm:notices";
/** Time for which a notification is shown, in milliseconds; that of a failure stays until it is dismissed. */
const SHOWN_MS = 8_000;
/** Interval of the checks for time limits that are near, in milliseconds. */
const TIME_LIMIT_CHECK_MS = 30_000;

type Settings = INoticeSettings & { readonly browser: boolean };

export const noticesPlugin: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: "Notices of what becomes of the person's Slurm jobs.",
  autoStart: true,
  requires: [IJobsModel],
  optional: [ISettingRegistry, ITranslator, ICommandPalette],
  activate: async (
    app: JupyterFrontEnd,
    model: IJobsModel,
    registry: ISettingRegistry | null,
    translator: ITranslator | null,
    palette: ICommandPalette | null,
  ): Promise<void> => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    registry?.transform(ID, {
      fetch: (plugin) => ({ ...plugin, schema: translatedSchema(trans, plugin.schema) }),
    });
    const settings = (await registry?.load(ID).catch(() => null)) ?? null;
    const wishes = (): Settings => ({
      ...DEFAULT_SETTINGS,
      browser: false,
      ...settings?.composite,
    });
    const name = `${ID}:${app.serviceManager.serverSettings.baseUrl}`;
    const locks = window.isSecureContext ? navigator.locks : null;
    const notices = new Notices(model, {
      settings: wishes,
      isHidden: () => document.hidden,
      claim: createClaim(name, { storage: () => window.localStorage, locks }),
      show: (changes) => {
        for (const notification of describeNotices(trans, changes, model.now)) {
          show(notification, wishes(), trans, app.commands);
        }
      },
    });
    setInterval(notices.checkTimeLimits, TIME_LIMIT_CHECK_MS);
    const keep = createTurnRequest(`${name}:hidden`, locks, (isOurs) => {
      model.setInBackground(isOurs);
    });
    addBrowserNotices(app.commands, keep, trans, settings, wishes);
    palette?.addItem({ command: CommandIDs.browserNotices, category: "Slurm" });
  },
};

function show(
  notification: INotification,
  wishes: Settings,
  trans: TranslationBundle,
  commands: JupyterFrontEnd["commands"],
): void {
  const isHidden = document.hidden;
  const { job, task } = notification;
  const failed = job !== null && task !== null ? failedTaskReference(job) : null;
  const shown = job !== null && failed !== null ? { ...job, key: null, id: failed } : job;
  const open = (): void => void openJob(commands, shown);
  if (isHidden && wishes.browser && browser.isAllowed()) {
    browser.show(notification, open);
  }
  if (!notification.isLogin) {
    const one = task === null ? trans.__("Show job") : trans.__("Show task %1", task);
    const label = job === null ? trans.__("Show jobs") : one;
    const stays = notification.type === "error" || notification.isNearEnd || isHidden;
    const actions = [...followUpActions(trans, commands, notification), { label, callback: open }];
    Notification.emit(notification.text, notification.type, {
      autoClose: stays ? false : SHOWN_MS,
      actions,
    });
  }
}

/**
 * Add the command that switches notifications of the browser, and apply that setting.
 *
 * @param keep - Called with whether the model has to listen also while the page is hidden.
 */
function addBrowserNotices(
  commands: JupyterFrontEnd["commands"],
  keep: (isWanted: boolean) => void,
  trans: TranslationBundle,
  settings: ISettingRegistry.ISettings | null,
  wishes: () => Settings,
): void {
  let wasWanted = false;
  const follow = (): void => {
    const isWanted = wishes().browser;
    keep(isWanted && browser.isAllowed());
    if (isWanted && !wasWanted && !browser.isAllowed()) {
      browser.offerPermission(trans, follow);
    }
    wasWanted = isWanted;
    commands.notifyCommandChanged(CommandIDs.browserNotices);
  };
  commands.addCommand(CommandIDs.browserNotices, {
    label: trans.__("Desktop Notifications While This Tab Is Hidden"),
    isToggled: () => wishes().browser,
    isEnabled: () => settings !== null,
    execute: async () => {
      const isOn = !wishes().browser && (await browser.requestPermission(trans));
      await settings?.set("browser", isOn);
    },
  });
  settings?.changed.connect(follow);
  follow();
}
