/** Labels of moves of notebooks. All values are text, never markup. */
import { PathExt } from "@jupyterlab/coreutils";
import type { TranslationBundle } from "@jupyterlab/translation";

import type { IMove } from "./move_model";

/** Return the text of a notification; the server describes the progress. */
export function moveNotice({ notebook, text }: IMove): string {
  return `${PathExt.basename(notebook)}: ${text}`;
}

/**
 * Return the text of the item in the status bar.
 *
 * @param shown - The display name of the new kernel.
 */
export function moveText(trans: TranslationBundle, { state }: IMove, shown: string): string {
  return state === "waiting" ? trans.__("Waiting for %1", shown) : trans.__("Moving to %1", shown);
}

/** Return the tooltip. */
export function moveAbout(trans: TranslationBundle, { text }: IMove): string {
  return [text, trans.__("Keep the present kernel…")].join("\n");
}
