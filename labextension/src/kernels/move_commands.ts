/** What moves a notebook to a kernel on a node, or asks for another allocation of the one that it has. */
import type { JupyterFrontEnd } from "@jupyterlab/application";
import {
  Dialog,
  Notification,
  showDialog,
  showErrorMessage,
  type ICommandPalette,
} from "@jupyterlab/apputils";
import { PathExt } from "@jupyterlab/coreutils";
import type { KernelSpec, Session } from "@jupyterlab/services";
import type { TranslationBundle } from "@jupyterlab/translation";

import type { IJob } from "../common/api/objects";
import { toProblem } from "../common/api/problem";
import { confirmed } from "../common/dialogs";
import { CommandIDs } from "../common/identifiers";
import { problemText } from "../common/labels";
import { startsHere } from "./commands";
import { chooseNotebook } from "./kernel_dialogs";
import { notebookOf, type IContext } from "./kernel_watch";
import type { IKernelApi, IKernelSpec } from "./model";
import { MoveBody, type IWish } from "./move_dialog";
import { moveNotice } from "./move_labels";
import { isOver, type IMove, type Moves } from "./move_model";

type Commands = JupyterFrontEnd["commands"];

/** How long it is said that a move was given up, in milliseconds; what else came of it is said until it is put away. */
const SEEN = 8_000;
/** From how many characters on JupyterLab cuts a notice. */
const SHOWN = 140;

/** What these acts take from their surroundings. */
export interface IMoveActs {
  readonly api: Pick<IKernelApi, "kernelPlace" | "kernelSpecs">;
  readonly moves: Pick<Moves, "begin" | "giveUp" | "namedLast" | "of" | "told">;
  readonly specs: Pick<KernelSpec.IManager, "refreshSpecs" | "specs">;
  readonly sessions: Pick<Session.IManager, "refreshRunning" | "running">;
  readonly commands: Commands;
  readonly trans: TranslationBundle;
  /** What is in front, if that has a kernel. */
  readonly front: () => IContext | null;
}

/** Return what a kernel is called. */
export function shownAs({ specs }: Pick<KernelSpec.IManager, "specs">, name: string): string {
  return specs?.kernelspecs[name]?.display_name ?? name;
}

async function tried(trans: TranslationBundle, act: () => Promise<void>): Promise<void> {
  try {
    await act();
  } catch (error) {
    const problem = toProblem(error, "Look which kernel the notebook has, then try again.");
    await showErrorMessage(trans.__("The notebook was not moved"), problemText(trans, problem));
  }
}

/** Ask whether a notebook is to stay where it is. */
export async function giveUp({ moves, trans }: IMoveActs, move: IMove): Promise<void> {
  const question = trans.__("Stay with the kernel that the notebook has?");
  const body = trans.__("%1\nThe allocation that it waits for is given back.", moveNotice(move));
  if (await confirmed(question, body, trans.__("Go on"), trans.__("Stay"))) {
    await tried(trans, () => moves.giveUp(move));
  }
}

/** What a dialog was answered with; null: it was not. */
async function wished(
  { moves, trans }: IMoveActs,
  notebook: string,
  kernels: readonly IKernelSpec[] | null,
  { title, about, label }: Record<"title" | "about" | "label", string>,
): Promise<IWish | null> {
  const buttons = [Dialog.cancelButton(), Dialog.okButton({ label })];
  const body = new MoveBody(trans, about, kernels, moves.namedLast(notebook));
  const { button, value } = await showDialog({
    ...{ title, body, buttons },
    focusNodeSelector: "select, input",
  });
  return button.accept ? value : null;
}

/** Ask which kernel and which variables, and have the notebook in front moved. */
async function move(acts: IMoveActs): Promise<void> {
  const { api, moves, commands, trans } = acts;
  const notebook = notebookOf(acts.front());
  if (notebook === null || (await isGoing(acts, notebook))) {
    return;
  }
  const kernels = await api.kernelSpecs();
  const title = trans.__("Move the Notebook to a GPU Kernel");
  if (kernels.length === 0) {
    await offerToAdd(trans, title, commands);
    return;
  }
  const about = trans.__(
    "“%1” works here until the kernel is there. Its cells run on the node from then on.",
    PathExt.basename(notebook),
  );
  const wish = await wished(acts, notebook, kernels, { title, about, label: trans.__("Move") });
  if (wish !== null) {
    await moves.begin({ notebook, ...wish });
  }
}

/** Whether it is on its way already; then it is asked whether it is to stay. */
async function isGoing(acts: IMoveActs, notebook: string): Promise<boolean> {
  const going = acts.moves.of(notebook);
  await (going && giveUp(acts, going));
  return going !== null;
}

async function offerToAdd(
  trans: TranslationBundle,
  title: string,
  commands: Commands,
): Promise<void> {
  const body = trans.__(
    "There is no GPU kernel yet. The form of a GPU notebook adds one: “Add as kernel”.",
  );
  const buttons = [Dialog.cancelButton(), Dialog.okButton({ label: trans.__("Open the form") })];
  if ((await showDialog({ title, body, buttons })).button.accept) {
    await commands.execute(CommandIDs.launch);
  }
}

