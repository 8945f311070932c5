/** Values of the form that launches a session: the initial ones, their problems, and the request. */
import type { TranslationBundle } from "@jupyterlab/translation";

import type { ILaunchDefaults } from "../common/api/objects";
import type { ILaunch, ILaunchForm, LaunchField } from "../common/launch_request";

/** Initial values where neither a profile nor the user has any. */
const INITIAL_FORM: ILaunchForm = {
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

/** Options of sbatch whose value is that of a field. */
const OPTIONS: Partial<Record<LaunchField, string>> = {
  partition: "--partition",
  cpus: "--cpus-per-task",
  memory: "--mem",
  time: "--time",
  account: "--account",
  qos: "--qos",
};

/** The field that each kind of doubt of the agent is about, by the beginning of its text. */
const DOUBT_FIELDS: readonly (readonly [RegExp, LaunchField])[] = [
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

/** Return the doubts by field, the first one of each visible field. */
export function doubtsByField(
  doubts: readonly string[],
  shown: (field: LaunchField) => boolean,
): Partial<Record<LaunchField, string>> {
  const found: Partial<Record<LaunchField, string>> = {};
  for (const doubt of doubts) {
    const field = DOUBT_FIELDS.find(([pattern]) => pattern.test(doubt))?.[1];
    if (field !== undefined && shown(field)) {
      found[field] ??= doubt;
    }
  }
  return found;
}

/** Return the values of the profile of a cluster, as typed. */
function profileForm({
  gpu_type: gpuType,
  idle,
  ...others
}: ILaunchDefaults): Partial<ILaunchForm> {
  const values = { ...others, gpuType, idle: Math.max(1, Math.round(idle / 60)) };
  return Object.fromEntries(
    Object.entries(values)
      .filter(([field, value]) => Object.hasOwn(INITIAL_FORM, field) && value !== undefined)
      .map(([field, value]) => [field, String(value)]),
  );
}

/**
 * Return the initial values of a form: those of the last launch, but not the name, which is taken while that session is
 * active.
 *
 * @param defaults - The values where nothing was launched yet.
 */
export function initialForm(last: unknown, defaults?: ILaunchDefaults): ILaunchForm {
  const first = { ...INITIAL_FORM, ...(defaults === undefined ? {} : profileForm(defaults)) };
  const known = typeof last === "object" && last !== null ? Object.entries(last) : [];
  const kept = known.filter(
    ([field, value]) => Object.hasOwn(INITIAL_FORM, field) && typeof value === "string",
  );
  const form: ILaunchForm = { ...first, ...Object.fromEntries(kept), name: "" };
  return form.idle === "" ? { ...form, idle: first.idle } : form; // a template may lack the value
}

/** Return the problems of a form that need no request, by field. */
export function formProblems(
  trans: TranslationBundle,
  form: ILaunchForm,
): Partial<Record<LaunchField, string>> {
  const found: Partial<Record<LaunchField, string>> = {};
  if (!/^\d{0,4}$/.test(form.gpus.trim())) {
    found.gpus = trans.__("Enter a number: 0, 1, 2 …");
  }
  if (!/^([1-9]\d{0,4})?$/.test(form.cpus.trim())) {
    found.cpus = trans.__("Enter a number: 1, 2, 4 …");
  }
  if (!/^(\d+(\.\d+)?[KMGT]?)?$/i.test(form.memory.trim())) {
    found.memory = trans.__("Enter a size such as 16G or 500M.");
  }
  if (!/^[1-9]\d{0,5}$/.test(form.idle.trim())) {
    found.idle = trans.__("Enter at least 1 minute.");
  }
  if (!/^([A-Za-z][A-Za-z0-9_.-]{0,62})?$/.test(form.name.trim())) {
    found.name = trans.__(
      "Begin with a letter. Letters, digits, dots, dashes and underscores may follow.",
    );
  }
  return found;
}

/** Return the request of a form: one node, since a session is one Jupyter server. */
export function launchRequest(form: ILaunchForm, key: string): ILaunch {
  const options = ["--nodes=1"];
  for (const [field, option] of Object.entries(OPTIONS)) {
    const value = form[field as LaunchField].trim();
    if (value !== "") {
      options.push(`${option}=${value}`);
    }
  }
  const gpus = Number(form.gpus.trim());
  if (gpus > 0) {
    options.push(`--gpus=${form.gpuType === "" ? "" : `${form.gpuType}:`}${gpus}`);
  }
  const fields: Record<string, string> = {};
  for (const field of ["name", "dir", "env"] as const) {
    if (form[field].trim() !== "") {
      fields[field] = form[field].trim();
    }
  }
  return { key, idle: Number(form.idle) * 60, options, ...fields };
}
