/** The keyboard focus, where the element that has it disappears: a browser leaves it nowhere. */
import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { Widget } from "@lumino/widgets";
import * as React from "react";

/** Elements in which a user types. */
const TYPED = "input, textarea, [contenteditable=true]";

/** Focus the table of the panel around an element, else the panel: the element may be the table itself, which disappears. */
export function focusTable(from: Element): void {
  const panel = from.closest<HTMLElement>(".jp-Slurm-panel");
  const table = panel?.querySelector<HTMLElement>("[role=treegrid]");
  (table && table !== from ? table : panel)?.focus({ preventScroll: true });
}

/** Whether the user types outside an element, as in an editor beside it: the element then leaves the focus there. */
export function isTypedElsewhere(node: Element | null): boolean {
  const { activeElement } = document;
  return Boolean(activeElement?.matches(TYPED) && !node?.contains(activeElement));
}

/** Pass the focus of an element that disappears to the table, else to the panel. */
export function useHandover(node: React.RefObject<HTMLElement>): void {
  React.useLayoutEffect(() => {
    const element = node.current;
    return () => {
      if (element !== null && element === document.activeElement) {
        focusTable(element);
      }
    };
  }, [node]);
}

interface IButtonProps extends React.ButtonHTMLAttributes<HTMLButtonElement> {
  /** Whether the button does nothing now. It is not `disabled`: then it would lose the focus. */
  readonly isOff?: boolean;
  readonly act: () => void;
}

/** A button that may disappear: its focus then passes to the table, else to the panel. */
export function HandoverButton({ isOff = false, act, ...rest }: IButtonProps): React.ReactElement {
  const node = React.useRef<HTMLButtonElement>(null);
  useHandover(node);
  return (
    <button
      ref={node}
      type="button"
      aria-disabled={isOff}
      onClick={() => {
        if (!isOff) {
          act();
        }
      }}
      {...rest}
    />
  );
}

/** When a page closes that has the focus, pass it to the page behind it: JupyterLab shows that page only. */
export function returnFocus({ shell }: JupyterFrontEnd, page: Widget): void {
  page.disposed.connect(() => {
    if (!page.node.contains(document.activeElement)) {
      return;
    }
    void Promise.resolve().then(() => {
      const { currentWidget } = shell;
      if (document.activeElement === document.body && currentWidget?.isVisible) {
        currentWidget.activate();
      }
    });
  });
}
