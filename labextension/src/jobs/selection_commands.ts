/** The commands for the jobs that are selected in a panel, from the menu, the palette or by a key. */
import type { JupyterFrontEnd } from "@jupyterlab/application";
import { Clipboard, type ICommandPalette } from "@jupyterlab/apputils";
import type { TranslationBundle } from "@jupyterlab/translation";

import { ACTS, type Act, type IJob } from "../common/api/objects";
import { CommandIDs } from "../common/identifiers";
import { isAllowed } from "../common/job_states";
import type { IJobsModel } from "../common/jobs_model";
import { actOn } from "./confirmed_actions";
import type { JobsPanel } from "./panel";
import { asCsv, asJson } from "./table/columns";

function label(trans: TranslationBundle, act: Act): string {
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
 * Add the command that does something with the selected jobs, as far as that can be done with each, and the one that copies.
 *
 * @param panels - Those that there are; the first that is seen and has a selection is meant.
 */
export function addActing(
  commands: JupyterFrontEnd["commands"],
  palette: ICommandPalette | null,
  model: IJobsModel,
  trans: TranslationBundle,
  panels: () => readonly JobsPanel[],
): void {
  const marked = (): readonly IJob[] => {
    const seen = panels().filter(({ isVisible }) => isVisible);
    return seen.find(({ table }) => table.marked.length > 0)?.table.marked ?? [];
  };
  const meant = (act: unknown): readonly IJob[] =>
    marked().filter((job) => isAllowed(act as Act, job) && model.acting(job) === null);
  commands.addCommand(CommandIDs.act, {
    label: ({ act }) => label(trans, act as Act),
    isEnabled: ({ act }) => meant(act).length > 0,
    execute: ({ act }) => actOn(trans, model, act as Act, meant(act)),
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
