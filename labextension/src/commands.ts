/** The names of our commands, and what cancelling asks before it acts. */
import { Dialog, showDialog } from "@jupyterlab/apputils";
import type { TranslationBundle } from "@jupyterlab/translation";

import type { IJob, IJobsModel } from "./tokens";
import { cancelBody, cancelTitle } from "./words";

export const CommandIDs = {
  open: "jupyter-slurm:open",
  refresh: "jupyter-slurm:refresh",
} as const;

/** Cancel a job after the person said so: a cancelled job's work is gone. */
export async function cancelJob(
  trans: TranslationBundle,
  model: IJobsModel,
  job: IJob,
): Promise<void> {
  const result = await showDialog({
    title: cancelTitle(trans, job),
    body: cancelBody(trans, job),
    defaultButton: 0, // the one that Enter chooses
    buttons: [
      Dialog.cancelButton({ label: trans.__("Keep it") }),
      Dialog.warnButton({ label: trans.__("Cancel the job") }),
    ],
  });
  if (result.button.accept) {
    await model.cancel(job);
  }
}
