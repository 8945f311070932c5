/** Commands for the selected jobs of a panel, from the menu, the palette or by a key. */
import type { JupyterFrontEnd } from "@jupyterlab/application";
import { Clipboard, type ICommandPalette } from "@jupyterlab/apputils";
import type { TranslationBundle } from "@jupyterlab/translation";
import {
  copyIcon,
  jupyterIcon,
  launchIcon,
  terminalIcon,
  type LabIcon,
} from "@jupyterlab/ui-components";

import { ACTS, type Act, type IJob } from "../../common/api/objects";
import { referenceOf } from "../../common/api/records";
import { CommandIDs } from "../../common/identifiers";
import { isAllowed, stateKind } from "../../common/job_states";
import type { IJobsModel } from "../../common/jobs_model";
import { contextIcon, entryIcon } from "../../common/jupyterlab/menu_icons";
import { addToPalette, commandLabel } from "../../common/jupyterlab/palette";
import { ACT_ICONS } from "./act_icons";
import { openJob } from "../commands";
import { actOnJobs } from "./confirmed_actions";
import type { JobsPanel } from "../panel";
import { asCsv, asJson } from "../table/columns";
import type { JobsTable } from "../table/table_model";

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
 * Add the commands that open the selected job, apply an action to those that allow it, and copy them.
 *
 * @param panels - The panels; the commands use the visible one in which jobs were selected last.
 */
export function addSelectionCommands(
  commands: JupyterFrontEnd["commands"],
  palette: ICommandPalette | null,
  model: IJobsModel,
  trans: TranslationBundle,
  panels: () => readonly JobsPanel[],
): void {
  const latest = (): JobsTable | undefined =>
    panels()
      .filter(({ isVisible, table }) => isVisible && table.marked.length > 0)
      .map(({ table }) => table)
      .sort((a, b) => b.lastUse - a.lastUse)[0];
  const marked = (): readonly IJob[] => latest()?.marked ?? [];
  const target = (): IJob | null => latest()?.target ?? null;
  const targets = (act: unknown): readonly IJob[] =>
    marked().filter((job) => isAllowed(act as Act, job) && model.pendingAct(job) === null);
  commands.addCommand(CommandIDs.act, {
    label: (args) => commandLabel(trans, selectionLabel(trans, args["act"] as Act), args),
    icon: (args) => contextIcon(ACT_ICONS[args["act"] as Act], args),
    isEnabled: ({ act }) => targets(act).length > 0,
    execute: ({ act }) => actOnJobs(trans, model, act as Act, targets(act)),
  });
  commands.addCommand(CommandIDs.openSelected, {
    label: trans.__("Open Job"),
    icon: entryIcon(launchIcon),
    isEnabled: () => target() !== null,
    execute: async () => {
      const job = target();
      await (job && !job.isForeign && openJob(commands, job));
    },
  });
  const running = (): IJob | undefined => {
    const job = target();
    return job && !job.isForeign && stateKind(job.state) === "running" ? job : undefined;
  };
  const inRunning = (command: string, icon: LabIcon, label: string, caption: string) => ({
    label,
    caption,
    icon: entryIcon(icon),
    isEnabled: () => running() !== undefined,
    isVisible: () => commands.hasCommand(command),
    execute: async () => {
      const job = running();
      const reference = job && referenceOf(job);
      if (job && reference) {
        await commands.execute(command, { cluster: job.cluster, job: reference });
      }
    },
  });
  commands.addCommand(
    CommandIDs.terminalInSelected,
    inRunning(
      CommandIDs.terminal,
      terminalIcon,
      trans.__("Open Terminal"),
      trans.__("Open a terminal inside the running job"),
    ),
  );
  commands.addCommand(
    CommandIDs.launchInSelected,
    inRunning(
      CommandIDs.launchInJob,
      jupyterIcon,
      trans.__("Start JupyterLab in Job"),
      trans.__("Start a session inside the running job"),
    ),
  );
  commands.addCommand(CommandIDs.copy, {
    label: (args) => {
      const isJson = args["format"] === "json";
      const [json, csv] = [
        trans.__("Copy Selected Jobs as JSON"),
        trans.__("Copy Selected Jobs as CSV"),
      ];
      return commandLabel(trans, isJson ? json : csv, args);
    },
    icon: (args) => contextIcon(copyIcon, args),
    isEnabled: () => marked().length > 0,
    execute: ({ format }) => {
      Clipboard.copyToSystem((format === "json" ? asJson : asCsv)(marked()));
    },
  });
  for (const act of ACTS) {
    addToPalette(palette, CommandIDs.act, { act });
  }
  for (const format of ["csv", "json"]) {
    addToPalette(palette, CommandIDs.copy, { format });
  }
}
