/** Entries of the command palette: each begins with "Slurm:", also in a search where its category is out of sight. */
import type { ICommandPalette } from "@jupyterlab/apputils";
import type { TranslationBundle } from "@jupyterlab/translation";
import type { ReadonlyPartialJSONObject } from "@lumino/coreutils";
import type { IDisposable } from "@lumino/disposable";

/** Add a command to the palette; without a palette nothing happens. */
export function addToPalette(
  palette: ICommandPalette | null,
  command: string,
  args: ReadonlyPartialJSONObject = {},
): IDisposable | undefined {
  return palette?.addItem({ command, category: "Slurm", args: { ...args, isPalette: true } });
}

/** Return the label of a command, for the palette where the arguments say so. */
export function commandLabel(
  trans: TranslationBundle,
  label: string,
  { isPalette }: ReadonlyPartialJSONObject,
): string {
  return isPalette === true ? trans.__("Slurm: %1", label) : label;
}
