/** The commands for the jobs that are selected in a panel, from the menu, the palette or by a key. */
import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { ICommandPalette } from "@jupyterlab/apputils";
import type { TranslationBundle } from "@jupyterlab/translation";

import { actOn, CommandIDs } from "./commands";
import type { JobsPanel } from "./components/panel";
import { isAllowed } from "./states";
import type { Act, IJob, IJobsModel } from "./tokens";

const ACTS: readonly Act[] = ["cancel", "hold", "release", "requeue"];

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
  }
}

/**
 * Add the command that does something with the selected jobs, as far as that can be done with each.
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
  const meant = (act: unknown): readonly IJob[] => {
    const seen = panels().filter(({ isVisible }) => isVisible);
    const marked = seen.find(({ table }) => table.marked.length > 0)?.table.marked ?? [];
    return marked.filter((job) => isAllowed(act as Act, job) && model.acting(job) === null);
  };
  commands.addCommand(CommandIDs.act, {
    label: ({ act }) => label(trans, act as Act),
    isEnabled: ({ act }) => meant(act).length > 0,
    execute: ({ act }) => actOn(trans, model, act as Act, meant(act)),
  });
  for (const act of ACTS) {
    palette?.addItem({ command: CommandIDs.act, category: "Slurm", args: { act } });
  }
}
