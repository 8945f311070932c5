/** Labels of the settings in the language of the user: JupyterLab itself searches them in its language packs only. */
import type { ISettingRegistry } from "@jupyterlab/settingregistry";
import type { TranslationBundle } from "@jupyterlab/translation";

/** Return the title and the description of each setting; in English as in the schema. */
function words(trans: TranslationBundle): Readonly<Record<string, readonly [string, string]>> {
  return {
    started: [trans.__("Started"), trans.__("Tell when a job has started.")],
    ended: [
      trans.__("Ended"),
      trans.__("Tell when a job has ended without a failure, or was cancelled."),
    ],
    failed: [trans.__("Failed"), trans.__("Tell when a job has failed.")],
    nearLimit: [
      trans.__("Near the time limit"),
      trans.__("Tell when the time limit of a job that runs is near."),
    ],
    nearLimitMinutes: [
      trans.__("Minutes before the time limit"),
      trans.__(
        "Time before the limit at which a job is near it. For short jobs: when a quarter of their time is left.",
      ),
    ],
    loginWanted: [
      trans.__("Login required"),
      trans.__(
        "Tell when a host asks for a password or a second factor while the page is hidden. Where the page is seen, a dialog asks.",
      ),
    ],
    browser: [
      trans.__("Notices of the browser"),
      trans.__(
        "While the page is hidden, tell by the browser as well, which asks once whether it may. The page then listens also while it is hidden; otherwise it does not, and tells when it is seen again.",
      ),
    ],
  };
}

/** Return the schema of the settings in the language of the user. */
export function translatedSchema(
  trans: TranslationBundle,
  schema: ISettingRegistry.ISchema,
): ISettingRegistry.ISchema {
  const properties = { ...schema.properties };
  for (const [name, [title, description]] of Object.entries(words(trans))) {
    const known = properties[name];
    if (known !== undefined) {
      properties[name] = { ...known, title, description };
    }
  }
  return {
    ...schema,
    title: trans.__("Slurm: notices"),
    description: trans.__("Of which changes of one's own jobs JupyterLab tells."),
    properties,
  };
}
