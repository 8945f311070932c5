/** Texts of the settings of notifications. */
import type { TranslationBundle } from "@jupyterlab/translation";

import type { ISettingTexts } from "../common/jupyterlab/setting_texts";

/** Return the title and the description of each setting; in English as in the schema. */
function words(trans: TranslationBundle): Readonly<Record<string, readonly [string, string]>> {
  return {
    started: [trans.__("Started"), trans.__("When a job starts.")],
    ready: [trans.__("Session ready"), trans.__("When a session can be opened.")],
    ended: [trans.__("Ended"), trans.__("When a job ends without a failure, or is cancelled.")],
    failed: [trans.__("Failed"), trans.__("When a job fails.")],
    nearLimit: [
      trans.__("Near the time limit"),
      trans.__("When the time limit of a running job is near."),
    ],
    nearLimitMinutes: [
      trans.__("Minutes before the time limit"),
      trans.__("Minutes before the time limit. Short jobs: when 25 % of the time is left."),
    ],
    loginWanted: [
      trans.__("Login required"),
      trans.__(
        "When a host asks for a password or a second factor while this tab is hidden. A visible tab shows a dialog.",
      ),
    ],
    browser: [
      trans.__("Desktop notifications"),
      trans.__(
        "Show desktop notifications, too, while this tab is hidden. The browser asks once for permission. Otherwise, a hidden tab shows its notifications when it is visible again.",
      ),
    ],
  };
}

/** Return the texts of the settings of notifications in the language of the user. */
export function noticeSettingTexts(trans: TranslationBundle): ISettingTexts {
  return {
    title: trans.__("Slurm notifications"),
    description: trans.__("Notifications about your jobs."),
    settings: words(trans),
  };
}
