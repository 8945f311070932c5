import { Signal } from "@lumino/signaling";
import { describe, expect, it, vi } from "vitest";

import { listen, makeJobOfCell, type INotebookPanel } from "../../src/plugins/insert_cell";

type Opened = (comm: unknown, message: unknown) => void;

function notebook() {
  const targets = new Map<string, Opened>();
  const kernel = {
    registerCommTarget: (name: string, opened: Opened) => targets.set(name, opened),
  };
  const insertCell = vi.fn();
  const sessionContext = { session: { kernel }, kernelChanged: undefined as unknown };
  const kernelChanged = new Signal<object, unknown>(sessionContext);
  sessionContext.kernelChanged = kernelChanged;
  const content = { activeCellIndex: 2 };
  const context = { sessionContext, model: { sharedModel: { insertCell } } };
  const listening = listen({ content, context } as unknown as INotebookPanel);
  const open = (data: unknown) => {
    const comm = { send: vi.fn(), close: vi.fn() };
    targets.get("jupyter-slurm:cell")?.(comm, { content: { data } });
    return comm;
  };
  return { content, insertCell, kernelChanged, listening, open, targets };
}

describe("a cell that a widget has written", () => {
  it("comes below the one that is selected, and is told", () => {
    const { content, insertCell, open } = notebook();
    const comm = open({ source: "%%sbatch -p arandu\n" });
    expect(insertCell).toHaveBeenCalledWith(3, {
      cell_type: "code",
      source: "%%sbatch -p arandu\n",
    });
    expect(content.activeCellIndex).toBe(3);
    expect(comm.send).toHaveBeenCalledWith({ inserted: true });
  });

  it("is text, or there is none", () => {
    const { insertCell, open } = notebook();
    expect(open({ source: { html: "" } }).close).toHaveBeenCalled();
    expect(insertCell).not.toHaveBeenCalled();
  });

  it("comes from the kernel that the notebook has now", () => {
    const { kernelChanged, listening, targets } = notebook();
    targets.clear();
    kernelChanged.emit(null);
    expect(targets.size).toBe(1);
    targets.clear();
    listening.dispose();
    kernelChanged.emit(null);
    expect(targets.size).toBe(0);
  });
});

describe("the button that makes a job of a cell", () => {
  function cells(...sources: string[]) {
    const all = sources.map((source) => ({
      cell_type: "code",
      source,
      getSource(): string {
        return this.source;
      },
      setSource(text: string): void {
        this.source = text;
      },
    }));
    const insertCell = (at: number, { source }: { source: string }): void => {
      all.splice(at, 0, { ...all[0]!, source });
    };
    const content = { activeCellIndex: sources.length - 1 };
    const context = { model: { sharedModel: { cells: all, insertCell } } };
    const press = (): string[] => {
      makeJobOfCell({ content, context } as unknown as INotebookPanel);
      return all.map(({ source }) => source);
    };
    return { content, press };
  }

  it("loads the magics above, once, and keeps the cell selected", () => {
    const { content, press } = cells("import torch", "train()");
    const expected = ["import torch", "%load_ext jupyter_slurm", "%%sbatch\ntrain()"];
    expect(press()).toEqual(expected);
    expect(content.activeCellIndex).toBe(2);
    expect(press()).toEqual(expected);
    expect(cells("%load_ext jupyter_slurm", "train()").press()).toEqual([
      "%load_ext jupyter_slurm",
      "%%sbatch\ntrain()",
    ]);
  });
});
