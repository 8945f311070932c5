/**
 * Fields under notebook cells that nobody waits for any more: the question was answered in a dialog, or in a terminal.
 *
 * The kernel goes on by itself, but cannot tell the page: the field would stay, and the page would refuse to run another
 * cell until it is answered. An empty answer takes it away; a kernel that does not wait for one drops it.
 */
import type { IDisposable } from "@lumino/disposable";

import type { IPrompt } from "../common/api/objects";
import type { IJobsModel } from "../common/jobs_model";

/** Milliseconds. */
const MOMENTS = [500, 2000];

/** Takes fields of cells away when their prompt is settled, as long as no other prompt asks the same. */
export class Leftovers implements IDisposable {
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

  /** Once more in a moment: a kernel may have asked before it heard of the answer, and its field comes after that. */
  private readonly _settled = (model: IJobsModel, prompt: IPrompt): void => {
    this._clear(model, prompt);
    for (const moment of MOMENTS) {
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
      const asked = box.querySelector(".jp-Stdin-prompt")?.textContent.trim() ?? "";
      const input = box.querySelector<HTMLInputElement>("input.jp-Stdin-input");
      if (input !== null && gone.has(asked)) {
        input.value = ""; // half a password may stand there
        input.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
      }
    }
  };
}
