/** Plugin of the notifications about jobs. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ICommandPalette, MainAreaWidget, Notification } from "@jupyterlab/apputils";
import { ISettingRegistry } from "@jupyterlab/settingregistry";
import { ITranslator, nullTranslator, type TranslationBundle } from "@jupyterlab/translation";

import { AgentApi } from "../agent_api/agent_api";
import type { IJob } from "../common/api/objects";
import { failedTaskReference } from "../common/array_labels";
import { createClaim, createTurnRequest } from "../common/jupyterlab/browser_tabs";
import { CommandIDs, DOMAIN } from "../common/identifiers";
import { IJobsModel } from "../common/jobs_model";
import { jobCluster } from "../common/labels";
import { addToPalette, commandLabel } from "../common/jupyterlab/palette";
import { JobPanel } from "../job_page/page";
import { openJob } from "../jobs/commands";
import { followUpActions } from "../kernels/move_commands";
import * as browser from "../notices/browser_notifications";
import { errorLine } from "../notices/error_line";
import {
  describeNotices,
  openLabel,
  separateFailures,
  type INotification,
} from "../notices/labels";
import { DEFAULT_SETTINGS, Notices, type INotice, type INoticeSettings } from "../notices/model";
import { SessionEndWarning } from "../notices/session_end";
import { loadSettings } from "../common/jupyterlab/setting_texts";
import { noticeSettingTexts } from "../notices/setting_labels";
import { isCardVisible } from "../notices/visibility";
import { ownSession, type OwnSession } from "../sessions/own_session";
import { endWarning } from "../sessions/own_session_labels";
import { LaunchPanel } from "../sessions/session_page";

const ID = "jupyter-slurm:notices";
/** Command of JupyterLab that saves all open documents. */
const SAVE_ALL = "docmanager:save-all";
/**
 * Time for which a notification is shown, in milliseconds: it may lie over a table. The bell in the status bar keeps
 * it.
 */
const SHOWN_MS = 8_000;
const LONG_SHOWN_MS = 20_000;
/** Interval of the checks for time limits that are near, in milliseconds. */
const TIME_LIMIT_CHECK_MS = 30_000;

type Settings = INoticeSettings & { readonly browser: boolean };

export const noticesPlugin: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: "Notifications about your Slurm jobs.",
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
    const settings = await loadSettings(registry, ID, noticeSettingTexts(trans));
    const wishes = (): Settings => ({
      ...DEFAULT_SETTINGS,
      browser: false,
      ...settings?.composite,
    });
    const name = `${ID}:${app.serviceManager.serverSettings.baseUrl}`;
    const locks = window.isSecureContext ? navigator.locks : null;
    const api = new AgentApi(app.serviceManager.serverSettings);
    const display = new Display(app, trans, api, model, wishes);
    const own = ownSession(model);
    let warning: SessionEndWarning | null = null;
    void app.restored.then(() => {
      warning = own && warnOfEnd(app.commands, trans, own, wishes); // its button needs JupyterLab's commands
    });
    const notices = new Notices(model, {
      settings: wishes,
      isHidden: () => document.hidden,
      isSeen: async (job) => isPageVisible(app.shell, job) || (await isCardVisible(job)),
      isOwn: (job) => own?.isOwn(job) === true,
      claim: createClaim(name, { storage: () => window.localStorage, locks }),
      show: (changes) => void display.show(changes),
    });
    document.addEventListener("visibilitychange", display.showLater);
    setInterval(() => {
      notices.checkTimeLimits();
      warning?.check();
    }, TIME_LIMIT_CHECK_MS);
    const keep = createTurnRequest(`${name}:hidden`, locks, (isOurs) => {
      model.setInBackground(isOurs);
    });
    addBrowserNotices(app.commands, keep, trans, settings, wishes);
    addToPalette(palette, CommandIDs.browserNotices);
  },
};

