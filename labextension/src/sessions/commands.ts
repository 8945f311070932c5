/** Commands that open the form of a session, with cards of the launcher, and the question before one is stopped. */
import type { JupyterFrontEnd } from "@jupyterlab/application";
import { MainAreaWidget, showErrorMessage, type ICommandPalette } from "@jupyterlab/apputils";
import { PageConfig } from "@jupyterlab/coreutils";
import type { ILauncher } from "@jupyterlab/launcher";
import type { IStateDB } from "@jupyterlab/statedb";
import type { TranslationBundle } from "@jupyterlab/translation";
import { LabIcon } from "@jupyterlab/ui-components";
import type { IDisposable } from "@lumino/disposable";

import type { ICluster } from "../common/api/objects";
import type { ILaunchForm } from "../common/launch_request";
import { chooseCluster, confirmEnd } from "../common/jupyterlab/dialogs";
import { awaitClusters } from "../common/jupyterlab/known_clusters";
import { toProblem } from "../common/api/problem";
import { CommandIDs } from "../common/identifiers";
import type { IJobsModel } from "../common/jobs_model";
import { jobName, problemText } from "../common/labels";
import { addToPalette, commandLabel } from "../common/jupyterlab/palette";
import { launchTitle, newSessionTitle, stopBody, stopTitle } from "./labels";
import type { IMemory, ISessionsModel, SessionJob } from "./model";
import {
  LaunchPanel,
  parseSessionLocation,
  type ILaunchActs,
  type ISessionLocation,
} from "./session_page";

const PINS = [7, 11, 15].flatMap((at) => [
  `M${at} 1h2v3h-2z`,
  `M${at} 20h2v3h-2z`,
  `M1 ${at}h3v2h-3z`,
  `M20 ${at}h3v2h-3z`,
]);

/** Rank of the section in the launcher: below the notebooks, above the consoles. */
export const LAUNCHER_RANK = 10;

/** Icon of a GPU: a processor. */
export const gpuIcon = new LabIcon({
  name: "jupyter-slurm:gpu",
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" width="16">
    <path class="jp-icon3 jp-icon-selectable" fill="#616161" fill-rule="evenodd"
      d="M5 5h14v14h-14z M8 8v8h8v-8z M10 10h4v4h-4z ${PINS.join(" ")}"/></svg>`,
});

/** Icon of the jobs: a processor with lines of a list on it. */
export const jobsIcon = new LabIcon({
  name: "jupyter-slurm:jobs",
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" width="16">
    <path class="jp-icon3 jp-icon-selectable" fill="#616161" fill-rule="evenodd"
      d="M5 5h14v14h-14z M7 7v10h10v-10z M9 8.5h6v1.6h-6z M9 11.2h6v1.6h-6z M9 13.9h6v1.6h-6z ${PINS.join(" ")}"/></svg>`,
});

/** Return a storage of forms in the state database of JupyterLab; without one, in the page. */
export function memoryIn(state: IStateDB | null): IMemory {
  const stored = new Map<string, Partial<ILaunchForm>>();
  const load = async (name: string): Promise<unknown> =>
    stored.get(name) ?? (state === null ? null : await state.fetch(name));
  const save = async (name: string, values: Partial<ILaunchForm>): Promise<void> => {
    stored.set(name, values);
    await (Object.keys(values).length > 0 ? state?.save(name, { ...values }) : state?.remove(name));
  };
  return {
    load: (cluster) => load(`jupyter-slurm-last-launch:${cluster}`),
    save: (cluster, form) => save(`jupyter-slurm-last-launch:${cluster}`, form),
    loadDraft: (name) => load(`jupyter-slurm-draft:${name}`),
    saveDraft: (name, typed) => save(`jupyter-slurm-draft:${name}`, typed),
  };
}

/** Stop a session after a confirmation. */
export async function stopSession(
  trans: TranslationBundle,
  model: ISessionsModel,
  job: SessionJob,
): Promise<void> {
  const [title, body] = [stopTitle(trans, job), stopBody(trans, job)];
  if (await confirmEnd(title, body, trans.__("Keep it"), trans.__("Stop the session"))) {
    await model.stop(job);
  }
}

/** Return the action that opens a terminal in a session; undefined where the Jupyter server allows no terminals. */
export function terminalAct(
  commands: JupyterFrontEnd["commands"],
): ((job: SessionJob) => void) | undefined {
  if (PageConfig.getOption("jupyterSlurmHasTerminals") !== "true") {
    return undefined;
  }
  return ({ cluster, key }) => void commands.execute(CommandIDs.terminal, { cluster, job: key });
}

