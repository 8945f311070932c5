/** Dialogs for the prompts of a login: one after the other, never two at a time. */
import { Dialog } from "@jupyterlab/apputils";
import type { TranslationBundle } from "@jupyterlab/translation";
import type { IDisposable } from "@lumino/disposable";

import type { IPrompt } from "../common/api/objects";
import type { IJobsModel } from "../common/jobs_model";
import { promptTitle } from "../common/labels";
import { PromptBody } from "./prompt_form";

type Answers = readonly string[] | null;

/** Return the buttons of the dialog of a prompt, and the default one. */
function buttonsOf(
  trans: TranslationBundle,
  { kind, questions }: IPrompt,
): Partial<Dialog.IOptions<string[]>> {
  if (questions.length === 0) {
    const cancel = Dialog.cancelButton({ label: trans.__("Cancel the login") });
    return { buttons: [cancel, Dialog.okButton({ label: trans.__("Hide") })], defaultButton: 1 };
  }
  if (kind === "host-key") {
    // A user who presses Enter without reading must not accept the key.
    const buttons = [Dialog.cancelButton(), Dialog.warnButton({ label: trans.__("Accept") })];
    return { buttons, defaultButton: 0 };
  }
  const buttons = [Dialog.cancelButton(), Dialog.okButton({ label: trans.__("Send") })];
  return { buttons, defaultButton: 1, focusNodeSelector: "input" };
}

/** Shows the oldest prompt that waits, until it is answered in the dialog or settled elsewhere. */
export class PromptDialogs implements IDisposable {
  private _dialog: Dialog<string[]> | null = null;
  private _shown = "";
  /** Messages that the user has hidden; the agent removes them. */
  private readonly _hidden = new Set<string>();

  constructor(
    private readonly _model: IJobsModel,
    private readonly _trans: TranslationBundle,
  ) {
    _model.changed.connect(this._update);
    this._update();
  }

  get isDisposed(): boolean {
    return this._model.isDisposed;
  }

  dispose(): void {
    this._model.changed.disconnect(this._update);
    this._close();
  }

  private readonly _update = (): void => {
    const { prompts } = this._model;
    if (this._dialog !== null && !prompts.some(({ id }) => id === this._shown)) {
      this._close();
    }
    const next = prompts.find(({ id }) => !this._hidden.has(id));
    if (this._dialog === null && next !== undefined) {
      void this._show(next);
    }
  };

  private _close(): void {
    const dialog = this._dialog;
    this._dialog = null;
    dialog?.reject(); // not dispose(): a dialog that still waits for its turn would leave a rejected promise behind
  }

  private async _show(prompt: IPrompt): Promise<void> {
    const title = promptTitle(this._trans, prompt);
    const body = new PromptBody(prompt, this._trans);
    // A click beside the dialog must not end a login; Escape does.
    const dialog = new Dialog({ title, body, hasClose: false, ...buttonsOf(this._trans, prompt) });
    dialog.addClass("jp-Slurm-promptDialog");
    dialog.node.ariaLabel = title;
    const escape = ({ key }: KeyboardEvent): void => {
      if (key === "Escape") {
        dialog.reject();
      }
    };
    dialog.node.addEventListener("keydown", escape, true); // JupyterLab stops events that bubble
    // A cell that asks takes the focus; JupyterLab 4.2 gives it back to a button.
    dialog.node.addEventListener("focusin", ({ relatedTarget }) => {
      if (relatedTarget instanceof Node && !dialog.node.contains(relatedTarget)) {
        dialog.node.querySelector("input")?.focus();
      }
    });
    this._dialog = dialog;
    this._shown = prompt.id;
    const { button, value } = await dialog.launch();
    if (this._dialog !== dialog) {
      return; // settled elsewhere, so that `_close` closed the dialog
    }
    this._dialog = null;
    if (button.accept && prompt.questions.length === 0) {
      this._hidden.add(prompt.id);
      this._update();
      return;
    }
    const typed: Answers = prompt.kind === "host-key" ? ["yes"] : value;
    await this._model.answer(prompt, button.accept ? typed : null);
  }
}
