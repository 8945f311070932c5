/** Commands that connect to a cluster and disconnect from it. */
import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { ICommandPalette } from "@jupyterlab/apputils";
import type { TranslationBundle } from "@jupyterlab/translation";
import type { ReadonlyPartialJSONObject } from "@lumino/coreutils";

import type { ICluster } from "../common/api/objects";
import { chooseCluster, confirmEnd } from "../common/jupyterlab/dialogs";
import { CommandIDs } from "../common/identifiers";
import type { IJobsModel } from "../common/jobs_model";
import { clusterName, disconnectBody, disconnectTitle, usersText } from "../common/labels";
import { addToPalette, commandLabel } from "../common/jupyterlab/palette";

/** End a login, after a confirmation where processes use it. */
export async function confirmDisconnect(
  trans: TranslationBundle,
  model: IJobsModel,
  cluster: ICluster,
): Promise<void> {
  const users = usersText(trans, cluster);
  if (users !== "") {
    const [title, body] = [disconnectTitle(trans, cluster), disconnectBody(trans, cluster)];
    if (!(await confirmEnd(title, body, trans.__("Stay connected"), trans.__("Disconnect")))) {
      return;
    }
  }
  await model.disconnect(cluster);
}

/**
 * Add the commands that connect and disconnect. The palette has, for each cluster that needs a login, the one that
 * applies.
 */
export function addConnectionCommands(
  commands: JupyterFrontEnd["commands"],
  palette: ICommandPalette | null,
  model: IJobsModel,
  trans: TranslationBundle,
): void {
  const clusterOf = ({ cluster }: ReadonlyPartialJSONObject): ICluster | undefined =>
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
        const cluster = clusterOf(args);
        return commandLabel(trans, cluster ? part(clusterName(cluster)) : whole, args);
      },
      isEnabled: (args) => args["cluster"] !== undefined || model.clusters.some(isFor),
      isVisible: (args) => {
        const cluster = clusterOf(args);
        const all = model.clusters.some(({ connection }) => connection);
        return args["cluster"] === undefined ? all : cluster !== undefined && isFor(cluster);
      },
      execute: async (args) => {
        const all = model.clusters.filter(isFor);
        const isSaid = args["cluster"] !== undefined;
        const cluster = isSaid ? clusterOf(args) : await chooseCluster(trans, whole, button, all);
        await (cluster && act(cluster));
      },
    });
  };
  add(CommandIDs.connect, isOff, (cluster) => model.connect(cluster), [
    trans.__("Connect to a Cluster…"),
    (name) => trans.__("Connect to %1", name),
    trans.__("Connect"),
  ]);
  add(CommandIDs.disconnect, isOn, (cluster) => confirmDisconnect(trans, model, cluster), [
    trans.__("Disconnect from a Cluster…"),
    (name) => trans.__("Disconnect from %1", name),
    trans.__("Disconnect"),
  ]);
  const listed = new Set<string>();
  let before = "";
  const listAll = (): void => {
    const states = model.clusters.map((one) => [one.id, clusterName(one), one.connection?.state]);
    if (JSON.stringify(states) === before) {
      return;
    }
    before = JSON.stringify(states);
    for (const { id, connection } of model.clusters) {
      if (connection && !listed.has(id)) {
        listed.add(id);
        for (const command of [CommandIDs.connect, CommandIDs.disconnect]) {
          addToPalette(palette, command, { cluster: id });
        }
      }
    }
    commands.notifyCommandChanged(CommandIDs.connect);
    commands.notifyCommandChanged(CommandIDs.disconnect);
  };
  listAll(); // translations may be loaded later than the clusters
  model.changed.connect(listAll);
}
