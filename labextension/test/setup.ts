/** What jsdom lacks and JupyterLab's packages ask for when they are imported. */
Object.assign(globalThis, {
  DragEvent: class extends Event {},
  matchMedia: () => ({ matches: false, addEventListener: () => undefined }),
  requestIdleCallback: (callback: () => void) => setTimeout(callback),
});