/** Warn in this page before the end of the session that it belongs to. The warning stays until it is closed. */
function warnOfEnd(
  commands: JupyterFrontEnd["commands"],
  trans: TranslationBundle,
  own: OwnSession,
  settings: () => INoticeSettings,
): SessionEndWarning {
  const save = {
    label: trans.__("Save all"),
    callback: () => void commands.execute(SAVE_ALL),
  };
  return new SessionEndWarning(own, {
    settings,
    show: (end) => {
      const actions = commands.hasCommand(SAVE_ALL) ? [save] : [];
      const options = { autoClose: false as const, actions };
      const id = Notification.warning(endWarning(trans, own, end), options);
      return () => {
        Notification.dismiss(id);
      };
    },
  });
}

/** Whether the page of a job, or of a session, is visible. */
function isPageVisible(shell: JupyterFrontEnd["shell"], job: IJob): boolean {
  const { cluster, key, id } = job;
  const widgets = (["main", "right"] as const).flatMap((area) => [...shell.widgets(area)]);
  return widgets.some((widget) => {
    if (!widget.isVisible || !(widget instanceof MainAreaWidget)) {
      return false;
    }
    const { content } = widget as MainAreaWidget;
    if (content instanceof LaunchPanel) {
      return content.place.cluster === cluster && content.place.session === key;
    }
    const names = [key, id].filter((name) => name !== null);
    return (
      content instanceof JobPanel && names.some((name) => content.page.isAt({ cluster, job: name }))
    );
  });
}

/** Shows notifications: at once, or where the page is hidden by the browser, and on the page when it is visible. */
class Display {
  private _later: INotice[] = [];

  constructor(
    private readonly _app: JupyterFrontEnd,
    private readonly _trans: TranslationBundle,
    private readonly _api: AgentApi,
    private readonly _model: Pick<IJobsModel, "clusters" | "now">,
    private readonly _wishes: () => Settings,
  ) {}

  async show(changes: readonly INotice[]): Promise<void> {
    if (!document.hidden) {
      this._emit(await this._describe(changes));
      return;
    }
    this._later.push(...changes); // a night of them is summed up
    if (this._wishes().browser && browser.isAllowed()) {
      for (const notification of await this._describe(changes)) {
        browser.show(notification, () => {
          this._open(notification);
        });
      }
    }
  }

  /** Show the notifications that came while the page was hidden. */
  readonly showLater = (): void => {
    if (!document.hidden && this._later.length > 0) {
      void this._describe(this._later.splice(0)).then((each) => {
        this._emit(each);
      });
    }
  };

  private async _describe(changes: readonly INotice[]): Promise<readonly INotification[]> {
    const errors = await Promise.all(
      separateFailures(changes).map(async (job): Promise<[IJob, string]> => [
        job,
        await errorLine(this._api, job),
      ]),
    );
    const clusterOf = (job: IJob): string => jobCluster(this._model, job);
    const { now } = this._model;
    return describeNotices(this._trans, changes, now, new Map(errors), clusterOf);
  }

  private _emit(notifications: readonly INotification[]): void {
    const { commands } = this._app;
    for (const notification of notifications.filter(({ isLogin }) => !isLogin)) {
      const { text, type, isNearEnd } = notification;
      const isLong = type === "error" || notification.shows === "session";
      const open = {
        label: openLabel(this._trans, notification),
        callback: () => {
          this._open(notification);
        },
      };
      const actions = [...followUpActions(this._trans, commands, notification), open];
      const autoClose = isNearEnd ? false : isLong ? LONG_SHOWN_MS : SHOWN_MS;
      Notification.emit(text, type, { autoClose, actions });
    }
  }

  /** Show the job; open a session in a tab of its own, or where another computer serves it, its page. */
  private _open({ job, task, shows }: INotification): void {
    const { commands } = this._app;
    const failed = job !== null && task !== null ? failedTaskReference(job) : null;
    const address = shows === "session" ? this._api.address(job?.session?.path ?? "") : null;
    if (address !== null) {
      window.open(address, "_blank", "noopener");
    } else if (job?.session && commands.hasCommand(CommandIDs.launch)) {
      void commands.execute(CommandIDs.launch, { cluster: job.cluster, session: job.key });
    } else {
      void openJob(commands, job && failed ? { ...job, key: null, id: failed } : job);
    }
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
    label: (args) =>
      commandLabel(trans, trans.__("Desktop Notifications While This Tab Is Hidden"), args),
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
