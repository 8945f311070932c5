/** Icons of the actions on jobs. */
import { historyIcon, LabIcon, redoIcon, runIcon, stopIcon } from "@jupyterlab/ui-components";

import type { Act } from "../../common/api/objects";

/** JupyterLab 4.2 has no such icon. */
const pauseIcon = new LabIcon({
  name: "jupyter-slurm:pause",
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" width="16">
    <path class="jp-icon3" fill="#616161" d="M7 6h4v12H7z M13 6h4v12h-4z"/></svg>`,
});

export const ACT_ICONS: Readonly<Record<Act, LabIcon>> = {
  cancel: stopIcon,
  hold: pauseIcon,
  release: runIcon,
  requeue: redoIcon,
  limit: historyIcon,
};
