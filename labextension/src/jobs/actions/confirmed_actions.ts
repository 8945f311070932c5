/** Actions on jobs, after the user has confirmed a loss of work or has entered a value. */
import type { TranslationBundle } from "@jupyterlab/translation";

import type { Act, IJob } from "../../common/api/objects";
import { confirmEnd } from "../../common/jupyterlab/dialogs";
import type { IJobsModel } from "../../common/jobs_model";
import { jobCluster } from "../../common/labels";
import { actQuestion, needsConfirmation } from "./action_labels";
import { enterTimeLimit } from "./job_dialogs";

/** Apply an action to jobs, after the user has confirmed a loss of work or entered the time limit. */
export async function actOnJobs(
  trans: TranslationBundle,
  model: IJobsModel,
  act: Act,
  jobs: readonly IJob[],
): Promise<void> {
  if (jobs.length === 0) {
    return;
  }
  const clusterOf = (job: IJob): string => jobCluster(model, job);
  if (needsConfirmation(act, jobs)) {
    const { title, body, items, keep, end } = actQuestion(trans, act, jobs, clusterOf);
    if (!(await confirmEnd(title, body, keep, end, items))) {
      return;
    }
  }
  const limit = act === "limit" ? await enterTimeLimit(trans, jobs, clusterOf) : undefined;
  if (limit !== "") {
    await model.act(act, jobs, limit);
  }
}

/** Cancel a job after a confirmation: the work of a cancelled job is lost. */
export function cancelJob(trans: TranslationBundle, model: IJobsModel, job: IJob): Promise<void> {
  return actOnJobs(trans, model, "cancel", [job]);
}
