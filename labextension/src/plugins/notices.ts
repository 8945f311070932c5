/** The plugin that tells what becomes of the jobs. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ICommandPalette, Notification } from "@jupyterlab/apputils";
import { ISettingRegistry } from "@jupyterlab/settingregistry";
import { ITranslator, nullTranslator, type TranslationBundle } from "@jupyterlab/translation";

import { claims, turns } from "../common/browser_tabs";
import { CommandIDs, DOMAIN } from "../common/identifiers";
import { IJobsModel } from "../common/jobs_model";
import { openJob } from "../jobs/commands";
import { followUps } from "../kernels/move_commands";
import * as browser from "../notices/browser_notifications";
import { toldOf, type ITold } from "../notices/labels";
import { Notices, USUAL, type IWishes } from "../notices/model";
import { translatedSchema } from "../notices/setting_labels";

const ID = "jupyter-slurm:notices";
/** How long a notice is seen by itself, in milliseconds; what has failed stays until it is put away. */
const SEEN = 8_000;
/** How often it is looked whether time limits have come near, in milliseconds. */
const TICK = 30_000;

type Wishes = IWishes & { readonly browser: boolean };

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
    const wishes = (): Wishes => ({ ...USUAL, browser: false, ...settings?.composite });
    const name = `${ID}:${app.serviceManager.serverSettings.baseUrl}`;
    const locks = window.isSecureContext ? navigator.locks : null;
    const notices = new Notices(model, {
      wishes,
      isHidden: () => document.hidden,
      claim: claims(name, { storage: () => window.localStorage, locks }),
      tell: (changes) => {
        for (const told of toldOf(trans, changes, model.now)) {
          show(told, wishes(), trans, app.commands);
        }
      },
    });
    setInterval(notices.tick, TICK);
    const keep = turns(`${name}:hidden`, locks, (isOurs) => {
      model.setKept(isOurs);
    });
    addBrowserNotices(app.commands, keep, trans, settings, wishes);
    palette?.addItem({ command: CommandIDs.browserNotices, category: "Slurm" });
  },
};

function show(
  told: ITold,
  wishes: Wishes,
  trans: TranslationBundle,
  commands: JupyterFrontEnd["commands"],
): void {
  const isHidden = document.hidden;
  const open = (): void => void openJob(commands, told.job);
  if (isHidden && wishes.browser && browser.isAllowed()) {
    browser.show(told, open);
  }
  if (!told.isAsked) {
    const label = told.job === null ? trans.__("Show jobs") : trans.__("Show job");
    const stays = told.type === "error" || told.isNearEnd || isHidden;
    const actions = [...followUps(trans, commands, told), { label, callback: open }];
    Notification.emit(told.text, told.type, { autoClose: stays ? false : SEEN, actions });
  }
}

/**
 * The command that switches notices of the browser on and off, and what follows from that setting.
 *
 * @param keep - Is told whether changes are to be heard also while the page is hidden.
 */
function addBrowserNotices(
  commands: JupyterFrontEnd["commands"],
  keep: (isWanted: boolean) => void,
  trans: TranslationBundle,
  settings: ISettingRegistry.ISettings | null,
  wishes: () => Wishes,
): void {
  let wasWanted = false;
  const follow = (): void => {
    const isWanted = wishes().browser;
    keep(isWanted && browser.isAllowed());
    if (isWanted && !wasWanted && !browser.isAllowed()) {
      browser.offer(trans, follow);
    }
    wasWanted = isWanted;
    commands.notifyCommandChanged(CommandIDs.browserNotices);
  };
  commands.addCommand(CommandIDs.browserNotices, {
    label: trans.__("Notices of the Browser While the Page Is Hidden"),
    isToggled: () => wishes().browser,
    isEnabled: () => settings !== null,
    execute: async () => {
      const isOn = !wishes().browser && (await browser.ask(trans));
      await settings?.set("browser", isOn);
    },
  });
  settings?.changed.connect(follow);
  follow();
}
