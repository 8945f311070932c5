/** The names of our commands, and what those ask first that end something. */
import type { JupyterFrontEnd } from "@jupyterlab/application";
import { Dialog, showDialog, type ICommandPalette } from "@jupyterlab/apputils";
import type { TranslationBundle } from "@jupyterlab/translation";
import type { ReadonlyPartialJSONObject } from "@lumino/coreutils";

import { actQuestion } from "../jobs/action_labels";
import { chooseCluster, typeLimit } from "../jobs/choose";
import { clusterName, disconnectBody, disconnectTitle, usersText } from "./labels";
import type { Act, ICluster, IJob, IJobsModel } from "./tokens";

export const CommandIDs = {
  open: "jupyter-slurm:open",
  /** The panel in the side bar. */
  side: "jupyter-slurm:show-side-bar",
  /** Select a job in the table, with the same arguments as `openJob`. */
  select: "jupyter-slurm:select-job",
  refresh: "jupyter-slurm:refresh",
  /** With the id of a cluster as the argument `cluster`, as the next two; without it they ask. */
  connect: "jupyter-slurm:connect",
  disconnect: "jupyter-slurm:disconnect",
  /** With the id of a cluster as the argument `cluster`, and the key of a session that is to be shown as `session`. */
  launch: "jupyter-slurm:launch",
  /** With the id of a cluster as the argument `cluster`, and as `job` a key, an id, or that of a task (`12_3`). */
  openJob: "jupyter-slurm:open-job",
  openJobById: "jupyter-slurm:open-job-by-id",
  /** With the same arguments; without them it asks which. */
  cancel: "jupyter-slurm:cancel",
  /** With what is to be done with the selected jobs as the argument `act`. */
  act: "jupyter-slurm:act",
  /** Copy the selected jobs; as the argument `format`, `csv` or `json`. */
  copy: "jupyter-slurm:copy",
  /** Of the job whose page is in front. */
  resubmit: "jupyter-slurm:submit-again",
  copyLink: "jupyter-slurm:copy-link",
  browserNotices: "jupyter-slurm:browser-notices",
  removeKernel: "jupyter-slurm:remove-kernel",
  /** Of the notebook in front. */
  move: "jupyter-slurm:move-notebook",
  /** Of the notebook in front; of another one by the arguments `cluster` (its id) and `allocation` (a key). */
  followUp: "jupyter-slurm:follow-up",
} as const;

/** Ask before something is ended; what Enter chooses keeps it. */
export async function confirmed(
  title: string,
  body: string,
  keep: string,
  end: string,
): Promise<boolean> {
  const buttons = [Dialog.cancelButton({ label: keep }), Dialog.warnButton({ label: end })];
  const result = await showDialog({ title, body, defaultButton: 0, buttons });
  return result.button.accept;
}

/** Do the same with several jobs, after the person said so where work is lost by it, or what is to be set. */
export async function actOn(
  trans: TranslationBundle,
  model: IJobsModel,
  act: Act,
  jobs: readonly IJob[],
): Promise<void> {
  if (jobs.length === 0) {
    return;
  }
  if (act === "cancel" || act === "requeue") {
    const { title, body, keep, end } = actQuestion(trans, act, jobs);
    if (!(await confirmed(title, body, keep, end))) {
      return;
    }
  }
  const limit = act === "limit" ? await typeLimit(trans, jobs) : undefined;
  if (limit !== "") {
    await model.act(act, jobs, limit);
  }
}

/** Cancel a job after the person said so: a cancelled job's work is gone. */
export function cancelJob(trans: TranslationBundle, model: IJobsModel, job: IJob): Promise<void> {
  return actOn(trans, model, "cancel", [job]);
}

/** End a log-in, at once if nobody uses it. */
export async function disconnect(
  trans: TranslationBundle,
  model: IJobsModel,
  cluster: ICluster,
): Promise<void> {
  const users = usersText(trans, cluster);
  if (users !== "") {
    const [title, body] = [disconnectTitle(trans, cluster), disconnectBody(trans, cluster)];
    if (!(await confirmed(title, body, trans.__("Stay connected"), trans.__("Disconnect")))) {
      return;
    }
  }
  await model.disconnect(cluster);
}

/**
 * The commands that connect and disconnect, in the palette for each cluster that needs a log-in: of the two the one that does
 * something.
 */
export function addConnecting(
  commands: JupyterFrontEnd["commands"],
  palette: ICommandPalette | null,
  model: IJobsModel,
  trans: TranslationBundle,
): void {
  const meant = ({ cluster }: ReadonlyPartialJSONObject): ICluster | undefined =>
    model.clusters.find(({ id, connection }) => id === cluster && connection);
  const isOff = ({ connection }: ICluster): boolean => connection?.state === "disconnected";
  const isOn = (cluster: ICluster): boolean => Boolean(cluster.connection) && !isOff(cluster);
  const add = (
    id: string,
    isFor: (cluster: ICluster) => boolean,
    act: (cluster: ICluster) => Promise<void>,
    [whole, part, button]: readonly [string, (name: string) => string, string],
  ): void => {
    commands.addCommand(id, {
      label: (args) => {
        const cluster = meant(args);
        return cluster ? part(clusterName(cluster)) : whole;
      },
      isEnabled: (args) => args["cluster"] !== undefined || model.clusters.some(isFor),
      isVisible: (args) => {
        const cluster = meant(args);
        const all = model.clusters.some(({ connection }) => connection);
        return args["cluster"] === undefined ? all : cluster !== undefined && isFor(cluster);
      },
      execute: async (args) => {
        const all = model.clusters.filter(isFor);
        const isSaid = args["cluster"] !== undefined;
        const cluster = isSaid ? meant(args) : await chooseCluster(trans, whole, button, all);
        await (cluster && act(cluster));
      },
    });
  };
  add(CommandIDs.connect, isOff, (cluster) => model.connect(cluster), [
    trans.__("Connect to a Cluster…"),
    (name) => trans.__("Connect to %1", name),
    trans.__("Connect"),
  ]);
  add(CommandIDs.disconnect, isOn, (cluster) => disconnect(trans, model, cluster), [
    trans.__("Disconnect from a Cluster…"),
    (name) => trans.__("Disconnect from %1", name),
    trans.__("Disconnect"),
  ]);
  const listed = new Set<string>();
  let before = "";
  const listAll = (): void => {
    const states = model.clusters.map(({ id, connection }) => [id, connection?.state]);
    if (JSON.stringify(states) === before) {
      return;
    }
    before = JSON.stringify(states);
    for (const { id, connection } of model.clusters) {
      if (connection && !listed.has(id)) {
        listed.add(id);
        for (const command of [CommandIDs.connect, CommandIDs.disconnect]) {
          palette?.addItem({ command, category: "Slurm", args: { cluster: id } });
        }
      }
    }
    commands.notifyCommandChanged(CommandIDs.connect);
    commands.notifyCommandChanged(CommandIDs.disconnect);
  };
  listAll(); // translations may have come later than the clusters
  model.changed.connect(listAll);
}
