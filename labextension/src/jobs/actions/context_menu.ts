/** Context menu of a row in a table of jobs. A right click selects the row first, unless it is selected already. */
import type { JupyterFrontEnd } from "@jupyterlab/application";

import { ACTS } from "../../common/api/objects";
import { CommandIDs } from "../../common/identifiers";

const ROW = ".jp-Slurm-body > .jp-Slurm-row";

export function addContextMenu({ contextMenu }: Pick<JupyterFrontEnd, "contextMenu">): void {
  contextMenu.addItem({ selector: ROW, command: CommandIDs.openSelected, rank: 1 });
  contextMenu.addItem({ selector: ROW, command: CommandIDs.terminalInSelected, rank: 1.5 });
  contextMenu.addItem({ selector: ROW, command: CommandIDs.launchInSelected, rank: 1.6 });
  contextMenu.addItem({ selector: ROW, type: "separator", rank: 2 });
  ACTS.forEach((act, index) => {
    contextMenu.addItem({
      selector: ROW,
      command: CommandIDs.act,
      args: { act, isContext: true },
      rank: 3 + index,
    });
  });
  contextMenu.addItem({ selector: ROW, type: "separator", rank: 10 });
  for (const format of ["csv", "json"]) {
    contextMenu.addItem({
      selector: ROW,
      command: CommandIDs.copy,
      args: { format, isContext: true },
      rank: 11,
    });
  }
}
