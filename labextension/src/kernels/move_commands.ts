/** Commands that move a notebook to a remote kernel, or request a follow-up allocation for its kernel. */
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
import { confirmEnd } from "../common/jupyterlab/dialogs";
import { CommandIDs } from "../common/identifiers";
import { problemText } from "../common/labels";
import { addToPalette, commandLabel } from "../common/jupyterlab/palette";
import { isSlurmKernel } from "./commands";
import { chooseNotebook } from "./kernel_dialogs";
import { notebookPath, type IContext } from "./kernel_watch";
import type { IKernelApi } from "./model";
import { askForMove, type IMoveQuestion } from "./move_dialog";
import { moveNotice } from "./move_labels";
import { isOver, type IMove, type Moves } from "./move_model";

type Commands = JupyterFrontEnd["commands"];

/**
 * Time for which the end of a cancelled move is shown, in milliseconds; other results are shown until they are
 * dismissed.
 */
const CANCELLED_SHOWN_MS = 8_000;
/** Number of characters from which JupyterLab shortens a notification. */
const MAX_NOTICE_CHARS = 140;

/** Dependencies of the commands. */
export interface IMoveActs {
  readonly api: Pick<IKernelApi, "kernelPlace" | "kernelSpecs">;
  readonly moves: Pick<
    Moves,
    "activeMove" | "begin" | "giveUp" | "lastVariables" | "progress" | "survey"
  >;
  readonly specs: Pick<KernelSpec.IManager, "refreshSpecs" | "specs">;
  readonly sessions: Pick<Session.IManager, "refreshRunning" | "running">;
  readonly commands: Commands;
  readonly trans: TranslationBundle;
  /** The notebook or console in front, if it has a kernel. */
  readonly front: () => IContext | null;
}

/** Return the display name of a kernel. */
export function displayName({ specs }: Pick<KernelSpec.IManager, "specs">, name: string): string {
  return specs?.kernelspecs[name]?.display_name ?? name;
}

async function reportFailure(trans: TranslationBundle, act: () => Promise<void>): Promise<void> {
  try {
    await act();
  } catch (error) {
    const problem = toProblem(error, "Check which kernel the notebook has, then try again.");
    await showErrorMessage(trans.__("The notebook was not moved"), problemText(trans, problem));
  }
}

/** Ask whether a notebook is to stay with its kernel, and cancel its move then. */
export async function confirmGiveUp({ moves, trans }: IMoveActs, move: IMove): Promise<void> {
  const question = trans.__("Keep the present kernel of the notebook?");
  const body = trans.__("%1\nThe allocation that it waits for is released.", moveNotice(move));
  if (await confirmEnd(question, body, trans.__("Continue"), trans.__("Keep"))) {
    await reportFailure(trans, () => moves.giveUp(move));
  }
}

/** Ask for the kernel and the variables of a move, and request it. */
async function moveAsAsked(
  { moves, trans }: IMoveActs,
  notebook: string,
  question: Pick<IMoveQuestion, "about" | "kernels" | "label" | "title">,
): Promise<void> {
  await askForMove(trans, {
    ...question,
    names: moves.lastVariables(notebook),
    survey: (kernel) => moves.survey(notebook, kernel),
    accept: async (choice) => {
      try {
        await moves.begin({ notebook, ...choice });
        return "";
      } catch (error) {
        const problem = toProblem(error, "Check which kernel the notebook has, then try again.");
        return problemText(trans, problem);
      }
    },
  });
}

/** Ask for a kernel and variables, and move the notebook in front. */
async function move(acts: IMoveActs): Promise<void> {
  const { api, commands, trans } = acts;
  const notebook = notebookPath(acts.front());
  if (notebook === null || (await handleActiveMove(acts, notebook))) {
    return;
  }
  const kernels = await api.kernelSpecs();
  const title = trans.__("Move the Notebook to a GPU Kernel");
  if (kernels.length === 0) {
    await offerToAdd(trans, title, commands);
    return;
  }
  const about = trans.__(
    "“%1” keeps its present kernel until the kernel on the node is ready. Then its cells run on the node.",
    PathExt.basename(notebook),
  );
  await moveAsAsked(acts, notebook, { title, about, kernels, label: trans.__("Move") });
}

/** Return whether the notebook moves already; then ask whether it is to stay. */
async function handleActiveMove(acts: IMoveActs, notebook: string): Promise<boolean> {
  const going = acts.moves.activeMove(notebook);
  await (going && confirmGiveUp(acts, going));
  return going !== null;
}

async function offerToAdd(
  trans: TranslationBundle,
  title: string,
  commands: Commands,
): Promise<void> {
  const body = trans.__("There is no GPU kernel yet. “Add as kernel” in the launch form adds one.");
  const buttons = [Dialog.cancelButton(), Dialog.okButton({ label: trans.__("Open the form") })];
  if ((await showDialog({ title, body, buttons })).button.accept) {
    await commands.execute(CommandIDs.launch);
  }
}

