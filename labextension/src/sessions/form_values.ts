/** Values of the form that launches a session: the initial ones, their problems, and the request. */
import type { TranslationBundle } from "@jupyterlab/translation";

import type { ApiSchemas, ILaunchDefaults, IProblem } from "../common/api/objects";
import { isLocalProblem } from "../common/api/problem";
import {
  acceleratorName,
  acceleratorOption,
  type ILaunch,
  type ILaunchForm,
  type LaunchField,
} from "../common/launch_request";
import { durationWords, parseDuration, slurmTime } from "../common/time_limit";

/** Initial values where neither the agent, which has them of the profile, nor the user has any. */
export const INITIAL_FORM: ILaunchForm = {
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
  idle: "24 h",
  app: "",
  logdir: "",
  notebook: "",
  store: "",
};

/** Options of sbatch whose value is that of a field. */
export const OPTIONS: Partial<Record<LaunchField, string>> = {
  partition: "--partition",
  cpus: "--cpus-per-task",
  memory: "--mem",
  time: "--time",
  account: "--account",
  qos: "--qos",
};

/** The field of each option of sbatch, and of each keyword, in problems of the agent. */
const FIELDS: Readonly<Record<string, LaunchField>> = {
  partition: "partition",
  gpus: "gpus",
  gres: "gpus",
  "cpus-per-task": "cpus",
  mem: "memory",
  time: "time",
  account: "account",
  qos: "qos",
  dir: "dir",
  env: "env",
  "job-name": "name",
  app: "app",
  logdir: "logdir",
  notebook: "notebook",
  store: "store",
};

/** The field of each app that has one of its own. */
export const APP_FIELDS: Readonly<Record<string, "logdir" | "notebook" | "store">> = {
  marimo: "notebook",
  mlflow: "store",
  tensorboard: "logdir",
};

/** A reason of the agent why a value would be refused. */
export type IOptionProblem = ApiSchemas["OptionProblem"];

/** Texts at fields. */
export type FieldTexts = Partial<Record<LaunchField, string>>;

/** Return a reason of the agent in the words of the form. */
function reasonText(trans: TranslationBundle, problem: IOptionProblem, form: ILaunchForm): string {
  const { option, scope, limit, text } = problem;
  const count = Number(limit);
  const [gpus, seconds] = [acceleratorName(form.gpuType) || trans.__("GPUs"), parseDuration(limit)];
  switch (`${option} ${scope}`) {
    case "gpus partition":
      return count === 0
        ? trans.__("This partition has no %1.", gpus)
        : trans.__("This partition has %1 %2 in all.", count, gpus);
    case "gpus node":
    case "gres node":
      return trans.__("A node of this partition has at most %1 %2.", count, gpus);
    case "cpus-per-task partition":
    case "cpus-per-task node":
      return trans.__("A node of this partition has at most %1 CPUs.", count);
    case "mem node":
      return trans.__("A job can have at most %1 on a node of this partition.", limit);
    case "time partition":
      return trans.__("This partition allows at most %1.", durationWords(seconds ?? 0));
    case "time qos":
      return trans.__("This QOS allows at most %1.", durationWords(seconds ?? 0));
    case "dir missing":
    case "logdir missing":
      return trans.__("This folder does not exist on the cluster.");
    case "dir file":
    case "logdir file":
      return trans.__("This is a file, not a folder.");
    case "env missing":
      return trans.__("This environment does not exist on the cluster.");
    case "env file":
      return trans.__("This is not an environment: neither venv, conda nor container image.");
    case "env unknown":
      return trans.__("There is no environment with this name.");
    default:
      return text;
  }
}

/** Return the reasons of the agent by field, the first one of each, and those of no field. */
export function reasonTexts(
  trans: TranslationBundle,
  problems: readonly IOptionProblem[],
  form: ILaunchForm,
): { readonly at: FieldTexts; readonly others: readonly string[] } {
  const at: FieldTexts = {};
  const others: string[] = [];
  for (const problem of problems) {
    const field = FIELDS[problem.option];
    if (field === undefined) {
      others.push(problem.text);
    } else {
      at[field] ??= reasonText(trans, problem, form);
    }
  }
  return { at, others };
}

/** Return a refusal at its field in the words of the form, else as a text without words of the command line. */
export function refusalTexts(
  trans: TranslationBundle,
  { type, detail, details }: IProblem,
  form: ILaunchForm,
): { readonly at: FieldTexts; readonly other: string } {
  const { option = "", scope = "", said = "", problems = [] } = details ?? {};
  const known = reasonTexts(trans, problems, form);
  const text = said === "" ? (detail ?? "") : trans.__("Slurm refused the job: %1", said);
  if (Object.keys(known.at).length > 0 || !Object.hasOwn(FIELDS, option)) {
    return { at: known.at, other: [text, ...known.others].join("\n") };
  }
  const isSlurm = Boolean(type?.endsWith(":submit-refused"));
  const reason = isSlurm && option === "time" ? trans.__("Slurm does not accept this time.") : text;
  return { ...reasonTexts(trans, [{ option, scope, limit: "", text: reason }], form), other: "" };
}

/** Whether a problem is about the values of a form, so that its hint would name options and keywords. */
export function isAboutValues(problem: IProblem): boolean {
  const code = problem.type?.split(":").at(-1) ?? "";
  return ["usage", "option", "submit-refused"].includes(code) && !isLocalProblem(problem);
}

