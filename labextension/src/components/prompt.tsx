/** What stands in the dialog of a prompt: who asks, in our words; what is asked, in theirs; and the fields. */
import type { Dialog } from "@jupyterlab/apputils";
import { ReactWidget } from "@jupyterlab/ui-components";
import type { TranslationBundle } from "@jupyterlab/translation";
import * as React from "react";

import type { IPrompt } from "../tokens";
import { promptHead } from "../words";

/** The text of a host is marked as such at its edge: nothing in it can be taken for words of ours. */
function Said({ text }: { readonly text: string }): React.ReactElement | null {
  return text.trim() === "" ? null : <div className="jp-Slurm-said">{text.trim()}</div>;
}

/** What is typed stays in the fields until it is sent, and is taken out of them then. */
export class PromptBody extends ReactWidget implements Dialog.IBodyWidget<string[]> {
  constructor(
    private readonly _prompt: IPrompt,
    private readonly _trans: TranslationBundle,
  ) {
    super();
    this.addClass("jp-Slurm-prompt");
  }

  getValue(): string[] {
    return [...this.node.querySelectorAll("input")].map((field) => {
      const typed = field.value;
      field.value = "";
      return typed;
    });
  }

  protected override render(): React.ReactElement {
    const { title, instruction, questions, kind } = this._prompt;
    // The dialog's buttons answer the only question about a key.
    const fields = kind === "host-key" ? [] : questions;
    return (
      <>
        <p>{promptHead(this._trans, this._prompt)}</p>
        <Said text={title} />
        <Said text={instruction} />
        {fields.map(({ text, echo }, index) => (
          <label key={index}>
            <span className="jp-Slurm-said">{text}</span>
            <input
              type={echo ? "text" : "password"}
              className="jp-mod-styled"
              autoComplete="off"
              autoCapitalize="off"
              spellCheck={false}
            />
          </label>
        ))}
      </>
    );
  }
}
