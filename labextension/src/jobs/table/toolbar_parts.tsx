/** Parts of the toolbars of the table of jobs: buttons with an icon, and menus. */
import type { TranslationBundle } from "@jupyterlab/translation";
import { caretDownEmptyIcon, type LabIcon } from "@jupyterlab/ui-components";
import * as React from "react";

import type { Act, IJob } from "../../common/api/objects";
import type { JobsTable } from "./table_model";

export interface IToolbarActs {
  readonly act: (act: Act, jobs: readonly IJob[]) => void;
  readonly write: (text: string) => void;
  /** Open the panel in the main area, where it is in the side bar. */
  readonly widen?: () => void;
}

export interface IToolbarProps {
  readonly table: JobsTable;
  readonly trans: TranslationBundle;
  readonly acts: IToolbarActs;
  /** Width of the panel in pixels; 0: unknown. */
  readonly width: number;
  /** Whether there is room for icons and a list of two-line rows only. */
  readonly isNarrow: boolean;
}

interface IMenuProps extends React.PropsWithChildren {
  readonly name: string;
  /** Shown instead of the name. */
  readonly icon?: LabIcon;
  /** Whether a click on one of its buttons closes it. */
  readonly closes?: boolean;
}

/** A box that opens below its name, and closes with Escape. */
export function Menu({
  name,
  icon: Icon,
  children,
  closes = false,
}: IMenuProps): React.ReactElement {
  return (
    <details
      className="jp-Slurm-menu"
      onClick={(event) => {
        const menu = event.currentTarget;
        if (closes && (event.target as Element).closest("button") !== null) {
          if (menu.contains(document.activeElement)) {
            menu.querySelector("summary")?.focus();
          }
          menu.open = false;
        }
      }}
      onKeyDown={(event) => {
        if (event.key === "Escape") {
          event.currentTarget.open = false;
          event.currentTarget.querySelector("summary")?.focus();
        }
      }}
    >
      <summary
        className="jp-Button jp-mod-minimal jp-ToolbarButtonComponent"
        {...(Icon ? { "aria-label": name, title: name } : {})}
      >
        {Icon ? (
          <Icon.react tag="span" aria-hidden="true" />
        ) : (
          <>
            {name}
            <caretDownEmptyIcon.react tag="span" aria-hidden="true" />
          </>
        )}
      </summary>
      <div>{children}</div>
    </details>
  );
}
