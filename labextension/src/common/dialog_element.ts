/** Parts of dialogs that are not made by React: that draws later, and whoever types at once would type past the first field. */

/** Return an element with text in it: what comes from outside never becomes markup. */
export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  className: string,
  text = "",
): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  node.className = className;
  node.textContent = text;
  return node;
}
