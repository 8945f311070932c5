/** Dialogs that several features use: the choice of one item, the confirmation of an end, and elements with plain text. */
import { Dialog, InputDialog, showDialog } from "@jupyterlab/apputils";
import type { TranslationBundle } from "@jupyterlab/translation";
import { Widget } from "@lumino/widgets";

import type { ICluster } from "../api/objects";
import { clusterName } from "../labels";

/** Ask the user to choose one of several items; without a dialog where there is only one. Null: none. */
export async function chooseOne<T>(
  title: string,
  label: string,
  okLabel: string,
  all: readonly T[],
  name: (one: T) => string,
): Promise<T | null> {
  if (all.length < 2) {
    return all[0] ?? null;
  }
  const items = all.map(name);
  const { value } = await InputDialog.getItem({ title, label, okLabel, items });
  return value === null ? null : (all[items.indexOf(value)] ?? null);
}

export function chooseCluster(
  trans: TranslationBundle,
  title: string,
  okLabel: string,
  clusters: readonly ICluster[],
): Promise<ICluster | null> {
  return chooseOne(title, trans.__("Cluster"), okLabel, clusters, clusterName);
}

/**
 * Ask for a confirmation before something ends; Enter chooses the button that keeps it.
 *
 * @param items - What ends, one a line; a long list scrolls.
 */
export async function confirmEnd(
  title: string,
  body: string,
  keep: string,
  end: string,
  items: readonly string[] = [],
): Promise<boolean> {
  const buttons = [Dialog.cancelButton({ label: keep }), Dialog.warnButton({ label: end })];
  const content = items.length === 0 ? body : new Widget({ node: listNode(body, items) });
  const result = await showDialog({ title, body: content, defaultButton: 0, buttons });
  return result.button.accept;
}

/** Return a text with a list below it, for a dialog. The list takes the focus by Tab, so that keys scroll it. */
export function listNode(text: string, items: readonly string[]): HTMLElement {
  const node = createElement("div", "jp-Slurm-confirm");
  const list = createElement("ul", "jp-Slurm-confirmList");
  list.tabIndex = 0;
  list.setAttribute("aria-label", text);
  list.append(...items.map((item) => createElement("li", "", item)));
  node.append(createElement("p", "", text), list);
  return node;
}

/**
 * Return an element with text in it. Text from outside never becomes markup.
 *
 * Dialogs with fields are not made by React: React draws later, and a user who types at once would type past the first field.
 */
export function createElement<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  className: string,
  text = "",
): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  node.className = className;
  node.textContent = text;
  return node;
}
