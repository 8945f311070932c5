/** Notices of the browser, for whoever looks at another tab or program. Asked for only when they are switched on. */
import { Notification as LabNotification } from "@jupyterlab/apputils";
import type { TranslationBundle } from "@jupyterlab/translation";

import type { ITold } from "./labels";

/** Whether the browser lets this page tell something. */
export function isAllowed(): boolean {
  return "Notification" in window && Notification.permission === "granted";
}

/** Ask the person by the browser; it is heard only where they have just clicked or pressed a key. */
export async function ask(trans: TranslationBundle): Promise<boolean> {
  if (!("Notification" in window)) {
    LabNotification.warning(trans.__("This browser has no notices."), { autoClose: 8_000 });
    return false;
  }
  if (Notification.permission === "default") {
    await Notification.requestPermission();
  }
  if (Notification.permission === "denied") {
    const text = trans.__(
      "The browser does not let this page show notices: allow it in what the browser knows of this page, beside its address.",
    );
    LabNotification.warning(text, { autoClose: 12_000 });
  }
  return isAllowed();
}

/** Offer to ask: a setting that is changed in another tab or in a file is no click. */
export function offer(trans: TranslationBundle, allowed: () => void): void {
  LabNotification.info(trans.__("Slurm notices are to be shown by the browser."), {
    autoClose: false,
    actions: [
      {
        label: trans.__("Ask the browser"),
        callback: () => {
          void ask(trans).then((isYes) => {
            if (isYes) {
              allowed();
            }
          });
        },
      },
    ],
  });
}

/** Show a notice of the browser; a click on it brings the tab back. */
export function show(told: ITold, open: () => void): void {
  let notice: Notification;
  try {
    notice = new Notification("Slurm", { body: told.text });
  } catch {
    return; // those of telephones let only service workers show one, also where the person has allowed it
  }
  notice.onclick = () => {
    window.focus();
    notice.close();
    open();
  };
}
