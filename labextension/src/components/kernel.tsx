/** The item in the status bar that tells of the kernel of the notebook in front. */
import { ReactWidget, UseSignal } from "@jupyterlab/ui-components";
import type { TranslationBundle } from "@jupyterlab/translation";
import * as React from "react";

import type { IShown, KernelWatch } from "../kernel-watch";
import { kernelAbout, kernelText } from "../kernel-words";
import { standingOf } from "../kernels";
import type { IJob, IJobsModel } from "../tokens";
import { useTick } from "./tick";

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

export class KernelItem extends ReactWidget {
  /**
   * @param _open - Shows an allocation; of one that is not known, all jobs.
   */
  constructor(
    private readonly _watch: KernelWatch,
    private readonly _jobs: IJobsModel,
    private readonly _trans: TranslationBundle,
    private readonly _open: (job: IJob | null) => void,
  ) {
    super();
    this.addClass("jp-Slurm-status");
  }

  protected override render(): React.ReactElement {
    return (
      <UseSignal signal={this._watch.changed}>
        {() => {
          const { shown } = this._watch;
          const [trans, jobs, open] = [this._trans, this._jobs, this._open];
          return shown === null ? null : <Told {...{ trans, shown, jobs, open }} />;
        }}
      </UseSignal>
    );
  }
}
