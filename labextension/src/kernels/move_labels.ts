/** What is said of notebooks that move. Everything here is text, never markup. */
import { PathExt } from "@jupyterlab/coreutils";
import type { TranslationBundle } from "@jupyterlab/translation";

import type { IMove } from "./move_model";

/** Return the line of a notice; how far it is, is said by the server. */
export function moveNotice({ notebook, text }: IMove): string {
  return `${PathExt.basename(notebook)}: ${text}`;
}

/**
 * Return the line of the status bar.
 *
 * @param shown - What the kernel is called to which it goes.
 */
export function moveText(trans: TranslationBundle, { state }: IMove, shown: string): string {
  return state === "waiting" ? trans.__("Waiting for %1", shown) : trans.__("Moving to %1", shown);
}

/** Return what more there is to say. */
export function moveAbout(trans: TranslationBundle, { text }: IMove): string {
  return [text, trans.__("Stay with the kernel that it has…")].join("\n");
}
