/** Submission of a script from the file browser, by the form of its job. */
import { InputDialog, MainAreaWidget, showErrorMessage } from "@jupyterlab/apputils";
import type { Contents } from "@jupyterlab/services";
import type { TranslationBundle } from "@jupyterlab/translation";

import type { ICluster, IJob } from "../../common/api/objects";
import { toProblem } from "../../common/api/problem";
import { isReached } from "../../common/api/records";
import type { IFilePlace } from "../../common/file_place";
import { chooseCluster } from "../../common/jupyterlab/dialogs";
import { awaitClusters, knownClusters } from "../../common/jupyterlab/known_clusters";
import { problemText } from "../../common/labels";
import { newRequestKey, type ILaunchForm } from "../../common/launch_request";
import { FormDraft } from "../../sessions/form_drafts";
import type { IFormUse } from "../../sessions/form_requests";
import type { IPreview, ISessionsModel } from "../../sessions/model";
import { ScriptPanel, scriptTitle, type IScript, type IScriptPlace } from "./script_form";
import { changedOptions, scriptForm, scriptValues, type ScriptOptions } from "./script_values";

/** Files that are offered for submission. */
const SCRIPTS = /\.(sh|bash|sbatch|slurm)$/i;

/** Request of the agent's API; the server adds the folder and the environment. */
export interface IScriptSubmission {
  readonly key: string;
  readonly kind: "script";
  readonly text: string;
  /** The path of the script below the root of the server, beginning with "./", or absolute on the cluster. */
  readonly script_name: string;
  /** Options of sbatch that count over those of the script. */
  readonly options?: readonly string[];
  readonly env?: string;
}

/** What the agent knows about a submission. */
export type IScriptPreview = IPreview & { readonly options?: ScriptOptions };

export interface IScriptActs {
  readonly api: {
    submit(cluster: string, submission: IScriptSubmission): Promise<IJob>;
    previewScript(
      cluster: string,
      submission: IScriptSubmission,
      estimate: boolean,
    ): Promise<IScriptPreview>;
  };
  readonly contents: Pick<Contents.IManager, "get">;
  readonly locate: (path: string) => Promise<IFilePlace>;
  readonly model: ISessionsModel;
  readonly trans: TranslationBundle;
  readonly open: (job: IJob) => void;
  /** Show a page. */
  readonly show: (page: MainAreaWidget<ScriptPanel>) => void;
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

/**
 * Return the #SBATCH lines of each part of a job: a heterogeneous job has several.
 */
export function scriptParts(lines: readonly string[]): string[][] {
  const parts: string[][] = [[]];
  for (const line of lines) {
    if (/^#SBATCH\s+(hetjob|packjob)\s*(#.*)?$/.test(line)) {
      parts.push([]);
    } else {
      parts.at(-1)?.push(line);
    }
  }
  return parts;
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

/** Return the request of a form. The file is read each time: it may have been edited since the form was opened. */
async function submissionOf(
  { contents }: Pick<IScriptActs, "contents">,
  { path, serverPath }: IFilePlace,
  key: string,
  changes: Pick<IScriptSubmission, "options" | "env"> = {},
): Promise<IScriptSubmission> {
  const file = await contents.get(path, { type: "file", format: "text", content: true });
  const text = String(file.content);
  return { key, kind: "script", text, script_name: serverPath, ...changes };
}

/** Return the options in force of a script; none where the agent refuses it, which the form then shows. */
async function optionsOf(
  { api }: IScriptActs,
  cluster: ICluster,
  submission: IScriptSubmission,
): Promise<ScriptOptions> {
  return api.previewScript(cluster.id, submission, false).then(
    ({ options = {} }) => options,
    () => ({}),
  );
}

/** Return the page with the form of a script. */
async function scriptPage(
  acts: IScriptActs,
  file: IFilePlace,
  script: IScript,
): Promise<MainAreaWidget<ScriptPanel>> {
  const { api, model, trans } = acts;
  const { cluster, options } = script;
  const draft = new FormDraft(model.memory, `${cluster.id}/${file.path}`);
  const first = await draft.restore(scriptForm(scriptValues(options)));
  const read = (form: ILaunchForm, key: string): Promise<IScriptSubmission> =>
    submissionOf(acts, file, key, {
      options: changedOptions(form, options),
      ...(form.env.trim() === "" ? {} : { env: form.env.trim() }),
    });
  const use: IFormUse<IJob> = {
    check: async (form, estimate) =>
      api.previewScript(cluster.id, await read(form, newRequestKey()), estimate),
    launch: async (form, key) => api.submit(cluster.id, await read(form, key)),
    problemOf: (error) =>
      toProblem(error, trans.__("Submit again. Only one job will be submitted.")),
  };
  const submitted = (job: IJob): void => {
    acts.open(job);
    page.dispose();
  };
  const content = new ScriptPanel({ model, trans, script, use, submitted, draft, first });
  const page = new MainAreaWidget({ content });
  page.toolbar.hide(); // an empty toolbar would be a stripe above the form
  page.title.label = script.name;
  page.title.caption = scriptTitle(trans, script);
  page.title.closable = true;
  return page;
}

/** Show the form of a script again, after JupyterLab was loaded again; nothing where it cannot be shown any more. */
export async function restoreScript(
  acts: IScriptActs,
  { path, cluster: id }: IScriptPlace,
): Promise<void> {
  const clusters = await knownClusters(acts.model.jobs);
  const cluster = clusters.filter(isReached).find((each) => each.id === id);
  if (cluster !== undefined) {
    const file = await acts.locate(path);
    const submission = await submissionOf(acts, file, newRequestKey());
    await showForm(acts, file, cluster, submission);
  }
}

async function showForm(
  acts: IScriptActs,
  file: IFilePlace,
  cluster: ICluster,
  submission: IScriptSubmission,
): Promise<void> {
  const options = await optionsOf(acts, cluster, submission);
  const { path } = file;
  const name = path.split("/").at(-1) ?? "";
  const parts = scriptParts(sbatchLines(submission.text));
  acts.show(await scriptPage(acts, file, { cluster, path, name, parts, options }));
}

/** Show the form of a script's job; after the submission it gives way to the page of the job. */
export async function submitScript(acts: IScriptActs, path: string): Promise<void> {
  const { model, trans } = acts;
  const chosen = path || (await enterPath(trans));
  if (chosen === "") {
    return;
  }
  try {
    const file = await acts.locate(chosen);
    const submission = await submissionOf(acts, file, newRequestKey());
    const [title, go] = [trans.__("Submit on which cluster?"), trans.__("Continue")];
    const failed = trans.__("The script was not submitted");
    const known = await awaitClusters(model.jobs, trans, failed);
    const isUsable = (each: ICluster): boolean =>
      isReached(each) && (file.cluster === "" || each.id === file.cluster);
    const clusters = known.filter(isUsable);
    if (known.length > 0 && clusters.length === 0) {
      await showErrorMessage(failed, trans.__("No cluster is connected."));
    }
    const cluster = await chooseCluster(trans, title, go, clusters);
    if (cluster === null) {
      return;
    }
    await showForm(acts, file, cluster, submission);
  } catch (error) {
    const problem = toProblem(error, "Check the path of the script, then try again.");
    await showErrorMessage(trans.__("The script was not submitted"), problemText(trans, problem));
  }
}
