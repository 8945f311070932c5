/** The page of a terminal of a cluster: JupyterLab's own terminal, with another connection. */
import { MainAreaWidget } from "@jupyterlab/apputils";
import { TerminalManager, type Terminal as Connection } from "@jupyterlab/services";
import { Terminal } from "@jupyterlab/terminal";
import type { ITranslator, TranslationBundle } from "@jupyterlab/translation";
import { terminalIcon } from "@jupyterlab/ui-components";

import type { ITerminalLocation, ITerminalsApi } from "./model";

export type TerminalPage = MainAreaWidget<Terminal> & { readonly place: ITerminalLocation };

/** Return a connection to a terminal. The manager stays idle: it would ask for a list of Jupyter's own. */
function connect(
  api: ITerminalsApi,
  { cluster, terminal }: ITerminalLocation,
): Connection.ITerminalConnection {
  const serverSettings = api.terminalSettings(cluster);
  const manager = new TerminalManager({ serverSettings, standby: () => true });
  const connection = manager.connectTo({ model: { name: terminal } });
  connection.disposed.connect(() => {
    manager.dispose();
  });
  return connection;
}

/** Return the page of a terminal. The end of the page leaves the terminal on the cluster. */
export function terminalPage(
  api: ITerminalsApi,
  translator: ITranslator,
  trans: TranslationBundle,
  place: ITerminalLocation,
  clusterLabel: string,
): TerminalPage {
  const connection = connect(api, place);
  const options = { theme: "inherit" as const, closeOnExit: false, shutdownOnClose: false };
  const content = new Terminal(connection, options, translator);
  const page = Object.assign(new MainAreaWidget({ content }), { place });
  page.toolbar.hide(); // an empty toolbar would be a stripe above the terminal
  page.id = `jupyter-slurm-terminal-${place.cluster}-${place.terminal}`;
  page.disposed.connect(() => {
    connection.dispose();
  });
  const name =
    place.job === ""
      ? trans.__("Terminal on %1", clusterLabel)
      : trans.__("Terminal in job %1", place.job);
  const named = (): void => {
    page.title.label = name;
    page.title.icon = terminalIcon;
    page.title.closable = true;
    page.title.caption = trans.__(
      "%1. The cluster keeps it when this tab is closed: `jupyter slurm shell %2` attaches to it.",
      name,
      place.terminal,
    );
  };
  named();
  void content.ready.then(named); // the widget then has a title of its own
  return page;
}
