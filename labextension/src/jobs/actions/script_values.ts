/** Values of a script in the form of its job, and the options of the form that differ from those of the script. No DOM. */
import type { TranslationBundle } from "@jupyterlab/translation";

import type { ILaunchForm, LaunchField } from "../../common/launch_request";
import { INITIAL_FORM, OPTIONS, optionValue, type FieldTexts } from "../../sessions/form_values";

/** Options in force by long name, as the agent reads them in the #SBATCH lines. */
export type ScriptOptions = Readonly<Record<string, string | null>>;

/** Fields whose value may have one of several units. sbatch refuses a second one beside that of the script. */
const UNITS = {
  gpus: ["gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "gres"],
  cpus: ["cpus-per-task", "cpus-per-gpu"],
  memory: ["mem", "mem-per-cpu", "mem-per-gpu"],
} as const;
const GPUS = /^(?:([A-Za-z][^:,()=]*):)?(\d+)$/;

/** Return the option of a field, in the unit of the script. */
function optionOf(field: LaunchField, options: ScriptOptions): string {
  const units = Object.hasOwn(UNITS, field) ? UNITS[field as keyof typeof UNITS] : null;
  const given = units?.find(
    (name) => options[name] && (name !== "gres" || /(^|,)gpu(:|,|$)/.test(options[name])),
  );
  const fixed = field === "name" ? "job-name" : (OPTIONS[field] ?? "").slice(2);
  return given ?? units?.[0] ?? fixed;
}

/** The GPUs of a script: their type and number, null where the form cannot show them; other resources of --gres. */
interface IGpus {
  readonly value: { readonly gpuType: string; readonly gpus: string } | null;
  readonly others: readonly string[];
}

function gpusOf(options: ScriptOptions): IGpus {
  const option = optionOf("gpus", options);
  const parts = (options[option] ?? "").split(",").filter((part) => part !== "");
  const isGpu = (part: string): boolean => option !== "gres" || /^gpu(:|$)/.test(part);
  const [own, others] = [parts.filter(isGpu), parts.filter((part) => !isGpu(part))];
  const text = (own[0] ?? "").replace(option === "gres" ? /^gpu:?/ : "", "");
  const counted = text === "" ? "1" : /^[A-Za-z][^:]*$/.test(text) ? `${text}:1` : text;
  const found = GPUS.exec(counted);
  const isShown = own.length === 1 && found !== null;
  return { value: isShown ? { gpuType: found[1] ?? "", gpus: found[2] ?? "" } : null, others };
}

/** Return the values that a script gives, by field. */
export function scriptValues(options: ScriptOptions): Partial<ILaunchForm> {
  const found: Partial<Record<LaunchField, string>> = {};
  for (const field of [...(Object.keys(OPTIONS) as LaunchField[]), "name"] as const) {
    const value = options[optionOf(field, options)];
    if (value) {
      found[field] = value;
    }
  }
  return { ...found, ...gpusOf(options).value };
}

/** Return the form with the values of a script, and nothing where it gives none. */
export function scriptForm(script: Partial<ILaunchForm>): ILaunchForm {
  const empty = Object.fromEntries(Object.keys(INITIAL_FORM).map((field) => [field, ""]));
  return { ...INITIAL_FORM, ...empty, ...script, idle: INITIAL_FORM.idle }; // a job has no idle time
}

/** Return the meaning of values whose unit is that of the script, and GPUs that the form cannot show. */
export function unitHints(trans: TranslationBundle, options: ScriptOptions): FieldTexts {
  const meanings: Readonly<Record<string, string>> = {
    cpu: trans.__("For each CPU"),
    gpu: trans.__("For each GPU"),
    node: trans.__("For each node"),
    socket: trans.__("For each socket"),
    task: trans.__("For each task"),
  };
  const hints: Partial<Record<LaunchField, string>> = {};
  for (const field of Object.keys(UNITS) as LaunchField[]) {
    const option = optionOf(field, options);
    const meaning = meanings[option === "gres" ? "node" : (option.split("-per-")[1] ?? "")];
    const isUsual = option === "cpus-per-task"; // most jobs have one task
    if (options[option] && meaning !== undefined && !isUsual) {
      hints[field] = meaning;
    }
  }
  const option = optionOf("gpus", options);
  if (options[option] && gpusOf(options).value === null) {
    hints.gpus = trans.__("In the script: %1", options[option]);
  }
  return hints;
}

/** Return the option for other GPUs than those of the script. */
function gpuOption(form: ILaunchForm, options: ScriptOptions): string {
  const option = optionOf("gpus", options);
  const count = Number(form.gpus.trim());
  const value = form.gpuType === "" || count === 0 ? `${count}` : `${form.gpuType}:${count}`;
  if (option !== "gres") {
    return `--${option}=${value}`;
  }
  const all = [...(count === 0 ? [] : [`gpu:${value}`]), ...gpusOf(options).others];
  return `--gres=${all.join(",") || "none"}`;
}

/** Return the options of the form that differ from those of the script. An empty field leaves the decision to it. */
export function changedOptions(form: ILaunchForm, options: ScriptOptions): string[] {
  const script = scriptValues(options);
  const isChanged = (field: LaunchField): boolean => {
    const value = form[field].trim();
    return value !== "" && value !== script[field];
  };
  const found = [...(Object.keys(OPTIONS) as LaunchField[]), "name" as const]
    .filter(isChanged)
    .map((field) => `--${optionOf(field, options)}=${optionValue(form, field)}`);
  const areOther = isChanged("gpus") || form.gpuType !== (script.gpuType ?? "");
  const hasSome = Number(form.gpus.trim()) > 0 || Boolean(options[optionOf("gpus", options)]);
  return form.gpus.trim() !== "" && areOther && hasSome
    ? [...found, gpuOption(form, options)]
    : found;
}
