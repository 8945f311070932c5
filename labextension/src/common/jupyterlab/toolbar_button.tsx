/** A flat button, as in JupyterLab's toolbars. */
import type { LabIcon } from "@jupyterlab/ui-components";
import * as React from "react";

import { HandoverButton } from "./focus";

interface IToolbarButtonProps {
  readonly label: string;
  /** The label for who does not see what the button stands beside. */
  readonly fullLabel?: string;
  readonly title?: string;
  readonly icon?: LabIcon;
  /** Whether the label stands beside the icon; else it is the tooltip. */
  readonly isNamed?: boolean;
  readonly isPressed?: boolean | undefined;
  /** Whether what the button shows is shown. */
  readonly isExpanded?: boolean | undefined;
  readonly isOff?: boolean;
  readonly act: () => void;
}

/** A button with an icon, with its label, or with both. */
export function ToolbarButton({
  label,
  fullLabel = label,
  icon: Icon,
  isNamed = Icon === undefined,
  isPressed,
  isExpanded,
  title,
  isOff = false,
  act,
}: IToolbarButtonProps): React.ReactElement {
  return (
    <HandoverButton
      className="jp-Button jp-mod-minimal jp-ToolbarButtonComponent"
      aria-pressed={isPressed}
      aria-expanded={isExpanded}
      {...(isNamed && fullLabel === label ? {} : { "aria-label": fullLabel })}
      title={isNamed ? title : fullLabel}
      {...{ act, isOff }}
    >
      {Icon && <Icon.react tag="span" aria-hidden="true" />}
      {isNamed && label}
    </HandoverButton>
  );
}
