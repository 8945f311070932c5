/** Terminals of clusters: where one is, and the interface of its requests. */
import type { ServerConnection } from "@jupyterlab/services";
import type { TranslationBundle } from "@jupyterlab/translation";
import type { ReadonlyPartialJSONObject } from "@lumino/coreutils";

/** A terminal that a cluster keeps. */
export interface ITerminalRecord {
  readonly id: string;
  /** ID of the job whose step the terminal is; null: it is on the login node. */
  readonly job: string | null;
  /** Name of the job, session, kernel or allocation. */
  readonly name: string | null;
  readonly node: string | null;
  readonly host: string;
  /** Seconds since the epoch, by the clock of the host. */
  readonly started: number;
}

/** A terminal that has a page, in a form that a layout can store. */
export interface ITerminalLocation {
  /** ID of the cluster. */
  readonly cluster: string;
  /** ID of the terminal; empty: a new one. */
  readonly terminal: string;
  /** Key or ID of a job; empty: the login node. */
  readonly job: string;
  /** Name of the job, and node of the terminal; empty: none, or not known. */
  readonly name: string;
  readonly node: string;
}

export interface ITerminalsApi {
  /** Start a terminal on the login node, or in a running job. */
  startTerminal(cluster: string, job: string | null): Promise<ITerminalRecord>;
  /** Load the terminals that a cluster keeps, the oldest first. */
  terminals(cluster: string): Promise<readonly ITerminalRecord[]>;
  /** Settings with which the connection of JupyterLab's own terminals reaches those of a cluster. */
  terminalSettings(cluster: string): ServerConnection.ISettings;
}

const TERMINAL_ID = /^[0-9a-f]{8}$/;

/** Return the location in the arguments of a command, or of a stored layout. */
export function parseTerminalLocation(args: ReadonlyPartialJSONObject): ITerminalLocation {
  const text = (name: string): string => (typeof args[name] === "string" ? args[name] : "");
  const terminal = text("terminal");
  const known = TERMINAL_ID.test(terminal) ? terminal : "";
  const [cluster, job, name, node] = [text("cluster"), text("job"), text("name"), text("node")];
  return { cluster, terminal: known, job, name, node };
}

/** Return the location of a terminal that a cluster keeps. */
export function locationOf(cluster: string, record: ITerminalRecord): ITerminalLocation {
  const { id, job, name, node } = record;
  return { cluster, terminal: id, job: job ?? "", name: name ?? "", node: node ?? "" };
}

/** Return the title of a terminal: its job and node, or its cluster. */
export function terminalTitle(
  trans: TranslationBundle,
  { job, name, node }: ITerminalLocation,
  clusterLabel: string,
): string {
  if (job === "") {
    return trans.__("Terminal on %1", clusterLabel);
  }
  const what = name || trans.__("job %1", job);
  return node === ""
    ? trans.__("Terminal · %1", what)
    : trans.__("Terminal · %1 on %2", what, node);
}
