/**
 * Plugin of cells: it inserts the code of a widget as a new cell, which a kernel cannot do after a click, and has a
 * button in the toolbar of notebooks that makes a job of the selected cell.
 */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import type { ISessionContext } from "@jupyterlab/apputils";
import type { Kernel } from "@jupyterlab/services";
import { ITranslator, nullTranslator } from "@jupyterlab/translation";
import { ToolbarButton, type Toolbar } from "@jupyterlab/ui-components";
import { DisposableDelegate, type IDisposable } from "@lumino/disposable";

import { DOMAIN } from "../common/identifiers";
import { gpuIcon } from "../sessions/commands";

/** Place in the toolbar of a notebook, behind the type of the cell. */
const TOOLBAR_PLACE = 9;

/** Target of the comm of `jupyter_slurm.widgets.insert_cell`; no other one is answered. */
const TARGET = "jupyter-slurm:cell";

/** The part of a notebook that the plugin needs, in JupyterLab or Notebook 7. */
export interface INotebookPanel {
  readonly content: { activeCellIndex: number };
  readonly toolbar: Pick<Toolbar, "insertItem">;
  readonly context: {
    readonly sessionContext: Pick<ISessionContext, "kernelChanged" | "session">;
    readonly model: { readonly sharedModel: ICells };
  };
}

interface ICells {
  readonly cells: readonly ICell[];
  insertCell(index: number, cell: { cell_type: "code"; source: string }): unknown;
}

interface ICell {
  readonly cell_type: string;
  getSource(): string;
  setSource(source: string): void;
}

/** The line that defines the magics; a notebook needs it once. */
const LOAD = "%load_ext jupyter_slurm";

/**
 * Make a job of the selected cell: `%%sbatch` as its first line, with room for options behind it. The magics are loaded in
 * a cell above where the notebook does not do that.
 */
export function makeJobOfCell({ content, context }: INotebookPanel): void {
  const { sharedModel } = context.model;
  const index = content.activeCellIndex;
  const cell = sharedModel.cells[index];
  if (cell?.cell_type !== "code" || cell.getSource().startsWith("%%")) {
    return;
  }
  cell.setSource(`%%sbatch\n${cell.getSource()}`);
  if (!sharedModel.cells.some((each) => each.getSource().includes("load_ext jupyter_slurm"))) {
    sharedModel.insertCell(index, { cell_type: "code", source: LOAD });
    content.activeCellIndex = index + 1;
  }
}

/** Listen to the kernels of a notebook, one after the other. */
export function listen({ content, context }: INotebookPanel): IDisposable {
  const { sessionContext, model } = context;
  const opened = (comm: Kernel.IComm, source: unknown): void => {
    if (typeof source !== "string") {
      comm.close();
      return;
    }
    const index = content.activeCellIndex + 1;
    model.sharedModel.insertCell(index, { cell_type: "code", source });
    content.activeCellIndex = index;
    comm.send({ inserted: true });
  };
  const register = (): void => {
    sessionContext.session?.kernel?.registerCommTarget(TARGET, (comm, message) => {
      opened(comm, message.content.data["source"]);
    });
  };
  register();
  sessionContext.kernelChanged.connect(register);
  return new DisposableDelegate(() => {
    sessionContext.kernelChanged.disconnect(register);
  });
}

export const cellsPlugin: JupyterFrontEndPlugin<void> = {
  id: "jupyter-slurm:cells",
  description: "A notebook button that makes a cell a job, and new cells with the code of widgets.",
  autoStart: true,
  optional: [ITranslator],
  activate: ({ docRegistry }: JupyterFrontEnd, translator: ITranslator | null): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    docRegistry.addWidgetExtension("Notebook", {
      createNew: (widget) => {
        const panel = widget as unknown as INotebookPanel;
        const button = new ToolbarButton({
          icon: gpuIcon,
          tooltip: trans.__("Make the cell a Slurm job (%%sbatch)"),
          onClick: () => {
            makeJobOfCell(panel);
          },
        });
        panel.toolbar.insertItem(TOOLBAR_PLACE, "slurm-job", button);
        return listen(panel);
      },
    });
  },
};
