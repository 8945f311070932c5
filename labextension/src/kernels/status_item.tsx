/** Item in the status bar for the kernel of the notebook in front. */
import type { TranslationBundle } from "@jupyterlab/translation";
import { ReactWidget, UseSignal } from "@jupyterlab/ui-components";
import * as React from "react";

import type { IJob } from "../common/api/objects";
import type { IJobsModel } from "../common/jobs_model";
import { usePeriodicRedraw } from "../common/jupyterlab/periodic_redraw";
import type { IKernelState, KernelWatch } from "./kernel_watch";
import { kernelAbout, kernelText } from "./labels";
import { standingOf } from "./model";
import { moveAbout, moveText } from "./move_labels";
import type { IMove } from "./move_model";

interface IProps {
  readonly trans: TranslationBundle;
  readonly shown: IKernelState;
  readonly jobs: IJobsModel;
  readonly open: (job: IJob | null) => void;
}

function KernelButton({ trans, shown, jobs, open }: IProps): React.ReactElement {
  usePeriodicRedraw();
  return (
    <button
      type="button"
      data-standing={standingOf(shown.job, jobs.now)}
      title={kernelAbout(trans, shown, jobs.now)}
      onClick={() => {
        open(shown.job);
      }}
    >
      {kernelText(trans, shown, jobs.now)}
    </button>
  );
}

function MoveButton(props: {
  readonly trans: TranslationBundle;
  readonly move: IMove;
  readonly shownAs: (kernel: string) => string;
  readonly giveUp: (move: IMove) => void;
}): React.ReactElement {
  const { trans, move, shownAs, giveUp } = props;
  return (
    <button
      type="button"
      data-move={move.state}
      title={moveAbout(trans, move)}
      onClick={() => {
        giveUp(move);
      }}
    >
      {moveText(trans, move, shownAs(move.kernel))}
    </button>
  );
}

/** Actions of the buttons of the item. */
export interface IKernelItemActs {
  /** Show an allocation; of an unknown one, all jobs. */
  readonly open: (job: IJob | null) => void;
  /** Return the display name of a kernel. */
  readonly shownAs: (kernel: string) => string;
  /** Cancel the move of a notebook. */
  readonly giveUp: (move: IMove) => void;
}

export class KernelItem extends ReactWidget {
  constructor(
    private readonly _watch: KernelWatch,
    private readonly _jobs: IJobsModel,
    private readonly _trans: TranslationBundle,
    private readonly _acts: IKernelItemActs,
  ) {
    super();
    this.addClass("jp-Slurm-status");
  }

  protected override render(): React.ReactElement {
    return (
      <UseSignal signal={this._watch.changed}>
        {() => {
          const { kernelState: shown, move } = this._watch;
          const { _trans: trans, _jobs: jobs } = this;
          const { open, shownAs, giveUp } = this._acts;
          return (
            <>
              {shown !== null && <KernelButton {...{ trans, shown, jobs, open }} />}
              {move !== null && <MoveButton {...{ trans, move, shownAs, giveUp }} />}
            </>
          );
        }}
      </UseSignal>
    );
  }
}
