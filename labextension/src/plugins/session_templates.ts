/** Plugin of templates: a template file opens as the form that it was made from. */
import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin,
} from "@jupyterlab/application";
import { WidgetTracker } from "@jupyterlab/apputils";
import type { DocumentRegistry, DocumentWidget } from "@jupyterlab/docregistry";
import { ITranslator, nullTranslator } from "@jupyterlab/translation";

import type { ICluster } from "../common/api/objects";
import { CommandIDs, DOMAIN } from "../common/identifiers";
import { IJobsModel } from "../common/jobs_model";
import type { ILaunchForm } from "../common/launch_request";
import { gpuIcon, stopSession } from "../sessions/commands";
import { ISessionsModel, type SessionJob } from "../sessions/model";
import {
  TemplateFactory,
  type ITemplateSurroundings,
  type TemplatePanel,
} from "../sessions/template_editor";
import { EXTENSION, saveTemplate } from "../sessions/template_files";

const TYPE = "slurm-launch";
const FACTORY = "Slurm Launch Form";

export const templatesPlugin: JupyterFrontEndPlugin<void> = {
  id: "jupyter-slurm:templates",
  description: "Opens a session template as a form.",
  autoStart: true,
  requires: [IJobsModel, ISessionsModel],
  optional: [ITranslator, ILayoutRestorer],
  activate: (
    app: JupyterFrontEnd,
    jobs: IJobsModel,
    model: ISessionsModel,
    translator: ITranslator | null,
    restorer: ILayoutRestorer | null,
  ): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const around = ({ path }: DocumentRegistry.Context): ITemplateSurroundings => ({
      model,
      trans,
      acts: {
        connect: (cluster: ICluster) => void jobs.connect(cluster),
        stop: (job: SessionJob) => void stopSession(trans, model, job),
        save: (cluster: ICluster, form: ILaunchForm) =>
          void saveTemplate(app.serviceManager.contents, trans, cluster, form, path),
      },
      show: (cluster, session) =>
        void app.commands.execute(CommandIDs.launch, { cluster, session }),
    });
    app.docRegistry.addFileType({
      name: TYPE,
      displayName: trans.__("Slurm Launch Form"),
      extensions: [EXTENSION],
      mimeTypes: ["application/json"],
      contentType: "file",
      fileFormat: "text",
      icon: gpuIcon,
    });
    const factory = new TemplateFactory(
      {
        name: FACTORY,
        label: trans.__("Slurm Launch Form"),
        fileTypes: [TYPE],
        defaultFor: [TYPE],
        readOnly: true,
      },
      around,
    );
    const tracker = new WidgetTracker<DocumentWidget<TemplatePanel>>({
      namespace: "jupyter-slurm-templates",
    });
    factory.widgetCreated.connect((_, page) => {
      page.title.icon = gpuIcon;
      void tracker.add(page);
      page.context.pathChanged.connect(() => void tracker.save(page));
    });
    // JupyterLab is compiled without exactOptionalPropertyTypes: its own factories do not fit its interface with that
    // option.
    app.docRegistry.addWidgetFactory(factory as DocumentRegistry.WidgetFactory);
    if (restorer !== null) {
      void restorer.restore(tracker, {
        command: "docmanager:open",
        args: ({ context }) => ({ path: context.path, factory: FACTORY }),
        name: ({ context }) => context.path,
      });
    }
  },
};
