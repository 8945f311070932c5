/** Labels of the settings in the language of the user: JupyterLab itself searches them in its language packs only. */
import type { ISettingRegistry } from "@jupyterlab/settingregistry";
import type { TranslationBundle } from "@jupyterlab/translation";

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

/** Texts of a schema of settings: the title, the description, and those of each setting. */
export interface ISchemaWords {
  readonly title: string;
  readonly description: string;
  readonly settings: Readonly<Record<string, readonly [string, string]>>;
}

/** Return the texts of the settings of notifications in the language of the user. */
export function noticeWords(trans: TranslationBundle): ISchemaWords {
  return {
    title: trans.__("Slurm notifications"),
    description: trans.__("Notifications about your jobs."),
    settings: words(trans),
  };
}

/** Return the schema of settings with other texts. */
export function translatedSchema(
  schema: ISettingRegistry.ISchema,
  { title, description, settings }: ISchemaWords,
): ISettingRegistry.ISchema {
  const properties = { ...schema.properties };
  for (const [name, [label, help]] of Object.entries(settings)) {
    const known = properties[name];
    if (known !== undefined) {
      properties[name] = { ...known, title: label, description: help };
    }
  }
  return { ...schema, title, description, properties };
}
