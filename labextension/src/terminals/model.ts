/** Terminals of clusters: where one is, and the interface of its requests. */
import type { ServerConnection } from "@jupyterlab/services";
import type { ReadonlyPartialJSONObject } from "@lumino/coreutils";

/** A terminal that a cluster keeps. */
export interface ITerminalRecord {
  readonly id: string;
  /** ID of the job whose step the terminal is; null: it is on the login node. */
  readonly job: string | null;
  readonly host: string;
}

/** A terminal that has a page, in a form that a layout can store. */
export interface ITerminalLocation {
  /** ID of the cluster. */
  readonly cluster: string;
  /** ID of the terminal; empty: a new one. */
  readonly terminal: string;
  /** Key or ID of a job; empty: the login node. */
  readonly job: string;
}

export interface ITerminalsApi {
  /** Start a terminal on the login node, or in a running job. */
  startTerminal(cluster: string, job: string | null): Promise<ITerminalRecord>;
  /** Settings with which the connection of JupyterLab's own terminals reaches those of a cluster. */
  terminalSettings(cluster: string): ServerConnection.ISettings;
}

const TERMINAL_ID = /^[0-9a-f]{8}$/;

/** Return the location in the arguments of a command, or of a stored layout. */
export function parseTerminalLocation(args: ReadonlyPartialJSONObject): ITerminalLocation {
  const text = (name: string): string => (typeof args[name] === "string" ? args[name] : "");
  const terminal = text("terminal");
  const known = TERMINAL_ID.test(terminal) ? terminal : "";
  return { cluster: text("cluster"), terminal: known, job: text("job") };
}
