/** Plugin that inserts the code of a widget as a new cell: a kernel cannot do that after a click. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import type { ISessionContext } from "@jupyterlab/apputils";
import type { Kernel } from "@jupyterlab/services";
import { DisposableDelegate, type IDisposable } from "@lumino/disposable";

/** Target of the comm of `jupyter_slurm.widgets.insert_cell`; no other one is answered. */
const TARGET = "jupyter-slurm:cell";

/** The part of a notebook that the plugin needs, in JupyterLab or Notebook 7. */
export interface INotebookPanel {
  readonly content: { activeCellIndex: number };
  readonly context: {
    readonly sessionContext: Pick<ISessionContext, "kernelChanged" | "session">;
    readonly model: { readonly sharedModel: ICells };
  };
}

interface ICells {
  insertCell(index: number, cell: { cell_type: "code"; source: string }): unknown;
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
  description: "New cells with what the widgets of jupyter_slurm have written.",
  autoStart: true,
  activate: ({ docRegistry }: JupyterFrontEnd): void => {
    docRegistry.addWidgetExtension("Notebook", {
      createNew: (panel) => listen(panel as unknown as INotebookPanel),
    });
  },
};
