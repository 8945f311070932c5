/** Contents of the dialog that moves a notebook: the kernel, and the variables to move. */
import type { Dialog } from "@jupyterlab/apputils";
import type { TranslationBundle } from "@jupyterlab/translation";
import { UUID } from "@lumino/coreutils";
import { Widget } from "@lumino/widgets";

import { createElement } from "../common/dialogs";
import type { IKernelSpec } from "./model";
import { parseNames } from "./move_model";

/** Pattern of names of variables, with commas or blanks between them. */
const NAMES_PATTERN = String.raw`[\s,]*([\p{L}_][\p{L}\p{M}\p{N}_]*([\s,]+|$))*`;

/** The choice of the user. */
export interface IMoveChoice {
  /** Absent where there was no choice. */
  readonly kernel?: string;
  readonly in: readonly string[];
}

function labelled(text: string, field: HTMLElement): HTMLElement {
  const label = createElement("label", "");
  label.append(createElement("span", "", text), field);
  return label;
}

export class MoveBody extends Widget implements Dialog.IBodyWidget<IMoveChoice> {
  private readonly _kernel: HTMLSelectElement | null;
  private readonly _names = createElement("input", "jp-mod-styled");

  /**
   * @param about - The description of the move.
   * @param kernels - The kernels to choose from; null: the kernel of the notebook stays.
   * @param names - The variables of the last move.
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
    this._kernel = kernels === null ? null : createElement("select", "jp-mod-styled");
    for (const { name, display_name: shown } of kernels ?? []) {
      const option = createElement("option", "", shown);
      option.value = name;
      this._kernel?.append(option);
    }
    const hint = createElement("div", "jp-Slurm-aside");
    hint.id = `jp-Slurm-move-${UUID.uuid4()}`;
    hint.ariaLive = "polite";
    Object.assign(this._names, {
      type: "text",
      value: names.join(", "),
      placeholder: "x, model, optimizer",
      pattern: NAMES_PATTERN,
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
        ? trans.__("Not valid variable names.")
        : trans.__(
            "Names, separated by commas. Functions and classes of the notebook are possible, too. Default: none",
          );
    };
    this._names.addEventListener("input", check);
    check();
    this.node.append(createElement("div", "jp-Slurm-aside", about));
    if (this._kernel !== null) {
      this.node.append(labelled(trans.__("Kernel"), this._kernel));
    }
    this.node.append(labelled(trans.__("Variables to send"), this._names), hint);
  }

  getValue(): IMoveChoice {
    const names = parseNames(this._names.value);
    return this._kernel === null ? { in: names } : { kernel: this._kernel.value, in: names };
  }
}
