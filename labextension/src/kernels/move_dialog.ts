/** Dialog that moves a notebook: the kernel, and the variables to send. It stays open until the server has accepted. */
import { Dialog } from "@jupyterlab/apputils";
import type { TranslationBundle } from "@jupyterlab/translation";
import { Widget } from "@lumino/widgets";

import { createElement } from "../common/jupyterlab/dialogs";
import { formatSize } from "../common/format";
import type { IKernelSpec } from "./model";
import type { ISurvey, IVariable } from "./move_model";

/** Size up to which variables are selected at first, in bytes. */
const MAX_SELECTED_BYTES = 32 * 2 ** 20;
/** Interval of requests while a cell runs, in milliseconds. */
const RETRY_MS = 2_000;
/** Smallest size that is shown, in bytes. */
const LEAST_SHOWN = 1_024;
/** Index of the button that accepts; the one before it cancels. */
const ACCEPT = 1;

/** The choice of the user. */
export interface IMoveChoice {
  /** Absent where there was no choice. */
  readonly kernel?: string;
  readonly in: readonly string[];
  /** Whether the allocations of the present kernel stay open for the next one. */
  readonly keep: boolean;
}

/** What a dialog about a move shows, and does. */
export interface IMoveQuestion {
  readonly title: string;
  readonly about: string;
  /** Label of the button that accepts. */
  readonly label: string;
  /** The kernels to choose from; null: the kernel of the notebook stays. */
  readonly kernels: readonly IKernelSpec[] | null;
  /** The variables of the last move, which are selected; of none, all but large ones. */
  readonly names: readonly string[];
  /** Return the variables of the kernel of the notebook; null while a cell runs. */
  readonly survey: (kernel: string | undefined) => Promise<ISurvey | null>;
  /** Request the move; return why it was refused, else an empty text. */
  readonly accept: (choice: IMoveChoice) => Promise<string>;
}

class MoveBody extends Widget implements Dialog.IBodyWidget<IMoveChoice> {
  private readonly _kernel: HTMLSelectElement | null;
  private readonly _list = createElement("fieldset", "jp-Slurm-variables");
  private readonly _sum = createElement("div", "jp-Slurm-aside");
  private readonly _ending = createElement("fieldset", "jp-Slurm-variables");
  private readonly _keep = createElement("input", "");
  private readonly _consequence = createElement("div", "jp-Slurm-aside");
  private readonly _error = createElement("div", "jp-Slurm-problem");
  /** Selections of the user, by name; others are as at first. */
  private readonly _chosen: Map<string, boolean>;
  private readonly _hasChosen: boolean;
  private _survey: ISurvey | null = null;
  private _asked = 0;

  constructor(
    private readonly _trans: TranslationBundle,
    private readonly _question: IMoveQuestion,
  ) {
    super();
    const { about, kernels, names } = _question;
    this.addClass("jp-Slurm-prompt");
    this.addClass("jp-Slurm-move");
    this._chosen = new Map(names.map((name) => [name, true]));
    this._hasChosen = names.length > 0;
    this._kernel = kernels === null ? null : createElement("select", "jp-mod-styled");
    for (const { name, display_name: shown } of kernels ?? []) {
      const option = createElement("option", "", shown);
      option.value = name;
      this._kernel?.append(option);
    }
    this._error.setAttribute("role", "alert");
    this._sum.ariaLive = "polite";
    Object.assign(this._keep, { type: "checkbox", name: "keep-allocations", checked: true });
    this._keep.addEventListener("change", () => {
      this._drawAllocations();
    });
    this._consequence.ariaLive = "polite";
    this.node.append(createElement("div", "jp-Slurm-aside", about));
    if (this._kernel !== null) {
      const label = createElement("label", "");
      label.append(createElement("span", "", _trans.__("Kernel")), this._kernel);
      this._kernel.addEventListener("change", () => void this._load());
      this.node.append(label);
    }
    this.node.append(this._list, this._sum, this._ending, this._error);
    this._draw();
    void this._load();
  }

  getValue(): IMoveChoice {
    const names =
      this._survey === null
        ? this._question.names
        : this._survey.variables.filter((each) => this._isSelected(each)).map(({ name }) => name);
    const choice = { in: names, keep: this._keep.checked };
    return this._kernel === null ? choice : { kernel: this._kernel.value, ...choice };
  }

  /** Show why the move was refused. */
  showError(text: string): void {
    this._error.textContent = text;
    this.node.scrollTop = this.node.scrollHeight; // the body of a dialog scrolls
  }

  private _isSelected({ name, size, why }: IVariable): boolean {
    const isSmall = size !== null && size <= MAX_SELECTED_BYTES;
    return why === "" && (this._chosen.get(name) ?? (!this._hasChosen && isSmall));
  }

  private async _load(): Promise<void> {
    this._asked += 1;
    const asked = this._asked;
    const trouble = (error: unknown): ISurvey => {
      const said = error instanceof Error ? error.message : String(error);
      return { variables: [], left: 0, trouble: said, allocations: [] };
    };
    const found = await this._question.survey(this._kernel?.value).catch(trouble);
    if (this.isDisposed || asked !== this._asked) {
      return;
    }
    this._survey = found;
    this._draw();
    if (found === null) {
      setTimeout(() => {
        if (!this.isDisposed && asked === this._asked) {
          void this._load();
        }
      }, RETRY_MS);
    }
  }

