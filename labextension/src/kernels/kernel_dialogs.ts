/** Dialogs that ask for a kernel or a notebook. */
import type { TranslationBundle } from "@jupyterlab/translation";

import { chooseOne } from "../common/jupyterlab/dialogs";
import type { IKernelSpec } from "./model";

export function chooseKernel(
  trans: TranslationBundle,
  title: string,
  okLabel: string,
  specs: readonly IKernelSpec[],
): Promise<IKernelSpec | null> {
  return chooseOne(title, trans.__("Kernel"), okLabel, specs, ({ display_name: name }) => name);
}

/** Ask for one of the notebooks with these paths. */
export function chooseNotebook(
  trans: TranslationBundle,
  title: string,
  okLabel: string,
  paths: readonly string[],
): Promise<string | null> {
  return chooseOne(title, trans.__("Notebook"), okLabel, paths, (path) => path);
}
