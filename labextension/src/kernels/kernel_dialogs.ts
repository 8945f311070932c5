/** Dialogs that ask for a kernel or a notebook. */
import type { TranslationBundle } from "@jupyterlab/translation";

import { chosen } from "../common/dialogs";
import type { IKernelSpec } from "./model";

export function chooseKernel(
  trans: TranslationBundle,
  title: string,
  okLabel: string,
  specs: readonly IKernelSpec[],
): Promise<IKernelSpec | null> {
  return chosen(title, trans.__("Kernel"), okLabel, specs, ({ display_name: name }) => name);
}

/** Ask which of the notebooks with these paths is meant. */
export function chooseNotebook(
  trans: TranslationBundle,
  title: string,
  okLabel: string,
  paths: readonly string[],
): Promise<string | null> {
  return chosen(title, trans.__("Notebook"), okLabel, paths, (path) => path);
}
