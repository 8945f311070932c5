/** The main area of JupyterLab, and its substitute in Notebook 7. */
import { LabShell, type JupyterFrontEnd } from "@jupyterlab/application";
import type { Widget } from "@lumino/widgets";

import { returnFocus } from "./focus";

/** Whether the main area takes pages of this extension: in Notebook 7 it has room for one page only. */
export function hasMainArea({ shell }: JupyterFrontEnd): boolean {
  return shell instanceof LabShell;
}

/** Add a page to the main area, or beside its only page. */
export function addPage(app: JupyterFrontEnd, page: Widget): void {
  page.addClass("jp-Slurm-page");
  app.shell.add(page, hasMainArea(app) ? "main" : "right");
  returnFocus(app, page);
}
