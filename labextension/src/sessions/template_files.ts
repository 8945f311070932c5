/** Templates: forms that launch a session, kept as files that can be shared. */
import { InputDialog, Notification, showErrorMessage } from "@jupyterlab/apputils";
import type { Contents } from "@jupyterlab/services";
import type { TranslationBundle } from "@jupyterlab/translation";

import type { ICluster } from "../common/api/objects";
import { confirmed } from "../common/dialogs";
import { clusterName } from "../common/labels";
import type { IForm } from "../common/launch_request";
import { firstForm } from "./form_values";

/** How the names of such files end. */
export const EXTENSION = ".slurm-launch.json";
const FORMAT = 1;

export interface ITemplate {
  /** What people call the cluster; it may have another name, or none, where the file was brought to. */
  readonly cluster: string;
  readonly form: IForm;
}

/** Return the content of a file: what stands in the form, without what is left to Slurm and without the session's name. */
export function templateText(cluster: ICluster, form: IForm): string {
  const kept = Object.entries(form).filter(([field, value]) => value !== "" && field !== "name");
  const told = {
    slurm_launch: FORMAT,
    cluster: clusterName(cluster),
    form: Object.fromEntries(kept),
  };
  return `${JSON.stringify(told, null, 2)}\n`;
}

/** Return what a file says, null where it is no template. What it leaves open stays open: no value of our own takes its place. */
export function readTemplate(text: string): ITemplate | null {
  let told: unknown;
  try {
    told = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof told !== "object" || told === null) {
    return null;
  }
  const { slurm_launch: format, cluster, form } = told as Record<string, unknown>;
  if (format !== FORMAT || typeof form !== "object" || form === null) {
    return null;
  }
  const open = Object.keys(firstForm(null)).map((field) => [field, ""]);
  const written = Object.entries(form as Record<string, unknown>)
    .map(([field, value]) => [field, typeof value === "number" ? String(value) : value])
    .filter(([, value]) => typeof value === "string"); // a person who writes one by hand writes numbers
  const filled = firstForm(Object.fromEntries([...open, ...written]));
  const hasIdle = written.some(([field]) => field === "idle"); // else the cluster it is for says it
  return {
    cluster: typeof cluster === "string" ? cluster : "",
    form: hasIdle ? filled : { ...filled, idle: "" },
  };
}

/** Return the cluster that a template means; the only one there is, where it is called something else. */
export function clusterOf(
  template: ITemplate,
  clusters: readonly ICluster[],
): ICluster | undefined {
  const named = clusters.find((one) => [one.id, clusterName(one)].includes(template.cluster));
  return named ?? (clusters.length === 1 ? clusters[0] : undefined);
}

/** Keep a form as a file where the person says; nothing is replaced without a question. */
export async function saveTemplate(
  contents: Contents.IManager,
  trans: TranslationBundle,
  cluster: ICluster,
  form: IForm,
  path = `${clusterName(cluster)}${EXTENSION}`,
): Promise<void> {
  const label = trans.__("File, with its folder:");
  const okLabel = trans.__("Save");
  const title = trans.__("Save as template");
  const { value } = await InputDialog.getText({ title, label, okLabel, text: path });
  const typed = value?.trim() ?? "";
  if (typed === "") {
    return;
  }
  const file = typed.endsWith(EXTENSION) ? typed : typed.replace(/(\.json)?$/, EXTENSION);
  try {
    if (await isThere(contents, file)) {
      const question = trans.__("Replace %1?", file);
      const body = trans.__("What is in it now is lost.");
      if (!(await confirmed(question, body, trans.__("Keep it"), trans.__("Replace")))) {
        return;
      }
    }
    const content = templateText(cluster, form);
    await contents.save(file, { type: "file", format: "text", content });
    Notification.success(trans.__("Saved as %1", file), { autoClose: 5000 });
  } catch (error) {
    const said = error instanceof Error ? error.message : String(error);
    await showErrorMessage(trans.__("%1 was not saved", file), said);
  }
}

async function isThere(contents: Contents.IManager, path: string): Promise<boolean> {
  try {
    await contents.get(path, { content: false });
    return true;
  } catch {
    return false; // what else is wrong with the path is said when it is saved
  }
}
