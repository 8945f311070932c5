/** The page of a terminal of a cluster: JupyterLab's own terminal, with another connection. */
import { MainAreaWidget } from "@jupyterlab/apputils";
import { TerminalManager, type Terminal as Connection } from "@jupyterlab/services";
import { Terminal } from "@jupyterlab/terminal";
import type { ITranslator, TranslationBundle } from "@jupyterlab/translation";
import { terminalIcon } from "@jupyterlab/ui-components";

import { terminalTitle, type ITerminalLocation, type ITerminalsApi } from "./model";

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
  const name = terminalTitle(trans, place, clusterLabel);
  const caption = trans.__(
    "%1. The cluster keeps it when this tab is closed: `jupyter slurm shell %2` attaches to it.",
    name,
    place.terminal,
  );
  const named = (): void => {
    // The widget has a title of its own, with the ID. On a login node, that of the shell is shown.
    const { label } = content.title;
    if (label === "" || place.job !== "" || label.includes(place.terminal)) {
      content.title.label = name;
    }
    content.title.icon = terminalIcon;
    content.title.closable = true;
    content.title.caption = caption;
  };
  named();
  content.title.changed.connect(named);
  return page;
}
