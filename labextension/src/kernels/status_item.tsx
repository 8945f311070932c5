/** The item in the status bar that tells of the kernel of the notebook in front. */
import type { TranslationBundle } from "@jupyterlab/translation";
import { ReactWidget, UseSignal } from "@jupyterlab/ui-components";
import * as React from "react";

import type { IJob } from "../common/api/objects";
import type { IJobsModel } from "../common/jobs_model";
import { useTick } from "../common/periodic_redraw";
import type { IShown, KernelWatch } from "./kernel_watch";
import { kernelAbout, kernelText } from "./labels";
import { standingOf } from "./model";
import { moveAbout, moveText } from "./move_labels";
import type { IMove } from "./move_model";

interface IProps {
  readonly trans: TranslationBundle;
  readonly shown: IShown;
  readonly jobs: IJobsModel;
  readonly open: (job: IJob | null) => void;
}

function Told({ trans, shown, jobs, open }: IProps): React.ReactElement {
  useTick();
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

function Going(props: {
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

/** What the item's buttons do. */
export interface IKernelItemActs {
  /** Show an allocation; of one that is not known, all jobs. */
  readonly open: (job: IJob | null) => void;
  /** What a kernel is called. */
  readonly shownAs: (kernel: string) => string;
  /** Have a notebook stay where it is. */
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
          const { shown, move } = this._watch;
          const { _trans: trans, _jobs: jobs } = this;
          const { open, shownAs, giveUp } = this._acts;
          return (
            <>
              {shown !== null && <Told {...{ trans, shown, jobs, open }} />}
              {move !== null && <Going {...{ trans, move, shownAs, giveUp }} />}
            </>
          );
        }}
      </UseSignal>
    );
  }
}