/** Ask which variables, and for another allocation of the kernel that a notebook has. */
async function followUp(acts: IMoveActs, notebook: string | null): Promise<void> {
  const { moves, trans } = acts;
  if (notebook === null || (await isGoing(acts, notebook))) {
    return;
  }
  const about = trans.__(
    "“%1” works on until another allocation is there, and goes on in that. The one that it has is given back then.",
    PathExt.basename(notebook),
  );
  const title = trans.__("Ask for a Follow-Up Allocation");
  const wish = await wished(acts, notebook, null, { title, about, label: trans.__("Ask") });
  if (wish !== null) {
    await moves.begin({ notebook, ...wish });
  }
}

/** Return the notebook whose kernel has an allocation; null: there is none, or the person chose none. */
async function notebookIn(
  { api, sessions, specs, trans }: IMoveActs,
  cluster: string,
  allocation: string,
): Promise<string | null> {
  const open = [...sessions.running()].filter(
    ({ type, kernel }) => type === "notebook" && kernel && startsHere(specs, kernel.name),
  );
  const places = await Promise.all(
    open.map(({ kernel }) => api.kernelPlace(kernel?.id ?? "").catch(() => null)),
  );
  const there = open.filter(
    (_, at) => places[at]?.cluster === cluster && places[at].allocation === allocation,
  );
  if (there.length === 0) {
    throw new Error(trans.__("No open notebook has a kernel in this allocation."));
  }
  const [title, button] = [trans.__("Ask for which notebook?"), trans.__("Go on")];
  const paths = there.map(({ path }) => path);
  return chooseNotebook(trans, title, button, paths);
}

/** Tell how far each notebook is, in a notice that stays until it is over. */
export function tellMoves({ moves, sessions, specs, trans }: IMoveActs): void {
  const notices = new Map<string, string>();
  const ends = new Map<string, string>(); // what became of the last move of a notebook: until there is another one
  moves.told.connect((_, move) => {
    const message = moveNotice(move);
    const shown = notices.get(move.id);
    if (shown === undefined && specs.specs?.kernelspecs[move.kernel] === undefined) {
      void specs.refreshSpecs(); // it was added by a terminal
    }
    if (!isOver(move)) {
      const stay = {
        label: trans.__("Give up"),
        caption: trans.__("Stay with the kernel that the notebook has"),
        callback: () => void tried(trans, () => moves.giveUp(move)),
      };
      if (shown === undefined) {
        const before = ends.get(move.notebook);
        if (before !== undefined) {
          Notification.dismiss(before);
        }
        const options = { autoClose: false as const, actions: [stay] };
        notices.set(move.id, Notification.emit(message, "in-progress", options));
      } else {
        Notification.update({ id: shown, message }); // it may have been put away
      }
      return;
    }
    notices.delete(move.id);
    if (shown !== undefined) {
      Notification.dismiss(shown);
    }
    const type = { done: "success", cancelled: "info" }[move.state] ?? "error";
    // Who has waited for hours may look elsewhere when it is there, and is to read what did not come along.
    const autoClose = move.state === "cancelled" ? SEEN : false;
    const reads = {
      label: trans.__("Read all…"),
      caption: trans.__("Show all that there is to say of it"),
      callback: () => void showErrorMessage(PathExt.basename(move.notebook), move.text),
    };
    const actions = message.length > SHOWN ? [reads] : [];
    ends.set(move.notebook, Notification.emit(message, type as "error", { autoClose, actions }));
    void sessions.refreshRunning(); // the notebook learns of its kernel from there
  });
}

/** What asks for another allocation from a notice, where one may be asked for. */
export function followUps(
  trans: TranslationBundle,
  commands: Commands,
  { isNearEnd, job }: { readonly isNearEnd: boolean; readonly job: IJob | null },
): Notification.IAction[] {
  if (!isNearEnd || job === null || !commands.hasCommand(CommandIDs.followUp)) {
    return [];
  }
  const args = { cluster: job.cluster, allocation: job.key };
  const callback = (): void => void commands.execute(CommandIDs.followUp, args);
  return [{ label: trans.__("Follow-up allocation…"), callback }];
}

/** The commands that move the notebook in front, or another one by the allocation of its kernel. */
export function addMoveCommands(acts: IMoveActs, palette: ICommandPalette | null): void {
  const { commands, specs, trans } = acts;
  const isOurs = (): boolean => {
    const context = acts.front();
    return notebookOf(context) !== null && startsHere(specs, context?.session?.kernel?.name ?? "");
  };
  commands.addCommand(CommandIDs.move, {
    label: trans.__("Move Notebook to a GPU Kernel…"),
    caption: trans.__("Go on in a kernel on a cluster, with chosen variables"),
    isEnabled: () => notebookOf(acts.front()) !== null,
    execute: () => tried(trans, () => move(acts)),
  });
  commands.addCommand(CommandIDs.followUp, {
    label: trans.__("Ask for a Follow-Up Allocation…"),
    caption: trans.__("Go on in another allocation before this one reaches its time limit"),
    isEnabled: ({ allocation }) => allocation !== undefined || isOurs(),
    execute: ({ cluster, allocation }) =>
      tried(trans, async () => {
        const notebook =
          typeof cluster === "string" && typeof allocation === "string"
            ? await notebookIn(acts, cluster, allocation)
            : notebookOf(acts.front());
        await followUp(acts, notebook);
      }),
  });
  for (const command of [CommandIDs.move, CommandIDs.followUp]) {
    palette?.addItem({ command, category: "Slurm" });
  }
}
