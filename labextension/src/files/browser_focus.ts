/** Which file browser the commands of JupyterLab are for: that of the clusters only while the person works in it. */
import type { Widget } from "@lumino/widgets";

/** Where a click or the focus does not end the work in a file browser: its context menu, and the dialogs of its commands. */
const PARTS = ".lm-Menu, .jp-Dialog";

/**
 * Make the own file browser of JupyterLab the one of its commands again, as soon as the person works anywhere else: new
 * notebooks are made in it.
 *
 * @param browser - The file browser of the clusters.
 * @param own - The own file browser of JupyterLab. Its tracker follows the focus, and has no other way to be told.
 */
export function keepOwnBrowser(browser: Widget, own: Widget): void {
  const giveBack = (): void => {
    own.node.dispatchEvent(new FocusEvent("focus"));
    own.node.dispatchEvent(new FocusEvent("blur"));
  };
  const follow = ({ target }: Event): void => {
    if (target instanceof Element && !browser.node.contains(target) && !target.closest(PARTS)) {
      giveBack();
    }
  };
  for (const event of ["pointerdown", "focusin"]) {
    document.addEventListener(event, follow, true);
  }
  giveBack();
}