/** Ask for variables, and request another allocation for the kernel of a notebook. */
async function followUp(acts: IMoveActs, notebook: string | null): Promise<void> {
  const { trans } = acts;
  if (notebook === null || (await handleActiveMove(acts, notebook))) {
    return;
  }
  const about = trans.__(
    "“%1” keeps its kernel until the new allocation has started. Then it continues in the new one, and the present allocation is released.",
    PathExt.basename(notebook),
  );
  const title = trans.__("Request a Follow-Up Allocation");
  await moveAsAsked(acts, notebook, { title, about, kernels: null, label: trans.__("Request") });
}

/** Return the notebook whose kernel has an allocation; null: the user chose none. */
async function chooseNotebookOf(
  { api, sessions, specs, trans }: IMoveActs,
  cluster: string,
  allocation: string,
): Promise<string | null> {
  const open = [...sessions.running()].filter(
    ({ type, kernel }) => type === "notebook" && kernel && isSlurmKernel(specs, kernel.name),
  );
  const places = await Promise.all(
    open.map(({ kernel }) => api.kernelPlace(kernel?.id ?? "").catch(() => null)),
  );
  const matching = open.filter(
    (_, at) => places[at]?.cluster === cluster && places[at].allocation === allocation,
  );
  if (matching.length === 0) {
    throw new Error(trans.__("No open notebook has a kernel in this allocation."));
  }
  const [title, button] = [trans.__("Request for which notebook?"), trans.__("Continue")];
  const paths = matching.map(({ path }) => path);
  return chooseNotebook(trans, title, button, paths);
}

/** Show the progress of each move in a notification that stays until the move ends. */
export function showMoveNotices({ moves, sessions, specs, trans }: IMoveActs): void {
  const notices = new Map<string, string>();
  const ends = new Map<string, string>(); // the result of the last move of a notebook, until the next one
  moves.progress.connect((_, move) => {
    const message = moveNotice(move);
    const shown = notices.get(move.id);
    if (shown === undefined && specs.specs?.kernelspecs[move.kernel] === undefined) {
      void specs.refreshSpecs(); // a terminal may have added the kernel
    }
    if (!isOver(move)) {
      const stay = {
        label: trans.__("Cancel"),
        caption: trans.__("Keep the present kernel of the notebook"),
        callback: () => void reportFailure(trans, () => moves.giveUp(move)),
      };
      if (shown === undefined) {
        const before = ends.get(move.notebook);
        if (before !== undefined) {
          Notification.dismiss(before);
        }
        const options = { autoClose: false as const, actions: [stay] };
        notices.set(move.id, Notification.emit(message, "in-progress", options));
      } else {
        Notification.update({ id: shown, message }); // the user may have dismissed the notification
      }
      return;
    }
    notices.delete(move.id);
    if (shown !== undefined) {
      Notification.dismiss(shown);
    }
    const type = { done: "success", cancelled: "info" }[move.state] ?? "error";
    // A user who has waited for hours may look elsewhere at the end, and must read which variables were not moved.
    const autoClose = move.state === "cancelled" ? CANCELLED_SHOWN_MS : false;
    const reads = {
      label: trans.__("Details…"),
      caption: trans.__("Show the whole message"),
      callback: () => void showErrorMessage(PathExt.basename(move.notebook), move.text),
    };
    const actions = message.length > MAX_NOTICE_CHARS ? [reads] : [];
    ends.set(move.notebook, Notification.emit(message, type as "error", { autoClose, actions }));
    void sessions.refreshRunning(); // the notebook gets its kernel from there
  });
}

/** Return the action of a notification that requests a follow-up allocation, where one is possible. */
export function followUpActions(
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

/** Add the commands that move the notebook in front, or another one by the allocation of its kernel. */
export function addMoveCommands(acts: IMoveActs, palette: ICommandPalette | null): void {
  const { commands, specs, trans } = acts;
  const isOurs = (): boolean => {
    const context = acts.front();
    return (
      notebookPath(context) !== null && isSlurmKernel(specs, context?.session?.kernel?.name ?? "")
    );
  };
  commands.addCommand(CommandIDs.move, {
    label: (args) => commandLabel(trans, trans.__("Move Notebook to a GPU Kernel…"), args),
    caption: trans.__("Continue in a kernel on a cluster, with selected variables"),
    isEnabled: () => notebookPath(acts.front()) !== null,
    execute: () => reportFailure(trans, () => move(acts)),
  });
  commands.addCommand(CommandIDs.followUp, {
    label: (args) => commandLabel(trans, trans.__("Request a Follow-Up Allocation…"), args),
    caption: trans.__("Continue in another allocation before this one reaches its time limit"),
    isEnabled: ({ allocation }) => allocation !== undefined || isOurs(),
    execute: ({ cluster, allocation }) =>
      reportFailure(trans, async () => {
        const notebook =
          typeof cluster === "string" && typeof allocation === "string"
            ? await chooseNotebookOf(acts, cluster, allocation)
            : notebookPath(acts.front());
        await followUp(acts, notebook);
      }),
  });
  for (const command of [CommandIDs.move, CommandIDs.followUp]) {
    addToPalette(palette, command);
  }
}
