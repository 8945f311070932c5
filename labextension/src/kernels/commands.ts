/** Commands that add remote kernels to the kernels of notebooks, and remove them. */
import type { JupyterFrontEnd } from "@jupyterlab/application";
import {
  InputDialog,
  Notification,
  showErrorMessage,
  type ICommandPalette,
} from "@jupyterlab/apputils";
import type { KernelSpec } from "@jupyterlab/services";
import type { TranslationBundle } from "@jupyterlab/translation";

import type { ICluster } from "../common/api/objects";
import { toProblem } from "../common/api/problem";
import { confirmEnd } from "../common/jupyterlab/dialogs";
import { CommandIDs } from "../common/identifiers";
import { clusterName, problemText } from "../common/labels";
import { acceleratorName, type ILaunchForm } from "../common/launch_request";
import { addToPalette, commandLabel } from "../common/jupyterlab/palette";
import { durationWords, parseDuration } from "../common/time_limit";
import { chooseKernel } from "./kernel_dialogs";
import { isSlurmProvisioned, kernelRequest, type IKernelApi } from "./model";

type Commands = JupyterFrontEnd["commands"];

/** Command of JupyterLab that creates a notebook. */
const CREATE_NOTEBOOK = "notebook:create-new";
/** Time for which the notification of an added kernel is shown, in milliseconds: its button opens a notebook. */
const ADDED_SHOWN_MS = 15_000;

/** Dependencies of the commands. */
export interface IKernelActs {
  readonly api: Pick<IKernelApi, "addKernel" | "kernelSpecs" | "removeKernel">;
  readonly specs: Pick<KernelSpec.IManager, "refreshSpecs" | "specs" | "specsChanged">;
  readonly commands: Commands;
  readonly trans: TranslationBundle;
}

/** Whether kernels of this name are kernels of jupyter_slurm. */
export function isSlurmKernel(
  { specs }: Pick<KernelSpec.IManager, "specs">,
  name: string,
): boolean {
  return isSlurmProvisioned(specs?.kernelspecs[name]?.metadata);
}

/** Return a name that says what the kernel of a form has: "devwork · 1 GPU · 1 h"; its cluster, where two have one name. */
export function suggestedName(
  trans: TranslationBundle,
  cluster: ICluster,
  form: ILaunchForm,
): string {
  const [gpus, seconds] = [Number(form.gpus.trim()), parseDuration(form.time)];
  const count =
    form.gpuType === ""
      ? trans._n("%1 GPU", "%1 GPUs", gpus)
      : `${gpus} ${acceleratorName(form.gpuType)}`;
  return [
    cluster.label ?? "",
    form.partition || (cluster.label === undefined ? clusterName(cluster) : ""),
    gpus > 0 ? count : "",
    seconds === null || seconds === Infinity ? "" : durationWords(seconds),
  ]
    .filter((part) => part !== "")
    .join(" · ");
}

/** Add the kernel of a form to the kernels of the launcher, under a name that the user gives. */
export async function addKernel(
  acts: IKernelActs,
  cluster: ICluster,
  form: ILaunchForm,
): Promise<void> {
  const { api, specs, commands, trans } = acts;
  const { value: typed } = await InputDialog.getText({
    title: trans.__("Add as kernel"),
    label: trans.__("Name in the launcher:"),
    okLabel: trans.__("Add"),
    text: form.name.trim() || suggestedName(trans, cluster, form),
  });
  if (typed === null) {
    return;
  }
  try {
    const request = kernelRequest(cluster, { ...form, name: typed });
    const { name, display_name: shown } = await api.addKernel(request);
    await specs.refreshSpecs();
    const open = {
      label: trans.__("New notebook"),
      callback: () => void commands.execute(CREATE_NOTEBOOK, { kernelName: name }),
    };
    const actions = commands.hasCommand(CREATE_NOTEBOOK) ? [open] : [];
    const message = trans.__("Kernel “%1” was added to the launcher.", shown);
    Notification.success(message, { autoClose: ADDED_SHOWN_MS, actions });
  } catch (error) {
    const problem = toProblem(error, "Check whether the launcher has it, then try again.");
    await showErrorMessage(trans.__("The kernel was not added"), problemText(trans, problem));
  }
}

async function removeKernel({ api, specs, trans }: IKernelActs): Promise<void> {
  try {
    const known = await api.kernelSpecs();
    const [title, button] = [trans.__("Remove which kernel?"), trans.__("Continue")];
    const spec = await chooseKernel(trans, title, button, known);
    if (spec === null) {
      return;
    }
    const question = trans.__("Remove the kernel “%1”?", spec.display_name);
    const body = trans.__(
      "Notebooks that use it will ask for another kernel. Running kernels keep running.",
    );
    if (await confirmEnd(question, body, trans.__("Keep it"), trans.__("Remove"))) {
      await api.removeKernel(spec.name);
      await specs.refreshSpecs();
    }
  } catch (error) {
    const problem = toProblem(error, "Check whether the launcher still has it, then try again.");
    await showErrorMessage(trans.__("The kernel was not removed"), problemText(trans, problem));
  }
}

/** Add the command that removes a kernel, which is enabled while there is one. */
export function addKernelCommands(acts: IKernelActs, palette: ICommandPalette | null): void {
  const { commands, specs, trans } = acts;
  commands.addCommand(CommandIDs.removeKernel, {
    label: (args) => commandLabel(trans, trans.__("Remove a GPU Kernel…"), args),
    caption: trans.__("Remove a kernel on a cluster from the launcher"),
    isEnabled: () =>
      Object.keys(specs.specs?.kernelspecs ?? {}).some((name) => isSlurmKernel(specs, name)),
    execute: () => removeKernel(acts),
  });
  specs.specsChanged.connect(() => {
    commands.notifyCommandChanged(CommandIDs.removeKernel);
  });
  addToPalette(palette, CommandIDs.removeKernel);
}
