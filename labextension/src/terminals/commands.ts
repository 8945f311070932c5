/** The command that opens a terminal on a cluster, with a card and an entry of the palette for each cluster. */
import type { JupyterFrontEnd } from "@jupyterlab/application";
import { showErrorMessage, type ICommandPalette } from "@jupyterlab/apputils";
import type { ILauncher } from "@jupyterlab/launcher";
import type { TranslationBundle } from "@jupyterlab/translation";
import { terminalIcon } from "@jupyterlab/ui-components";
import type { IDisposable } from "@lumino/disposable";

import type { ICluster } from "../common/api/objects";
import { toProblem } from "../common/api/problem";
import { formatTime } from "../common/format";
import { CommandIDs } from "../common/identifiers";
import type { IJobsModel } from "../common/jobs_model";
import { chooseCluster, chooseOne } from "../common/jupyterlab/dialogs";
import { awaitClusters } from "../common/jupyterlab/known_clusters";
import { addToPalette, commandLabel } from "../common/jupyterlab/palette";
import { clusterName, nameOfCluster, problemText } from "../common/labels";
import {
  locationOf,
  parseTerminalLocation,
  terminalTitle,
  type ITerminalLocation,
  type ITerminalRecord,
  type ITerminalsApi,
} from "./model";

/** Rank of the section in the launcher, that of the sessions. */
const LAUNCHER_RANK = 10;
/** Rank of the cards in the section: below those of the sessions. */
const CARD_RANK = 50;

/** Dependencies of the command. */
export interface ITerminalActs {
  readonly api: ITerminalsApi;
  readonly model: IJobsModel;
  readonly trans: TranslationBundle;
  readonly commands: JupyterFrontEnd["commands"];
  readonly open: (place: ITerminalLocation) => Promise<void>;
  /** Whether a terminal has a page. */
  readonly isShown: (place: ITerminalLocation) => boolean;
}

/** A terminal without a page. */
interface IKeptTerminal {
  readonly place: ITerminalLocation;
  readonly record: ITerminalRecord;
}

/** Start a terminal where the location has none, and show it. */
async function openTerminal(
  { api, trans, open }: ITerminalActs,
  place: ITerminalLocation,
): Promise<void> {
  if (place.terminal !== "") {
    await open(place);
    return;
  }
  try {
    const started = await api.startTerminal(place.cluster, place.job || null);
    await open(locationOf(place.cluster, started));
  } catch (error) {
    const problem = toProblem(error, "Check the connection to the cluster, then try again.");
    await showErrorMessage(trans.__("The terminal was not opened"), problemText(trans, problem));
  }
}

/** Ask which of the terminals without a page to show. Clusters that do not answer have none. */
async function reattach({ api, model, trans, open, isShown }: ITerminalActs): Promise<void> {
  const connected = model.clusters.filter(
    ({ connection }) => !connection || connection.state === "connected",
  );
  const listed = await Promise.allSettled(
    connected.map(async ({ id }) =>
      (await api.terminals(id)).map((record) => ({ place: locationOf(id, record), record })),
    ),
  );
  const kept = listed
    .flatMap((one) => (one.status === "fulfilled" ? one.value : []))
    .filter(({ place }) => !isShown(place));
  if (kept.length === 0) {
    const text = trans.__("The connected clusters keep no terminal without a tab.");
    await showErrorMessage(trans.__("No terminal to reattach"), text);
    return;
  }
  const name = ({ place, record }: IKeptTerminal): string => {
    const cluster = nameOfCluster(model, place.cluster);
    const where = place.job === "" ? [] : [cluster];
    const title = terminalTitle(trans, place, cluster);
    return [title, ...where, formatTime(record.started), record.id].join(" · ");
  };
  const [title, label] = [trans.__("Reattach which terminal?"), trans.__("Terminal")];
  const chosen = await chooseOne(title, label, trans.__("Reattach"), kept, name);
  await (chosen && open(chosen.place));
}

function addCards(
  { model }: ITerminalActs,
  palette: ICommandPalette | null,
  launcher: ILauncher | null,
): void {
  const listed = new Map<string, { name: string; items: IDisposable[] }>();
  const list = (cluster: ICluster, rank: number): void => {
    const [name, command] = [clusterName(cluster), CommandIDs.terminal];
    const known = listed.get(cluster.id);
    if (known?.name === name) {
      return;
    }
    known?.items.forEach((item) => {
      item.dispose();
    });
    const args = { cluster: cluster.id };
    const card = { category: "Slurm", categoryRank: LAUNCHER_RANK, rank: CARD_RANK + rank };
    const items = [
      launcher?.add({ command, ...card, args: { ...args, isCard: true } }),
      addToPalette(palette, command, args),
    ];
    listed.set(cluster.id, { name, items: items.filter((item) => item !== undefined) });
  };
  const listAll = (): void => {
    model.clusters.forEach(list);
  };
  listAll();
  model.changed.connect(listAll);
}

/** Add the command; with a job in its arguments, the terminal is inside that job. */
export function addTerminalCommand(
  acts: ITerminalActs,
  palette: ICommandPalette | null,
  launcher: ILauncher | null,
): void {
  const { model, trans, commands } = acts;
  const choose = async (): Promise<string> => {
    const [title, button] = [trans.__("Terminal on which cluster?"), trans.__("Open")];
    const clusters = await awaitClusters(model, trans, trans.__("The terminal was not opened"));
    return (await chooseCluster(trans, title, button, clusters))?.id ?? "";
  };
  commands.addCommand(CommandIDs.terminal, {
    label: (args) => {
      const { cluster } = parseTerminalLocation(args);
      if (cluster === "") {
        return commandLabel(trans, trans.__("Open Terminal…"), args);
      }
      const name = nameOfCluster(model, cluster);
      return args["isCard"] === true
        ? trans.__("Terminal on %1", name)
        : commandLabel(trans, trans.__("Open Terminal on %1", name), args);
    },
    caption: trans.__("Open a terminal on the login node of the cluster"),
    icon: ({ isPalette, isMenu }) => (isPalette || isMenu ? undefined : terminalIcon),
    execute: async (args) => {
      const place = parseTerminalLocation(args);
      const cluster = place.cluster || (await choose());
      if (cluster !== "") {
        await openTerminal(acts, { ...place, cluster });
      }
    },
  });
  commands.addCommand(CommandIDs.reattachTerminal, {
    label: (args) => commandLabel(trans, trans.__("Reattach Terminal…"), args),
    caption: trans.__("Show a terminal that a cluster keeps and that has no tab"),
    execute: () => reattach(acts),
  });
  addToPalette(palette, CommandIDs.reattachTerminal);
  addCards(acts, palette, launcher);
}
