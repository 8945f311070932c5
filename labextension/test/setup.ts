import { vi } from "vitest";

/** What jsdom lacks and JupyterLab's packages ask for when they are imported. */
Object.assign(globalThis, {
  DragEvent: class extends Event {},
  matchMedia: () => ({ matches: false, addEventListener: () => undefined }),
  requestIdleCallback: (callback: () => void) => setTimeout(callback),
});

/** It lays nothing out: every element is as large as a table that shows all rows of a test. */
for (const [name, value] of [
  ["clientHeight", 2000],
  ["clientWidth", 1000],
] as const) {
  if (typeof Element !== "undefined") {
    Object.defineProperty(Element.prototype, name, { configurable: true, value });
  }
}

/** Nothing is scrolled, either. */
if (typeof Element !== "undefined") {
  Element.prototype.scrollIntoView = () => undefined;
}

/** The second that vitest waits for a condition is short for a busy computer. */
const { waitFor } = vi;
vi.waitFor = (check, options) =>
  waitFor(check, typeof options === "number" ? options : { timeout: 30_000, ...options });
