/** Plugin of the panel in the side bar and in the main area. */
import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin,
} from "@jupyterlab/application";
import { Clipboard, ICommandPalette, MainAreaWidget, WidgetTracker } from "@jupyterlab/apputils";
import { ILauncher } from "@jupyterlab/launcher";
import { ISettingRegistry } from "@jupyterlab/settingregistry";
import { IStateDB } from "@jupyterlab/statedb";
import { ITranslator, nullTranslator, type TranslationBundle } from "@jupyterlab/translation";
import type { ReadonlyPartialJSONObject } from "@lumino/coreutils";

import { AgentApi } from "../agent_api/agent_api";
import { referenceOf } from "../common/api/records";
import { CommandIDs, DOMAIN } from "../common/identifiers";
import { IJobsModel } from "../common/jobs_model";
import { addPage, hasMainArea } from "../common/jupyterlab/main_area";
import { addToPalette, commandLabel } from "../common/jupyterlab/palette";
import { loadSettings } from "../common/jupyterlab/setting_texts";
import { AllJobs } from "../jobs/all_jobs";
import { actOnJobs } from "../jobs/actions/confirmed_actions";
import { addContextMenu } from "../jobs/actions/context_menu";
import { JobsPanel, SideBar, type IActs } from "../jobs/panel";
import { addSelectionCommands } from "../jobs/actions/selection_commands";
import type { ColumnId } from "../jobs/table/columns";
import type { ITableMemory } from "../jobs/table/saved_table";
import { PastJobs } from "../jobs/table/filters/period";
import { JobsTable } from "../jobs/table/table_model";
import { tableSettings, tableSettingTexts } from "../jobs/table_settings";
import { confirmDisconnect } from "../logins/connection_commands";
import { jobsIcon, LAUNCHER_RANK, stopSession, terminalAct } from "../sessions/commands";
import { ISessionsModel, type SessionJob } from "../sessions/model";

const ID = "jupyter-slurm:panel";
const SIDE = "jupyter-slurm-side-bar";
const MAIN = "jupyter-slurm-panel";
/** Initial columns of the side bar, where two columns are visible at its initial width. */
const NARROW: readonly ColumnId[] = ["name", "state", "time", "id"];
/** Rank in the side bar, below the file browser and the running kernels. */
const RANK = 300;

type Wide = MainAreaWidget<JobsPanel>;

/** Return a storage for the state of a table in the state database of JupyterLab. */
function memoryOf(state: IStateDB | null, place: string): ITableMemory | null {
  return (
    state && {
      load: () => state.fetch(`${place}:table`),
      save: ({ columns, sort, kinds, widths, filters, period }) =>
        state.save(`${place}:table`, {
          columns: columns && [...columns],
          kinds: [...kinds],
          sort: sort && { ...sort },
          widths: { ...widths },
          filters: { ...filters } as ReadonlyPartialJSONObject,
          period,
        }),
    }
  );
}

/** Apply the settings of the user to tables, also to those that are made later; return a function that adds one. */
function createConfiguration(
  registry: ISettingRegistry | null,
  trans: TranslationBundle,
): (table: JobsTable, isWide: boolean) => void {
  const tables = new Map<JobsTable, boolean>();
  let settings: ISettingRegistry.ISettings | null = null;
  const configure = (table: JobsTable, isWide: boolean): void => {
    const { density, columns } = tableSettings(settings?.composite);
    table.configure(density === "compact", isWide ? columns : null);
  };
  const follow = (): void => {
    for (const [table, isWide] of tables) {
      if (table.isDisposed) {
        tables.delete(table);
      } else {
        configure(table, isWide);
      }
    }
  };
  void loadSettings(registry, ID, tableSettingTexts(trans)).then((loaded) => {
    settings = loaded; // without settings, the initial ones apply
    loaded?.changed.connect(follow);
    follow();
  });
  return (table, isWide) => {
    tables.set(table, isWide);
    configure(table, isWide);
  };
}

/** Return the actions of the user in either panel. */
function actsOf(app: JupyterFrontEnd, trans: TranslationBundle, model: IJobsModel): IActs {
  return {
    act: (act, jobs) => void actOnJobs(trans, model, act, jobs),
    open: (job) => {
      if (!job.isForeign && app.commands.hasCommand(CommandIDs.openJob)) {
        const args = { cluster: job.cluster, job: referenceOf(job) };
        void app.commands.execute(CommandIDs.openJob, args);
      }
    },
    write: (text) => {
      Clipboard.copyToSystem(text);
    },
    connect: (cluster) => void model.connect(cluster),
    disconnect: (cluster) => void confirmDisconnect(trans, model, cluster),
    firstSteps: {
      launch: () => void app.commands.execute(CommandIDs.launch),
      submit: () => void app.commands.execute(CommandIDs.submitScript),
    },
  };
}

/**
 * Add the commands that show the panels, and the one that loads all jobs again.
 *
 * @param open - Shows the panel in the main area.
 * @param side - Shows the panel in the side bar.
 */
