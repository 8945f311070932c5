/**
 * Contents of the dialog of a prompt: its origin in words of the panel, its text in words of the host, and the fields.
 */
import type { Dialog } from "@jupyterlab/apputils";
import type { TranslationBundle } from "@jupyterlab/translation";
import { Widget } from "@lumino/widgets";

import type { IPrompt } from "../common/api/objects";
import { createElement } from "../common/jupyterlab/dialogs";
import { promptHead } from "../common/labels";

function field(text: string, echo: boolean): HTMLElement {
  const input = createElement("input", "jp-mod-styled");
  input.type = echo ? "text" : "password";
  input.autocomplete = "off";
  input.autocapitalize = "off";
  input.spellcheck = false;
  const label = createElement("label", "");
  label.append(createElement("span", "jp-Slurm-said", text), input);
  return label;
}

/**
 * A form for a prompt. Typed text stays in the fields until it is sent, and is removed then.
 *
 * Not made by React: React draws later, and a user who types at once would type past the first field.
 */
export class PromptBody extends Widget implements Dialog.IBodyWidget<string[]> {
  constructor(prompt: IPrompt, trans: TranslationBundle) {
    super();
    this.addClass("jp-Slurm-prompt");
    this.node.append(createElement("p", "", promptHead(trans, prompt)));
    for (const text of [prompt.title, prompt.instruction].map((text) => text.trim())) {
      if (text !== "") {
        // Text of the host has a mark at its edge, so that it cannot be taken for words of the panel.
        this.node.append(createElement("div", "jp-Slurm-said", text));
      }
    }
    if (prompt.kind !== "host-key") {
      // The buttons of the dialog answer the only question about a key.
      this.node.append(...prompt.questions.map(({ text, echo }) => field(text, echo)));
    }
  }

  getValue(): string[] {
    return [...this.node.querySelectorAll("input")].map((input) => {
      const typed = input.value;
      input.value = "";
      return typed;
    });
  }
}
