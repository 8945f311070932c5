/** Commands that open and cancel a job, from the menu, the palette or by a key. */
import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { TranslationBundle } from "@jupyterlab/translation";
import type { ReadonlyPartialJSONObject } from "@lumino/coreutils";

import type { IJob } from "../common/api/objects";
import { isReached } from "../common/api/records";
import { chooseCluster } from "../common/jupyterlab/dialogs";
import { CommandIDs } from "../common/identifiers";
import { isCancellable } from "../common/job_states";
import type { IJobsModel } from "../common/jobs_model";
import { commandLabel } from "../common/jupyterlab/palette";
import { cancelJob } from "./actions/confirmed_actions";
import { chooseJob, enterJobId } from "./actions/job_dialogs";

type Commands = JupyterFrontEnd["commands"];

/** Show the page of a job; of null, or where jobs have no page, the panel. */
export async function openJob(
  commands: Commands,
  job: Pick<IJob, "cluster" | "key" | "id"> | null,
): Promise<void> {
  if (job === null || !commands.hasCommand(CommandIDs.openJob)) {
    await commands.execute(CommandIDs.open);
  } else {
    await commands.execute(CommandIDs.openJob, { cluster: job.cluster, job: job.key ?? job.id });
  }
}

/** Add the commands that ask for a job. */
export function addJobCommands(
  commands: Commands,
  model: IJobsModel,
  trans: TranslationBundle,
): void {
  // Without a cluster, an ID may be that of a job on each of several.
  const findJobs = ({ cluster, job }: ReadonlyPartialJSONObject): readonly IJob[] =>
    model.jobs.filter(
      (each) => (each.key === job || each.id === job) && (!cluster || each.cluster === cluster),
    );
  commands.addCommand(CommandIDs.openJobById, {
    label: (args) => commandLabel(trans, trans.__("Open Job…"), args),
    caption: trans.__("Open a job by its ID"),
    execute: async () => {
      const id = await enterJobId(trans);
      const found = findJobs({ job: id });
      if (id === "") {
        return;
      }
      // A job that finished long ago may be known to the accounting of its cluster.
      const clusters = model.clusters.filter((each) =>
        found.length === 0 ? isReached(each) : found.some((job) => job.cluster === each.id),
      );
      const [title, open] = [trans.__("On which cluster is job %1?", id), trans.__("Open")];
      const cluster = await chooseCluster(trans, title, open, clusters);
      const known = found.find((job) => job.cluster === cluster?.id);
      await (cluster && openJob(commands, known ?? { cluster: cluster.id, key: null, id }));
    },
  });
  commands.addCommand(CommandIDs.cancel, {
    label: (args) => commandLabel(trans, trans.__("Cancel Job…"), args),
    isEnabled: () => model.jobs.some(({ state }) => isCancellable(state)),
    execute: async (args) => {
      const [title, go] = [trans.__("Cancel which job?"), trans.__("Continue")];
      const found = findJobs(args);
      const [only] = found;
      const among = found.length === 0 ? model.jobs : found;
      const job =
        only && found.length === 1 ? only : await chooseJob(trans, title, go, model, among);
      await (job && cancelJob(trans, model, job));
    },
  });
}
