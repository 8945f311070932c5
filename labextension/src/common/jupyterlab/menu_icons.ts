/** Icons of entries of a context menu. The main menu and the palette show the same commands without icons. */
import type { LabIcon } from "@jupyterlab/ui-components";
import type { ReadonlyPartialJSONObject } from "@lumino/coreutils";

/** Return an icon in the size of those in JupyterLab's context menus. */
export function entryIcon(icon: LabIcon): LabIcon {
  return icon.bindprops({ stylesheet: "menuItem" });
}

/** Return the icon of a command for the context menu, where the arguments say so. */
export function contextIcon(
  icon: LabIcon,
  { isContext }: ReadonlyPartialJSONObject,
): LabIcon | undefined {
  return isContext === true ? entryIcon(icon) : undefined;
}
