/** Dialogs of commands that were called without arguments, as from a menu or by a key. */
import { Dialog, InputDialog, showDialog } from "@jupyterlab/apputils";
import type { TranslationBundle } from "@jupyterlab/translation";
import { Widget } from "@lumino/widgets";

import type { IJob } from "../../common/api/objects";
import { chooseOne, createElement, listNode } from "../../common/jupyterlab/dialogs";
import { formatDuration } from "../../common/format";
import { isCancellable, stateKind } from "../../common/job_states";
import type { IJobsModel } from "../../common/jobs_model";
import { jobCluster, jobName } from "../../common/labels";
import { isUnlimited, slurmTime } from "../../common/time_limit";
import { jobLines, type ClusterOf } from "./action_labels";

/** Number of jobs in the list: a user who has more types a number. */
const MAX_CHOICES = 200;

/** Ask for one of the active jobs among some. */
export async function chooseJob(
  trans: TranslationBundle,
  title: string,
  okLabel: string,
  model: IJobsModel,
  among: readonly IJob[],
): Promise<IJob | null> {
  const jobs = among.filter(({ state }) => isCancellable(state)).slice(0, MAX_CHOICES);
  const name = (job: IJob): string =>
    [job.id, jobName(job), job.state, jobCluster(model, job)].filter(Boolean).join(" · ");
  return chooseOne(title, trans.__("Job"), okLabel, jobs, name);
}

/** Times as people write them and as Slurm does: digits, with units or signs. Others the agent refuses. */
const LIMIT = "\\s*[0-9][0-9a-zA-Z:,. \\-]*";

/** A field for the time limit below the list of the jobs that get it. */
class LimitOfMany extends Widget implements Dialog.IBodyWidget {
  private readonly _input = createElement("input", "jp-mod-styled");

  constructor(label: string, title: string, jobs: readonly string[]) {
    super({ node: listNode(title, jobs) });
    const line = createElement("label", "", label);
    this._input.pattern = LIMIT;
    line.append(this._input);
    this.node.append(line);
  }

  getValue(): string {
    return this._input.value;
  }
}

async function enterLimitOfMany(
  trans: TranslationBundle,
  title: string,
  label: string,
  jobs: readonly string[],
): Promise<string | null> {
  const { button, value } = await showDialog({
    title,
    body: new LimitOfMany(label, trans.__("The limit applies to these jobs:"), jobs),
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label: trans.__("Set") })],
    focusNodeSelector: "input",
  });
  return button.accept ? value : null;
}

/** Ask for the time limit of jobs, as Slurm takes it; empty: none. */
export async function enterTimeLimit(
  trans: TranslationBundle,
  jobs: readonly IJob[],
  clusterOf: ClusterOf,
): Promise<string> {
  const [job] = jobs;
  const only = jobs.length === 1 && job !== undefined ? job : null;
  const rules = jobs.some(({ state }) => stateKind(state) === "running")
    ? trans.__("The limit of a running job can only be shortened.")
    : trans.__("The partition and the QOS limit it.");
  const label = `${trans.__("For example 4h, 90 min or 4:00:00.")} ${rules}`;
  if (only === null) {
    const title = trans._n("Time limit of %1 job", "Time limit of %1 jobs", jobs.length);
    const lines = jobLines(trans, jobs, clusterOf);
    return slurmTime((await enterLimitOfMany(trans, title, label, lines)) ?? "");
  }
  const name = [jobName(only), clusterOf(only)].filter(Boolean).join(" · ");
  const { value } = await InputDialog.getText({
    title: trans.__("Time limit of job %1 (%2)", only.id ?? "", name),
    label,
    okLabel: trans.__("Set"),
    text: only.time_limit && !isUnlimited(only.time_limit) ? formatDuration(only.time_limit) : "",
    pattern: LIMIT,
  });
  return slurmTime(value ?? "");
}

/** Ask for the ID of a job; empty: none. */
export async function enterJobId(trans: TranslationBundle): Promise<string> {
  const { value } = await InputDialog.getText({
    title: trans.__("Open a job"),
    label: trans.__("Job ID"),
    okLabel: trans.__("Open"),
  });
  return value?.trim() ?? "";
}
