/** The form that launches a session: what stands in it at first, what of it is wrong, and what it asks for. */
import type { TranslationBundle } from "@jupyterlab/translation";

import type { ILaunchDefaults } from "../common/api/objects";
import type { Field, IForm, ILaunch } from "../common/launch_request";

/** What stands there where neither a profile nor a person has said anything. */
const FIRST: IForm = {
  partition: "",
  gpus: "1",
  gpuType: "",
  cpus: "4",
  memory: "16G",
  time: "4:00:00",
  account: "",
  qos: "",
  env: "",
  dir: "",
  name: "",
  idle: "1440",
};

/** Options of sbatch that are a field as it is typed. */
const OPTIONS: Partial<Record<Field, string>> = {
  partition: "--partition",
  cpus: "--cpus-per-task",
  memory: "--mem",
  time: "--time",
  account: "--account",
  qos: "--qos",
};

/** By how the agent begins to say that something speaks against a form: the field where that can be changed. */
const ABOUT: readonly (readonly [RegExp, Field])[] = [
  [/^--time=/, "time"],
  [/^--mem(-per-cpu)?=/, "memory"],
  [/^(--(gpus|gres)\S*=|No node has GPUs )/, "gpus"],
  [/^(The job needs \d+ CPUs|--cpus-per-task=)/, "cpus"],
  [
    /^(There is no QOS|Your account \S+ may not use the QOS|Partition \S+ takes no jobs of the QOS) /,
    "qos",
  ],
  [/^(You have no account|Partition \S+ takes no jobs of the account) /, "account"],
  [/^(There is no partition|Partition) /, "partition"],
];

/** Return what speaks against a form by the field where it can be changed, one for each of those that are shown. */
export function doubtsByField(
  doubts: readonly string[],
  shown: (field: Field) => boolean,
): Partial<Record<Field, string>> {
  const found: Partial<Record<Field, string>> = {};
  for (const doubt of doubts) {
    const field = ABOUT.find(([pattern]) => pattern.test(doubt))?.[1];
    if (field !== undefined && shown(field)) {
      found[field] ??= doubt;
    }
  }
  return found;
}

/** What the profile of a cluster says, as it is typed. */
function usualForm({ gpu_type: gpuType, idle, ...others }: ILaunchDefaults): Partial<IForm> {
  const told = { ...others, gpuType, idle: Math.max(1, Math.round(idle / 60)) };
  return Object.fromEntries(
    Object.entries(told)
      .filter(([field, value]) => Object.hasOwn(FIRST, field) && value !== undefined)
      .map(([field, value]) => [field, String(value)]),
  );
}

/**
 * Return what stands in a form at first: what was launched last, but its name, which is taken as long as that goes on.
 *
 * @param usual - What stands there where nothing was launched yet.
 */
export function firstForm(last: unknown, usual?: ILaunchDefaults): IForm {
  const first = { ...FIRST, ...(usual === undefined ? {} : usualForm(usual)) };
  const known = typeof last === "object" && last !== null ? Object.entries(last) : [];
  const kept = known.filter(
    ([field, value]) => Object.hasOwn(FIRST, field) && typeof value === "string",
  );
  const form: IForm = { ...first, ...Object.fromEntries(kept), name: "" };
  return form.idle === "" ? { ...form, idle: first.idle } : form; // a template need not say it
}

/** Return what is wrong with a form that nobody has to be asked about, by field. */
export function formProblems(
  trans: TranslationBundle,
  form: IForm,
): Partial<Record<Field, string>> {
  const found: Partial<Record<Field, string>> = {};
  if (!/^\d{0,4}$/.test(form.gpus.trim())) {
    found.gpus = trans.__("A number: 0, 1, 2 …");
  }
  if (!/^([1-9]\d{0,4})?$/.test(form.cpus.trim())) {
    found.cpus = trans.__("A number: 1, 2, 4 …");
  }
  if (!/^(\d+(\.\d+)?[KMGT]?)?$/i.test(form.memory.trim())) {
    found.memory = trans.__("A size, as 16G or 500M.");
  }
  if (!/^[1-9]\d{0,5}$/.test(form.idle.trim())) {
    found.idle = trans.__("Minutes, at least one.");
  }
  if (!/^([A-Za-z][A-Za-z0-9_.-]{0,62})?$/.test(form.name.trim())) {
    found.name = trans.__("A letter, then letters, digits, dots, dashes and underscores.");
  }
  return found;
}

/** Return the request for what a form asks for: one node, since a session is a Jupyter on it. */
export function launchOf(form: IForm, key: string): ILaunch {
  const options = ["--nodes=1"];
  for (const [field, option] of Object.entries(OPTIONS)) {
    const value = form[field as Field].trim();
    if (value !== "") {
      options.push(`${option}=${value}`);
    }
  }
  const gpus = Number(form.gpus.trim());
  if (gpus > 0) {
    options.push(`--gpus=${form.gpuType === "" ? "" : `${form.gpuType}:`}${gpus}`);
  }
  const asked: Record<string, string> = {};
  for (const field of ["name", "dir", "env"] as const) {
    if (form[field].trim() !== "") {
      asked[field] = form[field].trim();
    }
  }
  return { key, idle: Number(form.idle) * 60, options, ...asked };
}
