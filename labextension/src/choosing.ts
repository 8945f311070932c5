/** What a command asks that was called without saying what is meant, as one of a menu or of a key is. */
import { InputDialog } from "@jupyterlab/apputils";
import type { TranslationBundle } from "@jupyterlab/translation";

import { isCancellable } from "./states";
import type { ICluster, IJob, IJobsModel } from "./tokens";
import { clusterName, jobName } from "./words";

/** More of them are no choice: whoever has as many types a number. */
const MOST = 200;

/** Ask which one is meant, unless there is only one; null: none. */
async function chosen<T>(
  title: string,
  label: string,
  okLabel: string,
  all: readonly T[],
  name: (one: T) => string,
): Promise<T | null> {
  if (all.length < 2) {
    return all[0] ?? null;
  }
  const items = all.map(name);
  const { value } = await InputDialog.getItem({ title, label, okLabel, items });
  return value === null ? null : (all[items.indexOf(value)] ?? null);
}

export function chooseCluster(
  trans: TranslationBundle,
  title: string,
  okLabel: string,
  clusters: readonly ICluster[],
): Promise<ICluster | null> {
  return chosen(title, trans.__("Cluster"), okLabel, clusters, clusterName);
}

/** Ask which of the jobs that are not over is meant. */
export async function chooseJob(
  trans: TranslationBundle,
  title: string,
  okLabel: string,
  model: IJobsModel,
): Promise<IJob | null> {
  const jobs = model.jobs.filter(({ state }) => isCancellable(state)).slice(0, MOST);
  const name = (job: IJob): string =>
    [job.id, jobName(job), job.state, model.clusters.length > 1 ? job.cluster : ""]
      .filter(Boolean)
      .join(" · ");
  return chosen(title, trans.__("Job"), okLabel, jobs, name);
}

/** Ask for the number of a job; empty: none. */
export async function typeJob(trans: TranslationBundle): Promise<string> {
  const { value } = await InputDialog.getText({
    title: trans.__("Open a job"),
    label: trans.__("Job id"),
    okLabel: trans.__("Open"),
  });
  return value?.trim() ?? "";
}