/**
 * Return the page of a session: the form, or an open page, which gets the name.
 *
 * @param changed - Called when the page shows another session.
 */
export function launchPage(
  model: ISessionsModel,
  trans: TranslationBundle,
  acts: ILaunchActs,
  place: ISessionLocation,
  changed: (page: MainAreaWidget<LaunchPanel>) => void,
): MainAreaWidget<LaunchPanel> {
  const content = new LaunchPanel(model, trans, acts, place);
  const page = new MainAreaWidget({ content });
  page.toolbar.hide(); // an empty toolbar would be a stripe above the form
  page.title.icon = gpuIcon;
  page.title.closable = true;
  const title = (): void => {
    const { cluster, session } = content.place;
    const job = session === null ? null : model.find(cluster, session);
    const { gpus } = model.jobs.clusters.find(({ id }) => id === cluster) ?? {};
    const untitled = gpus ? trans.__("GPU notebook") : trans.__("Jupyter");
    page.title.label = job === null ? untitled : jobName(job);
  };
  title();
  model.changed.connect(title);
  page.disposed.connect(() => model.changed.disconnect(title));
  content.chosen.connect(() => {
    title();
    changed(page);
  });
  return page;
}

/** Add the command that launches a session inside a running job, and opens its page. */
export function addLaunchInJob(
  commands: JupyterFrontEnd["commands"],
  model: ISessionsModel,
  trans: TranslationBundle,
): void {
  commands.addCommand(CommandIDs.launchInJob, {
    label: trans.__("Start JupyterLab in Job"),
    execute: async (args) => {
      const { cluster } = parseSessionLocation(args);
      const job = typeof args["job"] === "string" ? args["job"] : "";
      try {
        const { key } = await model.launchInJob(cluster, job);
        await commands.execute(CommandIDs.launch, { cluster, session: key });
      } catch (error) {
        const problem = toProblem(error, "Check with `jupyter slurm sessions` whether it started.");
        await showErrorMessage(
          trans.__("The session was not launched"),
          problemText(trans, problem),
        );
      }
    },
  });
}

/**
 * Add the command that opens the form, with a card and an entry of the palette for each cluster, also for later ones.
 */
export function addLaunchCommands(
  commands: JupyterFrontEnd["commands"],
  palette: ICommandPalette | null,
  launcher: ILauncher | null,
  model: IJobsModel,
  trans: TranslationBundle,
  open: (place: ISessionLocation) => Promise<void>,
): void {
  const find = (id: string): ICluster =>
    model.clusters.find((each) => each.id === id) ?? { id, name: id, poll: { error: null } };
  const choose = async (): Promise<string> => {
    const [title, button] = [trans.__("GPU notebook on which cluster?"), trans.__("Continue")];
    const clusters = await awaitClusters(model, trans, trans.__("No form can be shown"));
    return (await chooseCluster(trans, title, button, clusters))?.id ?? "";
  };
  commands.addCommand(CommandIDs.launch, {
    label: (args) => {
      const { cluster } = parseSessionLocation(args);
      if (cluster === "") {
        return commandLabel(trans, trans.__("New GPU Notebook…"), args);
      }
      const isEntry = args["isPalette"] === true || args["isMenu"] === true;
      const title = (isEntry ? newSessionTitle : launchTitle)(trans, find(cluster));
      return commandLabel(trans, title, args);
    },
    caption: trans.__("Start JupyterLab on a node of the cluster"),
    icon: ({ isPalette, isMenu }) => (isPalette || isMenu ? undefined : gpuIcon),
    execute: async (args) => {
      const place = parseSessionLocation(args);
      const cluster = place.cluster || (await choose());
      if (cluster !== "") {
        await open({ ...place, cluster });
      }
    },
  });
  const listed = new Map<string, { title: string; items: IDisposable[] }>();
  const list = (cluster: ICluster, rank: number): void => {
    const { id: command, title } = { id: CommandIDs.launch, title: launchTitle(trans, cluster) };
    const known = listed.get(cluster.id);
    if (known?.title === title) {
      return;
    }
    known?.items.forEach((item) => {
      item.dispose(); // until the controller answered, name and GPUs of the cluster were unknown
    });
    const args = { cluster: cluster.id };
    const items = [
      launcher?.add({ command, category: "Slurm", categoryRank: LAUNCHER_RANK, rank, args }),
      addToPalette(palette, command, args),
    ];
    listed.set(cluster.id, { title, items: items.filter((item) => item !== undefined) });
  };
  const listAll = (): void => {
    model.clusters.forEach(list);
  };
  listAll(); // translations may be loaded later than the clusters
  model.changed.connect(listAll);
}
