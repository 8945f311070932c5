/** Submission of a script from the file browser, after a look at its #SBATCH lines. */
import { Dialog, InputDialog, showDialog, showErrorMessage } from "@jupyterlab/apputils";
import type { Contents } from "@jupyterlab/services";
import type { TranslationBundle } from "@jupyterlab/translation";
import { Widget } from "@lumino/widgets";

import type { IJob } from "../../common/api/objects";
import { toProblem } from "../../common/api/problem";
import { isReached } from "../../common/api/records";
import { chooseCluster, listNode } from "../../common/dialogs";
import type { IJobsModel } from "../../common/jobs_model";
import { problemText } from "../../common/labels";
import { newRequestKey } from "../../common/launch_request";

/** Files that are offered for submission. */
const SCRIPTS = /\.(sh|bash|sbatch|slurm)$/i;

/** Request of the agent's API; the server adds the folder and the environment. */
export interface IScriptSubmission {
  readonly key: string;
  readonly kind: "script";
  readonly text: string;
  /** The path of the script below the root of the server, beginning with "./". */
  readonly script_name: string;
}

export interface IScriptActs {
  readonly api: { submit(cluster: string, submission: IScriptSubmission): Promise<IJob> };
  readonly contents: Pick<Contents.IManager, "get" | "localPath">;
  readonly model: IJobsModel;
  readonly trans: TranslationBundle;
  readonly open: (job: IJob) => void;
}

export function isScript(path: string): boolean {
  return SCRIPTS.test(path);
}

/** Return the #SBATCH lines of a script: those before its first command, as sbatch reads them. */
export function sbatchLines(text: string): string[] {
  const lines = text.split(/\r?\n/);
  const end = lines.findIndex((line) => line.trim() !== "" && !line.startsWith("#"));
  return (end < 0 ? lines : lines.slice(0, end)).filter((line) => line.startsWith("#SBATCH"));
}

/** Ask for the path of a script; empty: none. */
async function enterPath(trans: TranslationBundle): Promise<string> {
  const { value } = await InputDialog.getText({
    title: trans.__("Submit a script"),
    label: trans.__("Path, as the file browser shows it"),
    okLabel: trans.__("Continue"),
    placeholder: "train.sbatch",
  });
  return value?.trim().replace(/^\/+/, "") ?? "";
}

async function confirmScript(
  trans: TranslationBundle,
  name: string,
  text: string,
): Promise<boolean> {
  const lines = sbatchLines(text);
  const result = await showDialog({
    title: trans.__("Submit %1?", name),
    body:
      lines.length === 0
        ? trans.__("The script has no #SBATCH lines. The defaults of the cluster apply.")
        : new Widget({ node: listNode(trans.__("Options of the script:"), lines) }),
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label: trans.__("Submit") })],
  });
  return result.button.accept;
}

/** Submit a script after a confirmation, and open the page of its job. */
export async function submitScript(acts: IScriptActs, path: string): Promise<void> {
  const { api, contents, model, trans } = acts;
  const chosen = path || (await enterPath(trans));
  if (chosen === "") {
    return;
  }
  try {
    const file = await contents.get(chosen, { type: "file", format: "text", content: true });
    const text = String(file.content);
    const [title, go] = [trans.__("Submit on which cluster?"), trans.__("Continue")];
    const cluster = await chooseCluster(trans, title, go, model.clusters.filter(isReached));
    if (cluster === null || !(await confirmScript(trans, chosen.split("/").at(-1) ?? "", text))) {
      return;
    }
    const key = newRequestKey();
    acts.open(
      await api.submit(cluster.id, {
        ...{ key, kind: "script", text },
        script_name: `./${contents.localPath(chosen)}`,
      }),
    );
  } catch (error) {
    const problem = toProblem(error, "Check the list of jobs, then try again.");
    await showErrorMessage(trans.__("The script was not submitted"), problemText(trans, problem));
  }
}
