/** Commands for the selected jobs of a panel, from the menu, the palette or by a key. */
import type { JupyterFrontEnd } from "@jupyterlab/application";
import { Clipboard, type ICommandPalette } from "@jupyterlab/apputils";
import type { TranslationBundle } from "@jupyterlab/translation";

import { ACTS, type Act, type IJob } from "../common/api/objects";
import { CommandIDs } from "../common/identifiers";
import { isAllowed } from "../common/job_states";
import type { IJobsModel } from "../common/jobs_model";
import { actOnJobs } from "./confirmed_actions";
import type { JobsPanel } from "./panel";
import { asCsv, asJson } from "./table/columns";

function selectionLabel(trans: TranslationBundle, act: Act): string {
  switch (act) {
    case "cancel":
      return trans.__("Cancel Selected Jobs");
    case "hold":
      return trans.__("Hold Selected Jobs");
    case "release":
      return trans.__("Release Selected Jobs");
    case "requeue":
      return trans.__("Requeue Selected Jobs");
    case "limit":
      return trans.__("Set the Time Limit of Selected Jobs…");
  }
}

/**
 * Add the command that applies an action to the selected jobs that allow it, and the one that copies them.
 *
 * @param panels - The panels; the commands use the first visible one with a selection.
 */
export function addSelectionCommands(
  commands: JupyterFrontEnd["commands"],
  palette: ICommandPalette | null,
  model: IJobsModel,
  trans: TranslationBundle,
  panels: () => readonly JobsPanel[],
): void {
  const marked = (): readonly IJob[] => {
    const visible = panels().filter(({ isVisible }) => isVisible);
    return visible.find(({ table }) => table.marked.length > 0)?.table.marked ?? [];
  };
  const targets = (act: unknown): readonly IJob[] =>
    marked().filter((job) => isAllowed(act as Act, job) && model.pendingAct(job) === null);
  commands.addCommand(CommandIDs.act, {
    label: ({ act }) => selectionLabel(trans, act as Act),
    isEnabled: ({ act }) => targets(act).length > 0,
    execute: ({ act }) => actOnJobs(trans, model, act as Act, targets(act)),
  });
  commands.addCommand(CommandIDs.copy, {
    label: ({ format }) =>
      format === "json"
        ? trans.__("Copy Selected Jobs as JSON")
        : trans.__("Copy Selected Jobs as CSV"),
    isEnabled: () => marked().length > 0,
    execute: ({ format }) => {
      Clipboard.copyToSystem((format === "json" ? asJson : asCsv)(marked()));
    },
  });
  for (const act of ACTS) {
    palette?.addItem({ command: CommandIDs.act, category: "Slurm", args: { act } });
  }
  for (const format of ["csv", "json"]) {
    palette?.addItem({ command: CommandIDs.copy, category: "Slurm", args: { format } });
  }
}