function addCommands(
  { commands, shell }: JupyterFrontEnd,
  model: IJobsModel,
  trans: TranslationBundle,
  open: () => Promise<Wide>,
  side: SideBar,
): void {
  const short = {
    open: trans.__("Show Jobs"),
    side: trans.__("Show Jobs in the Side Bar"),
    refresh: trans.__("Refresh Jobs"),
  };
  const whole = {
    open: trans.__("Show Slurm Jobs"),
    side: trans.__("Show Slurm Jobs in the Side Bar"),
    refresh: trans.__("Refresh Slurm Jobs"),
  };
  const titleOf = (args: ReadonlyPartialJSONObject, name: keyof typeof short): string =>
    args["isPalette"] || args["isMenu"] ? commandLabel(trans, short[name], args) : whole[name];
  commands.addCommand(CommandIDs.open, {
    // The menu is called Slurm, and a card of the launcher has room for two words.
    label: (args) => (args["isCard"] ? trans.__("Slurm Jobs") : titleOf(args, "open")),
    icon: ({ isPalette, isMenu }) => (isPalette || isMenu ? undefined : jobsIcon),
    caption: trans.__("Show your jobs"),
    execute: async ({ kind }) => {
      const { table } = (await open()).content;
      await (kind === "failed" && table.showFailed());
    },
  });
  commands.addCommand(CommandIDs.side, {
    label: (args) => titleOf(args, "side"),
    execute: async () => {
      shell.activateById(SIDE);
      await new Promise((resolve) => setTimeout(resolve)); // the palette first gives the focus back to the main area
      side.enter();
    },
  });
  commands.addCommand(CommandIDs.select, {
    label: trans.__("Select a Slurm Job"),
    execute: async ({ cluster, job }) => {
      const { table } = (await open()).content;
      if (typeof cluster === "string" && typeof job === "string") {
        table.find(cluster, job);
      }
    },
  });
  commands.addCommand(CommandIDs.refresh, {
    label: (args) => titleOf(args, "refresh"),
    execute: () => {
      model.refresh();
    },
  });
}

export const panelPlugin: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: "Your Slurm jobs in the side bar and in a tab, and their commands.",
  autoStart: true,
  requires: [IJobsModel],
  optional: [
    ITranslator,
    ICommandPalette,
    ILayoutRestorer,
    ILauncher,
    ISessionsModel,
    IStateDB,
    ISettingRegistry,
  ],
  activate: (
    app: JupyterFrontEnd,
    model: IJobsModel,
    translator: ITranslator | null,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null,
    launcher: ILauncher | null,
    sessions: ISessionsModel | null,
    state: IStateDB | null,
    registry: ISettingRegistry | null,
  ): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const acts = actsOf(app, trans, model);
    const beside = {
      sessions: sessions && {
        model: sessions,
        stop: (job: SessionJob) => void stopSession(trans, sessions, job),
        openTerminal: terminalAct(app.commands),
        show: ({ cluster, key }: SessionJob) =>
          void app.commands.execute(CommandIDs.launch, { cluster, session: key }),
      },
    };
    const api = new AgentApi(app.serviceManager.serverSettings);
    const [everybody, past] = [new AllJobs(api), new PastJobs(api)];
    const configure = createConfiguration(registry, trans);
    const tableOf = (place: string, columns?: readonly ColumnId[]): JobsTable => {
      const table = new JobsTable(model, columns, memoryOf(state, place), everybody, past);
      configure(table, columns === undefined);
      return table;
    };
    const tracker = new WidgetTracker<Wide>({ namespace: "jupyter-slurm" });
    const create = (): Wide => {
      const table = tableOf(MAIN, hasMainArea(app) ? undefined : NARROW);
      const content = new JobsPanel(table, trans, acts, beside);
      const widget = new MainAreaWidget({ content });
      widget.id = MAIN;
      widget.toolbar.hide(); // an empty toolbar would be a stripe above the table
      widget.title.label = trans.__("Slurm jobs");
      widget.title.icon = jobsIcon;
      widget.title.closable = true;
      return widget;
    };
    const open = async (): Promise<Wide> => {
      const widget = tracker.currentWidget ?? create();
      if (!tracker.has(widget)) {
        await tracker.add(widget);
        addPage(app, widget);
      }
      app.shell.activateById(widget.id);
      return widget;
    };
    const side = new SideBar(() => {
      return new JobsPanel(
        tableOf(SIDE, NARROW),
        trans,
        { ...acts, widen: () => void open() },
        beside,
      );
    });
    side.id = SIDE;
    side.title.icon = jobsIcon;
    side.title.caption = trans.__("Slurm jobs");
    app.shell.add(side, "left", { rank: RANK });

    addContextMenu(app);
    addCommands(app, model, trans, open, side);
    addSelectionCommands(app.commands, palette, model, trans, () => {
      const wide = tracker.currentWidget?.content;
      return wide ? [wide, ...side.panels] : side.panels;
    });
    for (const command of [CommandIDs.open, CommandIDs.side, CommandIDs.refresh]) {
      addToPalette(palette, command);
    }
    launcher?.add({
      command: CommandIDs.open,
      category: "Slurm",
      categoryRank: LAUNCHER_RANK,
      rank: 100,
      args: { isCard: true },
    });
    if (restorer !== null) {
      restorer.add(side, SIDE);
      void restorer.restore(tracker, { command: CommandIDs.open, name: () => "jobs" });
    }
  },
};
