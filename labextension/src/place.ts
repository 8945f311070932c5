/** Where a page of ours goes. */
import { LabShell, type JupyterFrontEnd } from "@jupyterlab/application";
import type { Widget } from "@lumino/widgets";

/** Add a page to the main area; Notebook 7 has room for one page there, its own, and ours goes beside it. */
export function addPage({ shell }: JupyterFrontEnd, page: Widget): void {
  shell.add(page, shell instanceof LabShell ? "main" : "right");
}
