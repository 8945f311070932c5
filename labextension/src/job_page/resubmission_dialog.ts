/** Submission of a job that was submitted elsewhere: its script and its options are shown, and can be changed. */
import { Dialog, showErrorMessage } from "@jupyterlab/apputils";
import type { TranslationBundle } from "@jupyterlab/translation";
import { Widget } from "@lumino/widgets";

import type { ApiSchemas, IJob, IProblem } from "../common/api/objects";
import { isRefused, toProblem } from "../common/api/problem";
import { createElement } from "../common/jupyterlab/dialogs";
import { problemText } from "../common/labels";
import { newRequestKey } from "../common/launch_request";
import type { IJobLocation } from "./model";

/** A request of the agent's API; the server adds the environment. */
export interface IForeignSubmission {
  readonly key: string;
  readonly kind: "script";
  readonly text: string;
  readonly options: readonly string[];
}

/** The requests to the agent. */
export interface IResubmissionApi {
  foreignSubmission(cluster: string, job: string): Promise<ApiSchemas["ForeignSubmission"]>;
  submit(cluster: string, submission: IForeignSubmission): Promise<IJob>;
}

interface IEdited {
  readonly script: string;
  readonly options: readonly string[];
}

/** Return the options of lines: one a line, since a value may have blanks. */
export function optionsOf(lines: string): string[] {
  return lines
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");
}

/** Fields for the script and the options. Text of the cluster never becomes markup. */
class Editor extends Widget implements Dialog.IBodyWidget<IEdited> {
  private readonly _options: HTMLTextAreaElement;
  private readonly _script: HTMLTextAreaElement;

  constructor(trans: TranslationBundle, { script, options }: IEdited) {
    super();
    this.addClass("jp-Slurm-resubmission");
    this._options = this._field(trans.__("Options of sbatch, one a line"), options.join("\n"), 8);
    this._script = this._field(trans.__("Batch script"), script, 14);
  }

  getValue(): IEdited {
    return { script: this._script.value, options: optionsOf(this._options.value) };
  }

  private _field(label: string, value: string, rows: number): HTMLTextAreaElement {
    const field = createElement("textarea", "jp-mod-styled");
    const line = createElement("label", "", label);
    field.value = value;
    field.rows = rows;
    field.spellcheck = false;
    line.append(field);
    this.node.append(line);
    return field;
  }
}

/** A dialog in whose fields Enter begins a line: some versions of JupyterLab take it for the default button. */
class EditorDialog extends Dialog<IEdited> {
  override handleEvent(event: Event): void {
    const isLine =
      event instanceof KeyboardEvent &&
      event.key === "Enter" &&
      event.target instanceof HTMLTextAreaElement;
    if (!isLine) {
      super.handleEvent(event);
    }
  }
}

async function edit(
  trans: TranslationBundle,
  job: string,
  submission: IEdited,
): Promise<IEdited | null> {
  const dialog = new EditorDialog({
    title: trans.__("Edit and resubmit job %1", job),
    body: new Editor(trans, submission),
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label: trans.__("Submit") })],
    focusNodeSelector: "textarea",
  });
  const { button, value } = await dialog.launch();
  return button.accept ? value : null;
}

async function report(trans: TranslationBundle, problem: IProblem): Promise<void> {
  await showErrorMessage(trans.__("The job was not submitted"), problemText(trans, problem));
}

/** Let the user edit a submission until it succeeds; null: the user has given up. What was edited stays after a failure. */
async function submitEdited(
  trans: TranslationBundle,
  api: IResubmissionApi,
  { cluster, job }: IJobLocation,
  known: IEdited,
): Promise<IJob | null> {
  let key = newRequestKey();
  let edited = await edit(trans, job, known);
  while (edited !== null) {
    try {
      const { script: text, options } = edited;
      return await api.submit(cluster, { key, kind: "script", text, options });
    } catch (error) {
      const problem = toProblem(error, "Submit again. Only one job will be submitted.");
      if (isRefused(problem)) {
        key = newRequestKey(); // nothing was submitted
      }
      await report(trans, problem);
    }
    edited = await edit(trans, job, edited);
  }
  return null;
}

/** Show the script and the options of a job of a terminal, and submit what the user makes of them; null: nothing. */
export async function editAndResubmit(
  trans: TranslationBundle,
  api: IResubmissionApi,
  place: IJobLocation,
): Promise<IJob | null> {
  let known: IEdited;
  try {
    known = await api.foreignSubmission(place.cluster, place.job);
  } catch (error) {
    await report(trans, toProblem(error, "Check the list of jobs, then try again."));
    return null;
  }
  return submitEdited(trans, api, place, known);
}
