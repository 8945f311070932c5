/** The head of a part that folds, with the triangle of JupyterLab's side bar in place of the browser's. */
import { caretRightIcon } from "@jupyterlab/ui-components";
import * as React from "react";

export function FoldHead({ children }: React.PropsWithChildren): React.ReactElement {
  return (
    <summary className="jp-Slurm-foldHead">
      <caretRightIcon.react tag="span" aria-hidden="true" />
      {children}
    </summary>
  );
}
