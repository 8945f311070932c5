/** Item in the status bar of a JupyterLab that runs in a session: where it runs, and how long it has. */
import type { TranslationBundle } from "@jupyterlab/translation";
import { ReactWidget, UseSignal } from "@jupyterlab/ui-components";
import * as React from "react";

import type { IJob } from "../common/api/objects";
import { usePeriodicRedraw } from "../common/jupyterlab/periodic_redraw";
import type { OwnSession } from "./own_session";
import { ownSessionAbout, ownSessionText } from "./own_session_labels";

interface IProps {
  readonly own: OwnSession;
  readonly trans: TranslationBundle;
  readonly open: (job: IJob | null) => void;
}

function OwnSessionButton({ own, trans, open }: IProps): React.ReactElement {
  usePeriodicRedraw();
  return (
    <button
      type="button"
      data-standing={own.loss !== "" ? "ended" : own.isNearEnd() ? "near" : "running"}
      title={ownSessionAbout(trans, own)}
      onClick={() => {
        open(own.job);
      }}
    >
      <span className="jp-Slurm-colour" style={{ backgroundColor: own.facts.colour }} />
      {ownSessionText(trans, own)}
    </button>
  );
}

export class OwnSessionItem extends ReactWidget {
  constructor(private readonly _props: IProps) {
    super();
    this.addClass("jp-Slurm-status");
    this.addClass("jp-Slurm-own");
  }

  protected override render(): React.ReactElement {
    return (
      <UseSignal signal={this._props.own.changed}>
        {() => <OwnSessionButton {...this._props} />}
      </UseSignal>
    );
  }
}
