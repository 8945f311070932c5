/**
 * Input fields of notebook cells whose question was answered in a dialog or in a terminal.
 *
 * The kernel continues, but cannot notify the page: the field would stay, and the page would refuse to run another cell
 * until the field is answered. An empty answer removes it; a kernel that does not wait for one drops the answer.
 */
import type { IDisposable } from "@lumino/disposable";

import type { IPrompt } from "../common/api/objects";
import type { IJobsModel } from "../common/jobs_model";

/** Times of further checks, in milliseconds. */
const RECHECK_DELAYS_MS = [500, 2000];

/** Removes input fields of cells when their prompt is settled, as long as no other prompt has the same question. */
export class StaleInputFields implements IDisposable {
  constructor(private readonly _model: IJobsModel) {
    _model.settled.connect(this._settled);
  }

  get isDisposed(): boolean {
    return this._model.isDisposed;
  }

  dispose(): void {
    this._model.settled.disconnect(this._settled);
    this._later.forEach(clearTimeout);
    this._later.clear();
  }

  /**
   * Check again a moment later: a kernel may have asked before it received the answer, and its field appears after
   * that.
   */
  private readonly _settled = (model: IJobsModel, prompt: IPrompt): void => {
    this._clear(model, prompt);
    for (const moment of RECHECK_DELAYS_MS) {
      const later = setTimeout(() => {
        this._later.delete(later);
        this._clear(model, prompt);
      }, moment);
      this._later.add(later);
    }
  };

  private readonly _later = new Set<ReturnType<typeof setTimeout>>();

  private readonly _clear = (model: IJobsModel, prompt: IPrompt): void => {
    const gone = new Set(prompt.questions.map(({ text }) => text.trim()));
    for (const { text } of model.prompts.flatMap(({ questions }) => questions)) {
      gone.delete(text.trim());
    }
    for (const box of document.querySelectorAll<HTMLElement>(".jp-Stdin")) {
      const question = box.querySelector(".jp-Stdin-prompt")?.textContent.trim() ?? "";
      const input = box.querySelector<HTMLInputElement>("input.jp-Stdin-input");
      if (input !== null && gone.has(question)) {
        input.value = ""; // the field may contain half a password
        input.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
      }
    }
  };
}
