/** Settings of the form that launches a session: its start values. */
import type { TranslationBundle } from "@jupyterlab/translation";

import type { ISettingTexts } from "../common/jupyterlab/setting_texts";
import type { ILaunchForm } from "../common/launch_request";

/** Return the title and the description of each setting; in English as in the schema. */
function words(trans: TranslationBundle): Readonly<Record<string, readonly [string, string]>> {
  return {
    partition: [trans.__("Partition"), trans.__("Default: that of the cluster.")],
    gpus: [
      trans.__("GPUs"),
      trans.__("0: without a GPU. Default: that of the site profile, else 1."),
    ],
    cpus: [trans.__("CPUs"), trans.__("Default: that of the site profile, else 4.")],
    memory: [
      trans.__("Memory"),
      trans.__("For example 16G. Default: that of the site profile, else 16G."),
    ],
    time: [
      trans.__("Time limit"),
      trans.__("For example 4h or 90 min. Default: that of the site profile, else 4 h."),
    ],
    idle: [
      trans.__("Idle time"),
      trans.__("For example 2h. Default: that of the server, else 24 h."),
    ],
  };
}

/** Return the texts of the settings in the language of the user. */
export function launchSettingTexts(trans: TranslationBundle): ISettingTexts {
  return {
    title: trans.__("Slurm launch form"),
    description: trans.__(
      "Start values of the form that launches a session, until you have launched one on a cluster.",
    ),
    settings: words(trans),
  };
}

/** Return the start values in the settings, without empty ones. */
export function startValues(settings: Readonly<Record<string, unknown>>): Partial<ILaunchForm> {
  const fields = ["partition", "gpus", "cpus", "memory", "time", "idle"] as const;
  const given = fields.map((field) => [field, settings[field]] as const);
  return Object.fromEntries(
    given.filter(([, value]) => typeof value === "string" && value.trim() !== ""),
  );
}
