/** The names of our commands, and what those ask first that end something. */
import type { JupyterFrontEnd } from "@jupyterlab/application";
import { Dialog, showDialog, type ICommandPalette } from "@jupyterlab/apputils";
import type { TranslationBundle } from "@jupyterlab/translation";
import type { ReadonlyPartialJSONObject } from "@lumino/coreutils";

import type { ICluster, IJob, IJobsModel } from "./tokens";
import {
  cancelBody,
  cancelTitle,
  clusterName,
  disconnectBody,
  disconnectTitle,
  usersText,
} from "./words";

export const CommandIDs = {
  open: "jupyter-slurm:open",
  refresh: "jupyter-slurm:refresh",
  /** With the id of a cluster as the argument `cluster`, as the next one. */
  connect: "jupyter-slurm:connect",
  disconnect: "jupyter-slurm:disconnect",
  /** With the id of a cluster as the argument `cluster`, and the key of a session that is to be shown as `session`. */
  launch: "jupyter-slurm:launch",
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

/** Cancel a job after the person said so: a cancelled job's work is gone. */
export async function cancelJob(
  trans: TranslationBundle,
  model: IJobsModel,
  job: IJob,
): Promise<void> {
  const [title, body] = [cancelTitle(trans, job), cancelBody(trans, job)];
  if (await confirmed(title, body, trans.__("Keep it"), trans.__("Cancel the job"))) {
    await model.cancel(job);
  }
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
  const isOff = (cluster?: ICluster): boolean => cluster?.connection?.state === "disconnected";
  const name = (args: ReadonlyPartialJSONObject): string => {
    const cluster = meant(args);
    return cluster ? clusterName(cluster) : trans.__("a cluster");
  };
  commands.addCommand(CommandIDs.connect, {
    label: (args) => trans.__("Connect to %1", name(args)),
    isVisible: (args) => isOff(meant(args)),
    execute: async (args) => {
      const cluster = meant(args);
      await (cluster && model.connect(cluster));
    },
  });
  commands.addCommand(CommandIDs.disconnect, {
    label: (args) => trans.__("Disconnect from %1", name(args)),
    isVisible: (args) => meant(args) !== undefined && !isOff(meant(args)),
    execute: async (args) => {
      const cluster = meant(args);
      await (cluster && disconnect(trans, model, cluster));
    },
  });
  const listed = new Set<string>();
  let before = "";
  model.changed.connect(() => {
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
  });
}
