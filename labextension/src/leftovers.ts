/**
 * Fields under notebook cells that nobody waits for any more: the question was answered in a dialog, or in a terminal.
 *
 * The kernel goes on by itself, but cannot tell the page: the field would stay, and the page would refuse to run another
 * cell until it is answered. An empty answer takes it away; a kernel that does not wait for one drops it.
 */
import type { IDisposable } from "@lumino/disposable";

import type { IJobsModel, IPrompt } from "./tokens";

function textsOf(prompts: readonly IPrompt[]): Set<string> {
  return new Set(prompts.flatMap(({ questions }) => questions.map(({ text }) => text.trim())));
}

/** Takes fields of cells away when their prompt is settled, as long as no other prompt asks the same. */
export class Leftovers implements IDisposable {
  private _before: readonly IPrompt[] = [];

  constructor(private readonly _model: IJobsModel) {
    _model.changed.connect(this._look);
    this._look();
  }

  get isDisposed(): boolean {
    return this._model.isDisposed;
  }

  dispose(): void {
    this._model.changed.disconnect(this._look);
  }

  private readonly _look = (): void => {
    const { prompts } = this._model;
    const still = textsOf(prompts);
    const gone = textsOf(this._before.filter(({ id }) => prompts.every((each) => each.id !== id)));
    this._before = prompts;
    for (const box of document.querySelectorAll<HTMLElement>(".jp-Stdin")) {
      const asked = box.querySelector(".jp-Stdin-prompt")?.textContent.trim() ?? "";
      const input = box.querySelector<HTMLInputElement>("input.jp-Stdin-input");
      if (input !== null && gone.has(asked) && !still.has(asked)) {
        input.value = ""; // half a password may stand there
        input.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
      }
    }
  };
}
