/** Plugin of the pages of jobs. */
import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin,
} from "@jupyterlab/application";
import {
  Clipboard,
  Dialog,
  ICommandPalette,
  MainAreaWidget,
  Notification,
  showDialog,
  WidgetTracker,
} from "@jupyterlab/apputils";
import { PageConfig } from "@jupyterlab/coreutils";
import { ITranslator, nullTranslator, type TranslationBundle } from "@jupyterlab/translation";
import { fileIcon } from "@jupyterlab/ui-components";
import { UUID } from "@lumino/coreutils";

import { AgentApi } from "../agent_api/agent_api";
import { confirmEnd } from "../common/jupyterlab/dialogs";
import { CommandIDs, DOMAIN } from "../common/identifiers";
import { IJobsModel } from "../common/jobs_model";
import { cancelBody, cancelTitle, jobCluster } from "../common/labels";
import { addPage } from "../common/jupyterlab/main_area";
import { addPageCommands } from "../job_page/commands";
import type { IJobActs } from "../job_page/header";
import { jobLink } from "../job_page/job_link";
import { pageTitle } from "../job_page/labels";
import { JobPage, parseJobLocation, type IJobLocation } from "../job_page/model";
import { JobPanel } from "../job_page/page";
import { editAndResubmit } from "../job_page/resubmission_dialog";
import { actOnJobs } from "../jobs/actions/confirmed_actions";

type Page = MainAreaWidget<JobPanel>;

/** Cancel the job of a page after a confirmation. */
async function cancel(trans: TranslationBundle, page: JobPage): Promise<void> {
  const { job } = page;
  if (job !== null) {
    const title = cancelTitle(trans, job, jobCluster(page.jobs, job));
    const body = cancelBody(trans, job);
    if (await confirmEnd(title, body, trans.__("Keep it"), trans.__("Cancel the job"))) {
      await page.cancel();
    }
  }
}

/** Submit the job of a page again after a confirmation; return the location of the new one. */
async function resubmit(
  trans: TranslationBundle,
  api: AgentApi,
  page: JobPage,
): Promise<IJobLocation | null> {
  if (page.isForeign) {
    const job = await editAndResubmit(trans, api, page.place);
    return parseJobLocation({ cluster: job?.cluster, job: job?.key ?? job?.id });
  }
  const result = await showDialog({
    title: trans.__("Submit job %1 again?", page.job?.id ?? page.place.job),
    body: trans.__("Same script, options and folder."),
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label: trans.__("Submit") })],
  });
  const made = result.button.accept ? await page.resubmit() : null;
  return parseJobLocation({ cluster: made?.cluster, job: made?.key ?? made?.id });
}

/** Copy the link to a page, in the default workspace. */
function copyLink(trans: TranslationBundle, page: JobPage): void {
  const lab = PageConfig.getUrl({
    mode: "multiple-document",
    workspace: PageConfig.defaultWorkspace,
    treePath: "",
    toShare: true,
  });
  Clipboard.copyToSystem(jobLink(new URL(lab, window.location.href).href, page.permanentLocation));
  Notification.success(trans.__("The link to this page was copied."), { autoClose: 4_000 });
}

/** Return a page in a frame of JupyterLab, with the name of its job as title. */
function framed(trans: TranslationBundle, page: JobPage, acts: IJobActs, name: string): Page {
  const widget = new MainAreaWidget({ content: new JobPanel(page, trans, acts, name) });
  widget.toolbar.hide(); // an empty toolbar would be a stripe above the page
  widget.title.icon = fileIcon;
  widget.title.closable = true;
  const title = (): void => {
    widget.title.label = pageTitle(trans, page.job, page.place.job);
  };
  title();
  page.changed.connect(title);
  return widget;
}

/** Save the page again when the key of its job, by which the page is restored, is known. */
function saveWhenKnown(tracker: WidgetTracker<Page>, widget: Page): void {
  const { page } = widget.content;
  const save = (): void => {
    if (page.job !== null) {
      page.changed.disconnect(save);
      void tracker.save(widget);
    }
  };
  page.changed.connect(save);
}

export const jobPlugin: JupyterFrontEndPlugin<void> = {
  id: "jupyter-slurm:job",
  description: "A page for each job: its state, log, resources and script.",
  autoStart: true,
  requires: [IJobsModel],
  optional: [ITranslator, ILayoutRestorer, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    jobs: IJobsModel,
    translator: ITranslator | null,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
  ): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const api = new AgentApi(app.serviceManager.serverSettings);
    const tracker = new WidgetTracker<Page>({ namespace: "jupyter-slurm-job" });
    const resubmitPage = async (page: JobPage): Promise<void> => {
      const made = await resubmit(trans, api, page);
      if (made !== null) {
        await app.commands.execute(CommandIDs.openJob, { ...made });
      }
    };
    const create = (place: IJobLocation, name: string): Page => {
      const { cluster } = place;
      const open = (job: string): void => {
        void app.commands.execute(CommandIDs.openJob, { cluster, job });
      };
      const acts: IJobActs = {
        cancel: (page) => void cancel(trans, page),
        act: (act, job) => void actOnJobs(trans, jobs, act, [job]),
        resubmit: (page) => void resubmitPage(page),
        session: app.commands.hasCommand(CommandIDs.launch)
          ? ({ key }) =>
              void app.commands.execute(CommandIDs.launch, { cluster, session: key ?? "" })
          : null,
        open,
        link: (page) => {
          copyLink(trans, page);
        },
      };
      return framed(trans, new JobPage(api, jobs, place), acts, name);
    };
    app.commands.addCommand(CommandIDs.openJob, {
      label: trans.__("Open the Page of a Slurm Job"),
      caption: trans.__("State, log, resources and script of a job"),
      execute: async (args) => {
        const place = parseJobLocation(args);
        if (place === null) {
          return;
        }
        const name = typeof args["page"] === "string" ? args["page"] : UUID.uuid4();
        const widget =
          tracker.find(({ content }) => content.page.isAt(place)) ?? create(place, name);
        if (!tracker.has(widget)) {
          await tracker.add(widget);
          saveWhenKnown(tracker, widget);
          addPage(app, widget);
        }
        app.shell.activateById(widget.id);
      },
    });
    const front = (): JobPage | null => {
      const widget = tracker.currentWidget;
      return widget?.isVisible ? widget.content.page : null;
    };
    addPageCommands(app.commands, palette, trans, front, {
      resubmit: resubmitPage,
      link: (page) => {
        copyLink(trans, page);
      },
    });
    if (restorer !== null) {
      void restorer.restore(tracker, {
        command: CommandIDs.openJob,
        args: ({ content }) => ({ ...content.page.permanentLocation, page: content.name }),
        name: ({ content }) => content.name,
      });
    }
  },
};
