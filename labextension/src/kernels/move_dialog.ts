/** What stands in the dialog that moves a notebook: where to, and which variables come along. */
import type { Dialog } from "@jupyterlab/apputils";
import type { TranslationBundle } from "@jupyterlab/translation";
import { UUID } from "@lumino/coreutils";
import { Widget } from "@lumino/widgets";

import { element } from "../common/dialogs";
import type { IKernelSpec } from "./model";
import { namesOf } from "./move_model";

/** Names of variables, with commas or blanks between them. */
const NAMES = String.raw`[\s,]*([\p{L}_][\p{L}\p{M}\p{N}_]*([\s,]+|$))*`;

/** What a person has chosen. */
export interface IWish {
  /** Absent where there was nothing to choose. */
  readonly kernel?: string;
  readonly in: readonly string[];
}

function labelled(text: string, field: HTMLElement): HTMLElement {
  const label = element("label", "");
  label.append(element("span", "", text), field);
  return label;
}

export class MoveBody extends Widget implements Dialog.IBodyWidget<IWish> {
  private readonly _kernel: HTMLSelectElement | null;
  private readonly _names = element("input", "jp-mod-styled");

  /**
   * @param about - What is going to happen.
   * @param kernels - Those that can be chosen; null: it is the one that the notebook has.
   * @param names - The variables that were named the last time.
   */
  constructor(
    trans: TranslationBundle,
    about: string,
    kernels: readonly IKernelSpec[] | null,
    names: readonly string[],
  ) {
    super();
    this.addClass("jp-Slurm-prompt");
    this.addClass("jp-Slurm-move");
    this._kernel = kernels === null ? null : element("select", "jp-mod-styled");
    for (const { name, display_name: shown } of kernels ?? []) {
      const option = element("option", "", shown);
      option.value = name;
      this._kernel?.append(option);
    }
    const hint = element("div", "jp-Slurm-aside");
    hint.id = `jp-Slurm-move-${UUID.uuid4()}`;
    hint.ariaLive = "polite";
    Object.assign(this._names, {
      type: "text",
      value: names.join(", "),
      placeholder: "x, model, optimizer",
      pattern: NAMES,
      autocomplete: "off",
      autocapitalize: "off",
      spellcheck: false,
    });
    this._names.setAttribute("aria-describedby", hint.id);
    const check = (): void => {
      const isWrong = !this._names.validity.valid;
      this._names.ariaInvalid = String(isWrong);
      hint.className = isWrong ? "jp-Slurm-problem" : "jp-Slurm-aside";
      hint.textContent = isWrong
        ? trans.__("These are no names of variables.")
        : trans.__(
            "Names with commas between them; functions and classes of the notebook, too. Empty: none.",
          );
    };
    this._names.addEventListener("input", check);
    check();
    this.node.append(element("div", "jp-Slurm-aside", about));
    if (this._kernel !== null) {
      this.node.append(labelled(trans.__("Kernel"), this._kernel));
    }
    this.node.append(labelled(trans.__("Variables to take along"), this._names), hint);
  }

  getValue(): IWish {
    const names = namesOf(this._names.value);
    return this._kernel === null ? { in: names } : { kernel: this._kernel.value, in: names };
  }
}