/** Return the values of the profile of a cluster, as typed. */
function profileForm({
  gpu_type: gpuType,
  idle,
  ...others
}: ILaunchDefaults): Partial<ILaunchForm> {
  const values = { ...others, gpuType, idle: durationWords(Math.max(60, idle)) };
  return Object.fromEntries(
    Object.entries(values)
      .filter(([field, value]) => Object.hasOwn(INITIAL_FORM, field) && value !== undefined)
      .map(([field, value]) => [field, String(value)]),
  );
}

/**
 * Return the initial values of a form: those of the last launch, but not the name, which is taken while that session is
 * active; else those of the user's settings, else those of the profile.
 *
 * @param defaults - The values of the profile.
 * @param hasGpus - Whether the cluster may have GPUs.
 */
export function initialForm(
  last: unknown,
  defaults?: ILaunchDefaults,
  hasGpus = true,
  settings: Partial<ILaunchForm> = {},
): ILaunchForm {
  const usual = hasGpus ? INITIAL_FORM : { ...INITIAL_FORM, gpus: "0" };
  const first = {
    ...usual,
    ...(defaults === undefined ? {} : profileForm(defaults)),
    ...settings,
  };
  const known = typeof last === "object" && last !== null ? Object.entries(last) : [];
  const kept = known.filter(
    ([field, value]) => Object.hasOwn(INITIAL_FORM, field) && typeof value === "string",
  );
  const form: ILaunchForm = { ...first, ...Object.fromEntries(kept), name: "" };
  const { idle } = form;
  if (idle === "") {
    return { ...form, idle: first.idle }; // a template may lack the value
  }
  return /^\d+$/.test(idle) ? { ...form, idle: durationWords(Number(idle) * 60) } : form; // minutes, of an older version
}

/**
 * Return the problems of a form that need no request, by field.
 *
 * @param script - The values of a script, which only Slurm judges: its name of the job may have any characters.
 */
export function formProblems(
  trans: TranslationBundle,
  form: ILaunchForm,
  script?: Partial<ILaunchForm>,
): FieldTexts {
  const found: FieldTexts = {};
  if (!/^\d{0,4}$/.test(form.gpus.trim())) {
    found.gpus = trans.__("Enter a number: 0, 1, 2 …");
  }
  if (!/^([1-9]\d{0,4})?$/.test(form.cpus.trim())) {
    found.cpus = trans.__("Enter a number: 1, 2, 4 …");
  }
  if (!/^(\d+(\.\d+)?[KMGT]?)?$/i.test(form.memory.trim())) {
    found.memory = trans.__("Enter a size such as 16G or 500M.");
  }
  if (form.time.trim() !== "" && parseDuration(form.time) === null) {
    found.time = trans.__("Enter a time such as 4h, 90 min or 1d 12h.");
  }
  const idle = parseDuration(form.idle);
  if (idle === null || idle < 60 || idle === Infinity) {
    found.idle = trans.__("Enter at least 1 minute, for example 30 min or 24h.");
  }
  if (script === undefined && !/^([A-Za-z][A-Za-z0-9_.-]{0,62})?$/.test(form.name.trim())) {
    found.name = trans.__(
      "Begin with a letter. Letters, digits, dots, dashes and underscores may follow.",
    );
  }
  const appField = APP_FIELDS[form.app];
  const appValue = appField === undefined ? "" : form[appField].trim();
  if (appField === "logdir" && appValue === "") {
    found.logdir = trans.__("Enter the folder with the logs, for example runs.");
  } else if (appField !== undefined && /^-|[{}]/.test(appValue)) {
    found[appField] = trans.__("The value must not begin with a dash or contain a brace.");
  }
  const isOwn = (field: LaunchField): boolean => form[field] !== script?.[field];
  return Object.fromEntries(Object.entries(found).filter(([field]) => isOwn(field as LaunchField)));
}

/** Return a value as sbatch takes it. */
export function optionValue(form: ILaunchForm, field: LaunchField): string {
  const typed = form[field].trim();
  return field === "time" ? slurmTime(typed) : typed;
}

/** Return the request of a form: one node, since a session is one Jupyter server. */
export function launchRequest(form: ILaunchForm, key: string): ILaunch {
  const options = ["--nodes=1"];
  for (const [field, option] of Object.entries(OPTIONS)) {
    const value = optionValue(form, field as LaunchField);
    if (value !== "") {
      options.push(`${option}=${value}`);
    }
  }
  const gpus = Number(form.gpus.trim());
  if (gpus > 0) {
    options.push(acceleratorOption(form.gpuType, gpus));
  }
  const fields = placeValues(form, ["name", "dir", "env"]);
  return { key, idle: parseDuration(form.idle) ?? 0, options, ...fields, ...appRequest(form) };
}

/** Return the values of these fields that are not empty; the list of folders ends them with a slash. */
function placeValues(form: ILaunchForm, fields: readonly LaunchField[]): Record<string, string> {
  const typed = fields.map(
    (field) => [field, form[field].trim().replace(/(.)\/+$/, "$1")] as const,
  );
  return Object.fromEntries(typed.filter(([, value]) => value !== ""));
}

/** Return the app of a request, with the value of its own field. */
function appRequest(form: ILaunchForm): Pick<ILaunch, "app" | "app_values"> {
  if (form.app === "") {
    return {};
  }
  const field = APP_FIELDS[form.app];
  const values = field === undefined ? {} : placeValues(form, [field]);
  return { app: form.app as NonNullable<ILaunch["app"]>, app_values: values };
}
