/** Which file browser the commands of JupyterLab are for: that of the clusters only while the user works in it. */
import type { IWidgetTracker } from "@jupyterlab/apputils";
import type { Widget } from "@lumino/widgets";

/** Where a click or the focus does not end the work in a file browser: its context menu, and the dialogs of its commands. */
const PARTS = ".lm-Menu, .jp-Dialog";

/**
 * Make the own file browser of JupyterLab the one of its commands again, as soon as the user works anywhere else: new
 * notebooks are made in it.
 *
 * @param tracker - The tracker of the file browsers. It follows the focus, has no other way to be told, and takes a new
 * file browser for the current one.
 * @param browser - The file browser of the clusters.
 * @param own - The own file browser of JupyterLab.
 */
export function keepOwnBrowser(tracker: IWidgetTracker, browser: Widget, own: Widget): void {
  let isGivingBack = false;
  const giveBack = (): void => {
    if (isGivingBack) {
      return;
    }
    isGivingBack = true;
    // Both: the tracker notices nothing if the last focus that it has seen was in its own file browser.
    for (const { node } of [browser, own]) {
      node.dispatchEvent(new FocusEvent("focus"));
      node.dispatchEvent(new FocusEvent("blur"));
    }
    isGivingBack = false;
  };
  const follow = ({ target }: Event): void => {
    const isElsewhere =
      target instanceof Element && !browser.node.contains(target) && !target.closest(PARTS);
    if (isElsewhere && tracker.currentWidget === browser) {
      giveBack();
    }
  };
  for (const event of ["pointerdown", "focusin"]) {
    document.addEventListener(event, follow, true);
  }
  const check = (): void => {
    if (tracker.currentWidget === browser && !browser.node.contains(document.activeElement)) {
      giveBack();
    }
  };
  tracker.currentChanged.connect(check);
  check();
}
