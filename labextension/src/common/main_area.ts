/** Where a page of ours goes. */
import { LabShell, type JupyterFrontEnd } from "@jupyterlab/application";
import type { Widget } from "@lumino/widgets";

/** Whether the main area takes our pages: Notebook 7 has room for one page there, its own. */
export function hasRoom({ shell }: JupyterFrontEnd): boolean {
  return shell instanceof LabShell;
}

/** Add a page to the main area, or beside the page that is there. */
export function addPage(app: JupyterFrontEnd, page: Widget): void {
  app.shell.add(page, hasRoom(app) ? "main" : "right");
}
