/** Actions on jobs, after the user has confirmed a loss of work or has entered a value. */
import type { TranslationBundle } from "@jupyterlab/translation";

import type { Act, IJob } from "../common/api/objects";
import { confirmed } from "../common/dialogs";
import type { IJobsModel } from "../common/jobs_model";
import { actQuestion } from "./action_labels";
import { typeLimit } from "./job_dialogs";

/** Do the same with several jobs, after the person said so where work is lost by it, or what is to be set. */
export async function actOn(
  trans: TranslationBundle,
  model: IJobsModel,
  act: Act,
  jobs: readonly IJob[],
): Promise<void> {
  if (jobs.length === 0) {
    return;
  }
  if (act === "cancel" || act === "requeue") {
    const { title, body, keep, end } = actQuestion(trans, act, jobs);
    if (!(await confirmed(title, body, keep, end))) {
      return;
    }
  }
  const limit = act === "limit" ? await typeLimit(trans, jobs) : undefined;
  if (limit !== "") {
    await model.act(act, jobs, limit);
  }
}

/** Cancel a job after the person said so: a cancelled job's work is gone. */
export function cancelJob(trans: TranslationBundle, model: IJobsModel, job: IJob): Promise<void> {
  return actOn(trans, model, "cancel", [job]);
}
