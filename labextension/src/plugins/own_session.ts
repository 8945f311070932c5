/** Plugin of the session that JupyterLab itself runs in: its item in the status bar, and the loss of its connection. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { Dialog } from "@jupyterlab/apputils";
import { URLExt } from "@jupyterlab/coreutils";
import { IStatusBar } from "@jupyterlab/statusbar";
import { ITranslator, nullTranslator, type TranslationBundle } from "@jupyterlab/translation";

import type { IJob } from "../common/api/objects";
import { DOMAIN } from "../common/identifiers";
import { IJobsModel } from "../common/jobs_model";
import { openJob } from "../jobs/commands";
import { findAnswerer, isBehindHub, isLocalPort, type Answerer } from "../sessions/lost_server";
import { ownSession, type OwnSession } from "../sessions/own_session";
import { OwnSessionItem } from "../sessions/own_session_item";
import { lossOfServer } from "../sessions/own_session_labels";

/** Interval of the requests to a server that did not answer, in milliseconds. */
const RETRY_MS = 3_000;

export const ownSessionPlugin: JupyterFrontEndPlugin<void> = {
  id: "jupyter-slurm:own-session",
  description:
    "In the pages of a session: its name, its node and its time left, in the status bar.",
  autoStart: true,
  requires: [IJobsModel],
  optional: [IStatusBar, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    model: IJobsModel,
    statusBar: IStatusBar | null,
    translator: ITranslator | null,
  ): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const own = ownSession(model);
    if (own === null) {
      return;
    }
    const open = (job: IJob | null): void => void openJob(app.commands, job);
    const item = new OwnSessionItem({ own, trans, open });
    statusBar?.registerStatusItem("jupyter-slurm:own-session", { item, align: "left", rank: 49 });
    if (!isLocalPort(window.location.hostname, window.location.pathname)) {
      const lab = (translator ?? nullTranslator).load("jupyterlab");
      const { baseUrl } = app.serviceManager.serverSettings;
      const loss = new ServerLoss(own, trans, URLExt.join(baseUrl, "api/status"), () => {
        closeDialogs(lab.__("Server Connection Error"));
      });
      app.serviceManager.connectionFailure.connect(loss.check);
      model.changed.connect(() => {
        if (model.connection === "broken") {
          loss.check(); // its requests go the same way, and it listens all the time
        }
      });
    }
  },
};

/** Close dialogs of JupyterLab with this title: what has happened is said elsewhere, and better. */
function closeDialogs(title: string): void {
  Dialog.tracker.forEach((dialog) => {
    if (dialog.node.querySelector(".jp-Dialog-header")?.textContent === title) {
      dialog.reject();
    }
  });
}

/**
 * Says that the server between this page and its session does not answer, as long as that is so. In a dialog: the code of
 * notifications is loaded with the first one, which the server cannot send any more.
 */
export class ServerLoss {
  private _answerer: Answerer = "session";
  private _dialog: Dialog<unknown> | null = null;
  private _isAsking = false;
  private _timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly _own: OwnSession,
    private readonly _trans: TranslationBundle,
    private readonly _url: string,
    private readonly _closeDialogs: () => void,
  ) {}

  readonly check = (): void => {
    clearTimeout(this._timer); // whatever asked for this check, one more follows
    if (!this._isAsking) {
      this._isAsking = true;
      void findAnswerer(this._url, window.fetch.bind(window)).then((answerer) => {
        this._isAsking = false;
        this._closeDialogs();
        this._follow(answerer);
      });
    }
  };

  private _follow(answerer: Answerer): void {
    if (answerer !== this._answerer) {
      this._answerer = answerer;
      this._dialog?.reject();
      this._dialog = null;
      this._own.loss = lossOfServer(this._trans, this._own, answerer, hasHub());
      if (this._own.loss !== "") {
        void this._show(this._own.loss, answerer);
      }
    }
    if (answerer !== "session" && answerer !== "ended") {
      this._timer = setTimeout(this.check, RETRY_MS);
    }
  }

  /** A new tab leads to the hub, which starts the server, and from there to the session; this one keeps its texts. */
  private async _show(text: string, answerer: Answerer): Promise<void> {
    const trans = this._trans;
    const buttons = [Dialog.cancelButton({ label: trans.__("Close") })];
    if (answerer === "other" && hasHub()) {
      buttons.push(Dialog.okButton({ label: trans.__("Start it") }));
    } else if (answerer === "unknown-page") {
      buttons.push(Dialog.okButton({ label: trans.__("Reload") }));
    }
    const title = trans.__("Connection lost");
    const dialog = new Dialog({ title, body: text, buttons });
    this._dialog = dialog;
    const { button } = await dialog.launch();
    if (button.accept && answerer === "other") {
      window.open(window.location.href, "_blank", "noopener");
    } else if (button.accept) {
      window.location.reload();
    }
  }
}

function hasHub(): boolean {
  return isBehindHub(window.location.pathname);
}
