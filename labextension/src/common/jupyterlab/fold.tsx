/** A part that folds, and which of them are open, also after the parts were drawn anew. */
import { caretRightIcon } from "@jupyterlab/ui-components";
import * as React from "react";

/** The names of the open folds of a panel, which keeps them while it is hidden. */
export const FoldsContext = React.createContext(new Set<string>());

/** The head of a fold, with the triangle of JupyterLab's side bar in place of the browser's. */
export function FoldHead({ children }: React.PropsWithChildren): React.ReactElement {
  return (
    <summary className="jp-Slurm-foldHead">
      <caretRightIcon.react tag="span" aria-hidden="true" />
      {children}
    </summary>
  );
}

interface IProps {
  /** Name among the folds of the panel. */
  readonly name: string;
  readonly title: string;
  readonly className?: string;
}

/** A fold, which has no content while it is closed. */
export function Fold(props: React.PropsWithChildren<IProps>): React.ReactElement {
  const { name, title, className, children } = props;
  const folds = React.useContext(FoldsContext);
  const [isOpen, setOpen] = React.useState(folds.has(name));
  return (
    <details
      className={className}
      open={isOpen}
      onToggle={({ target, currentTarget }) => {
        if (target !== currentTarget) {
          return; // of a fold inside
        }
        setOpen(currentTarget.open);
        folds[currentTarget.open ? "add" : "delete"](name);
      }}
    >
      <FoldHead>{title}</FoldHead>
      {isOpen && children}
    </details>
  );
}
