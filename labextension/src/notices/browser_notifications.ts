/**
 * Notifications of the browser, for users who look at another tab or program. The permission is requested only when
 * they are enabled.
 */
import { Notification as LabNotification } from "@jupyterlab/apputils";
import type { TranslationBundle } from "@jupyterlab/translation";

import type { INotification } from "./labels";

/** Whether the browser allows notifications of this page. */
export function isAllowed(): boolean {
  return "Notification" in window && Notification.permission === "granted";
}

/** Request the permission of the browser, which considers that only right after a click or a key. */
export async function requestPermission(trans: TranslationBundle): Promise<boolean> {
  if (!("Notification" in window)) {
    LabNotification.warning(trans.__("This browser does not support notifications."), {
      autoClose: 8_000,
    });
    return false;
  }
  if (Notification.permission === "default") {
    await Notification.requestPermission();
  }
  if (Notification.permission === "denied") {
    const text = trans.__(
      "The browser blocks notifications of this page. Allow them in the site settings beside the address.",
    );
    LabNotification.warning(text, { autoClose: 12_000 });
  }
  return isAllowed();
}

/** Offer to request the permission: a change of the setting in another tab or in a file is no click. */
export function offerPermission(trans: TranslationBundle, allowed: () => void): void {
  LabNotification.info(trans.__("The setting “Desktop notifications” needs your permission."), {
    autoClose: false,
    actions: [
      {
        label: trans.__("Ask the browser"),
        callback: () => {
          void requestPermission(trans).then((isYes) => {
            if (isYes) {
              allowed();
            }
          });
        },
      },
    ],
  });
}

/** Show a notification of the browser; a click on it shows the tab. */
export function show(notification: INotification, open: () => void): void {
  let notice: Notification;
  try {
    notice = new Notification("Slurm", { body: notification.text });
  } catch {
    return; // browsers of phones let only service workers show notifications, also with the permission
  }
  notice.onclick = () => {
    window.focus();
    notice.close();
    open();
  };
}
