/** Template files: forms that launch a session, to be kept and shared. */
import { InputDialog, Notification, showErrorMessage } from "@jupyterlab/apputils";
import type { Contents } from "@jupyterlab/services";
import type { TranslationBundle } from "@jupyterlab/translation";

import type { ICluster } from "../common/api/objects";
import { confirmEnd } from "../common/jupyterlab/dialogs";
import { clusterName } from "../common/labels";
import type { ILaunchForm } from "../common/launch_request";
import { initialForm } from "./form_values";

/** Extension of template files. */
export const EXTENSION = ".slurm-launch.json";
const FORMAT = 1;

export interface ITemplate {
  /**
   * The name of the cluster for users, or its ID where another cluster has that name; where the file was copied to, it
   * may have another name, or not exist.
   */
  readonly cluster: string;
  readonly form: ILaunchForm;
}

/** Return the content of a file: the values of the form, without empty ones and the name of the session. */
export function templateText(cluster: ICluster, form: ILaunchForm): string {
  const kept = Object.entries(form).filter(([field, value]) => value !== "" && field !== "name");
  const template = {
    slurm_launch: FORMAT,
    cluster: cluster.label === undefined ? clusterName(cluster) : cluster.id,
    form: Object.fromEntries(kept),
  };
  return `${JSON.stringify(template, null, 2)}\n`;
}

/** Return the template in a file; null where it is none. Missing values stay empty: no default takes their place. */
export function readTemplate(text: string): ITemplate | null {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof parsed !== "object" || parsed === null) {
    return null;
  }
  const { slurm_launch: format, cluster, form } = parsed as Record<string, unknown>;
  if (format !== FORMAT || typeof form !== "object" || form === null) {
    return null;
  }
  const open = Object.keys(initialForm(null)).map((field) => [field, ""]);
  const written = Object.entries(form as Record<string, unknown>)
    .map(([field, value]) => [field, typeof value === "number" ? String(value) : value])
    .filter(([, value]) => typeof value === "string"); // users who write a file by hand write numbers
  const filled = initialForm(Object.fromEntries([...open, ...written]));
  const hasIdle = written.some(([field]) => field === "idle"); // otherwise the cluster of the template has it
  return {
    cluster: typeof cluster === "string" ? cluster : "",
    form: hasIdle ? filled : { ...filled, idle: "" },
  };
}

/** Return the cluster of a template; the only cluster, where the name differs; none, where several have the name. */
export function clusterOf(
  template: ITemplate,
  clusters: readonly ICluster[],
): ICluster | undefined {
  const { cluster: wanted } = template;
  const isMeant = (one: ICluster): boolean => one.id === wanted && !one.connection;
  const isNamed = (one: ICluster): boolean =>
    one.label === undefined && clusterName(one) === wanted;
  const found = clusters.find(isMeant) ?? clusters.find(isNamed);
  return found ?? (clusters.length === 1 ? clusters[0] : undefined);
}

/** Save a form as a file at a path of the user's choice; nothing is replaced without a question. */
export async function saveTemplate(
  contents: Contents.IManager,
  trans: TranslationBundle,
  cluster: ICluster,
  form: ILaunchForm,
  path = `${clusterName(cluster)}${EXTENSION}`,
): Promise<void> {
  const label = trans.__("Save to:");
  const okLabel = trans.__("Save");
  const title = trans.__("Save as template");
  const { value } = await InputDialog.getText({ title, label, okLabel, text: path });
  const typed = value?.trim() ?? "";
  if (typed === "") {
    return;
  }
  const file = typed.endsWith(EXTENSION) ? typed : typed.replace(/(\.json)?$/, EXTENSION);
  try {
    if (await fileExists(contents, file)) {
      const question = trans.__("Replace %1?", file);
      const body = trans.__("Its present content will be lost.");
      if (!(await confirmEnd(question, body, trans.__("Keep it"), trans.__("Replace")))) {
        return;
      }
    }
    const content = templateText(cluster, form);
    await contents.save(file, { type: "file", format: "text", content });
    Notification.success(trans.__("Saved as %1", file), { autoClose: 5000 });
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    await showErrorMessage(trans.__("%1 was not saved", file), message);
  }
}

async function fileExists(contents: Contents.IManager, path: string): Promise<boolean> {
  try {
    await contents.get(path, { content: false });
    return true;
  } catch {
    return false; // saving reports other problems of the path
  }
}