  private _draw(): void {
    const { _trans: trans, _survey: survey } = this;
    this._list.replaceChildren(createElement("legend", "", trans.__("Variables to send")));
    if (survey === null) {
      const waits =
        this._asked === 0
          ? trans.__("Loading…")
          : trans.__("A cell is running. The variables are listed when it has ended.");
      this._list.append(createElement("div", "jp-Slurm-aside", waits));
    } else if (survey.trouble !== "" || survey.variables.length === 0) {
      const none = survey.trouble || trans.__("The kernel has no variables.");
      this._list.append(createElement("div", "jp-Slurm-aside", none));
    } else {
      const rows = createElement("ul", "");
      rows.append(...survey.variables.map((each) => this._row(each)));
      this._list.append(rows);
    }
    this._drawAllocations();
    this._showSum();
  }

  /** Show the allocations of the present kernel, and what becomes of them. */
  private _drawAllocations(): void {
    const { _trans: trans, _keep: box } = this;
    const ending = this._survey?.allocations ?? [];
    this._ending.hidden = ending.length === 0;
    if (ending.length === 0) {
      return;
    }
    const names = ending.join(", ");
    const text = trans._n(
      "Keep the allocation %2",
      "Keep the allocations %2",
      ending.length,
      names,
    );
    this._consequence.textContent = box.checked
      ? trans.__("The next kernel of the notebook can use it. Without use it ends after its lease.")
      : trans._n(
          "The move ends the present kernel, and releases its allocation %2.",
          "The move ends the present kernel, and releases its allocations %2.",
          ending.length,
          names,
        );
    if (this._ending.firstChild === null) {
      const label = createElement("label", "jp-Slurm-keep");
      label.append(box, createElement("span", ""));
      const legend = createElement("legend", "", trans.__("Allocations of this kernel"));
      this._ending.append(legend, label, this._consequence);
    }
    box.nextElementSibling?.replaceChildren(text);
  }

  private _row(variable: IVariable): HTMLElement {
    const { name, type, size, why } = variable;
    const [row, label] = [createElement("li", ""), createElement("label", "")];
    const box = createElement("input", "");
    Object.assign(box, { type: "checkbox", disabled: why !== "", name });
    box.checked = this._isSelected(variable);
    box.addEventListener("change", () => {
      this._chosen.set(name, box.checked);
      this._showSum();
    });
    const shown = size === null ? "" : formatSize(Math.max(size, LEAST_SHOWN));
    label.append(
      box,
      createElement("span", "jp-Slurm-variableName", name),
      createElement("span", "jp-Slurm-aside", type),
      createElement("span", "jp-Slurm-aside", why === "" ? shown : ""),
    );
    row.append(label);
    if (why !== "") {
      row.append(createElement("div", "jp-Slurm-aside jp-Slurm-variableReason", why));
    }
    return row;
  }

  private _showSum(): void {
    const { _trans: trans, _survey: survey } = this;
    if (survey === null || survey.variables.length === 0) {
      this._sum.textContent = "";
      return;
    }
    const chosen = survey.variables.filter((each) => this._isSelected(each));
    const bytes = chosen.reduce((sum, { size }) => sum + (size ?? 0), 0);
    const lines = [
      trans._n(
        "%1 variable selected, %2",
        "%1 variables selected, %2",
        chosen.length,
        formatSize(chosen.length === 0 ? 0 : Math.max(bytes, LEAST_SHOWN)),
      ),
    ];
    if (survey.left > 0) {
      lines.push(trans._n("%1 more is not listed.", "%1 more are not listed.", survey.left));
    }
    this._sum.textContent = lines.join(" · ");
  }
}

/** Dialog that closes only when its request was accepted. */
class MoveDialog extends Dialog<IMoveChoice> {
  private _isAccepted = false;
  private _isAsking = false;

  constructor(
    options: Partial<Dialog.IOptions<IMoveChoice>>,
    private readonly _content: MoveBody,
    private readonly _accept: (choice: IMoveChoice) => Promise<string>,
  ) {
    super(options);
  }

  override resolve(index = ACCEPT): void {
    if (index === ACCEPT && !this._isAccepted) {
      void this._ask();
    } else {
      super.resolve(index);
    }
  }

  private async _ask(): Promise<void> {
    if (this._isAsking) {
      return;
    }
    this._isAsking = true;
    this._content.showError("");
    const refusal = await this._accept(this._content.getValue());
    this._isAsking = false;
    if (this.isDisposed) {
      return;
    }
    this._isAccepted = refusal === "";
    if (this._isAccepted) {
      this.resolve(ACCEPT);
    } else {
      this._content.showError(refusal);
    }
  }
}

/** Ask for the kernel and the variables of a move, until the move is requested or the dialog cancelled. */
export async function askForMove(trans: TranslationBundle, question: IMoveQuestion): Promise<void> {
  const body = new MoveBody(trans, question);
  const { title, label, accept } = question;
  const buttons = [Dialog.cancelButton(), Dialog.okButton({ label })];
  const focusNodeSelector = "select, input";
  const options = { title, body, buttons, defaultButton: ACCEPT, focusNodeSelector };
  await new MoveDialog(options, body, accept).launch();
}
