/** What the panel offers as long as there are no jobs: the first steps. */
import type { TranslationBundle } from "@jupyterlab/translation";
import * as React from "react";

const EXAMPLES =
  "https://jupyter-slurm.readthedocs.io/en/stable/getting-started/quickstart-jupyter.html";

export interface IFirstSteps {
  /** Open the form of a session. */
  readonly launch: () => void;
  /** Ask for a script, and submit it. */
  readonly submit: () => void;
}

interface IProps {
  readonly trans: TranslationBundle;
  readonly acts: IFirstSteps | undefined;
}

export function FirstSteps({ trans, acts }: IProps): React.ReactElement {
  return (
    <div className="jp-Slurm-firstSteps">
      <p className="jp-Slurm-empty">{trans.__("No jobs.")}</p>
      {acts && (
        <>
          <button type="button" className="jp-mod-styled jp-mod-accept" onClick={acts.launch}>
            {trans.__("Start a GPU notebook…")}
          </button>
          <button type="button" className="jp-mod-styled" onClick={acts.submit}>
            {trans.__("Submit a script…")}
          </button>
          <a href={EXAMPLES} target="_blank" rel="noreferrer">
            {trans.__("Open an example")}
          </a>
        </>
      )}
    </div>
  );
}
