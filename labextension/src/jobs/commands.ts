/** The commands that open and cancel a job, from the menu, the palette or by a key. */
import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { TranslationBundle } from "@jupyterlab/translation";
import type { ReadonlyPartialJSONObject } from "@lumino/coreutils";

import type { IJob } from "../common/api/objects";
import { isReached } from "../common/api/records";
import { chooseCluster } from "../common/dialogs";
import { CommandIDs } from "../common/identifiers";
import { isCancellable } from "../common/job_states";
import type { IJobsModel } from "../common/jobs_model";
import { cancelJob } from "./confirmed_actions";
import { chooseJob, typeJob } from "./job_dialogs";

type Commands = JupyterFrontEnd["commands"];

/** Show a job; null, or where jobs have no page: all of them. */
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

/** The commands that ask which job is meant. */
export function addJobCommands(
  commands: Commands,
  model: IJobsModel,
  trans: TranslationBundle,
): void {
  const meant = ({ cluster, job }: ReadonlyPartialJSONObject): IJob | undefined =>
    model.jobs.find(
      (each) => (each.key === job || each.id === job) && (!cluster || each.cluster === cluster),
    );
  commands.addCommand(CommandIDs.openJobById, {
    label: trans.__("Open Job…"),
    caption: trans.__("Show a job by its id"),
    execute: async () => {
      const id = await typeJob(trans);
      const known = meant({ job: id });
      if (id === "" || known) {
        await (known && openJob(commands, known));
        return;
      }
      // One that is over long since may be known to the accounting of its cluster.
      const clusters = model.clusters.filter(isReached);
      const [title, open] = [trans.__("On which cluster is job %1?", id), trans.__("Open")];
      const cluster = await chooseCluster(trans, title, open, clusters);
      await (cluster && openJob(commands, { cluster: cluster.id, key: null, id }));
    },
  });
  commands.addCommand(CommandIDs.cancel, {
    label: trans.__("Cancel Job…"),
    isEnabled: () => model.jobs.some(({ state }) => isCancellable(state)),
    execute: async (args) => {
      const [title, go] = [trans.__("Cancel which job?"), trans.__("Go on")];
      const job = meant(args) ?? (await chooseJob(trans, title, go, model));
      await (job && cancelJob(trans, model, job));
    },
  });
}
