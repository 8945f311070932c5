/** The clusters, for commands that are called before the agent has answered: a page that was just opened knows none. */
import { Notification, showErrorMessage } from "@jupyterlab/apputils";
import type { TranslationBundle } from "@jupyterlab/translation";

import type { ICluster } from "../api/objects";
import type { IJobsModel } from "../jobs_model";
import { problemText } from "../labels";

/** Time after which the user is told that a command waits, in milliseconds. */
const NOTICE_DELAY_MS = 300;

/** Return the clusters as soon as the agent has answered, or could not be reached. */
export function knownClusters(jobs: IJobsModel): Promise<readonly ICluster[]> {
  return new Promise((resolve) => {
    const take = (): void => {
      if (jobs.clusters.length > 0 || ["live", "broken"].includes(jobs.connection)) {
        jobs.changed.disconnect(take);
        resolve(jobs.clusters);
      }
    };
    jobs.changed.connect(take);
    take();
  });
}

/**
 * Return the clusters for a command of the user, who sees that it waits.
 *
 * @param failed - Title of the message where there is no cluster.
 */
export async function awaitClusters(
  jobs: IJobsModel,
  trans: TranslationBundle,
  failed: string,
): Promise<readonly ICluster[]> {
  let notice = "";
  const timer = setTimeout(() => {
    // Without a time, JupyterLab only counts a notification.
    const options = { autoClose: false as const };
    notice = Notification.emit(trans.__("Loading the clusters…"), "in-progress", options);
  }, NOTICE_DELAY_MS);
  const clusters = await knownClusters(jobs);
  clearTimeout(timer);
  if (notice !== "") {
    Notification.dismiss(notice);
  }
  if (clusters.length === 0) {
    const { problem } = jobs;
    await showErrorMessage(
      failed,
      problem === null ? trans.__("No cluster is known.") : problemText(trans, problem),
    );
  }
  return clusters;
}
