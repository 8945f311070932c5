/** What stands in the dialog of a prompt: who asks, in our words; what is asked, in theirs; and the fields. */
import type { Dialog } from "@jupyterlab/apputils";
import type { TranslationBundle } from "@jupyterlab/translation";
import { Widget } from "@lumino/widgets";

import type { IPrompt } from "../common/api/objects";
import { element } from "../common/dialogs";
import { promptHead } from "../common/labels";

function field(text: string, echo: boolean): HTMLElement {
  const input = element("input", "jp-mod-styled");
  input.type = echo ? "text" : "password";
  input.autocomplete = "off";
  input.autocapitalize = "off";
  input.spellcheck = false;
  const label = element("label", "");
  label.append(element("span", "jp-Slurm-said", text), input);
  return label;
}

/**
 * What is typed stays in the fields until it is sent, and is taken out of them then.
 *
 * Not made by React: that draws later, and whoever types at once would type past the first field.
 */
export class PromptBody extends Widget implements Dialog.IBodyWidget<string[]> {
  constructor(prompt: IPrompt, trans: TranslationBundle) {
    super();
    this.addClass("jp-Slurm-prompt");
    this.node.append(element("p", "", promptHead(trans, prompt)));
    for (const said of [prompt.title, prompt.instruction].map((text) => text.trim())) {
      if (said !== "") {
        // Marked at its edge, so that nothing in it can be taken for words of ours.
        this.node.append(element("div", "jp-Slurm-said", said));
      }
    }
    if (prompt.kind !== "host-key") {
      // The dialog's buttons answer the only question about a key.
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
