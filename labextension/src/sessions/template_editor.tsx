/** Page of an open template: its form with the values of the file. */
import { ABCWidgetFactory, DocumentWidget, type DocumentRegistry } from "@jupyterlab/docregistry";
import type { TranslationBundle } from "@jupyterlab/translation";
import { ReactWidget, UseSignal } from "@jupyterlab/ui-components";
import * as React from "react";

import type { ICluster } from "../common/api/objects";
import { clusterName } from "../common/labels";
import type { ISessionsModel } from "./model";
import { LaunchPage, waitText, type ILaunchActs } from "./session_page";
import { clusterOf, readTemplate } from "./template_files";

/** Time after the last change of the file before the form follows, in milliseconds. */
const TYPING_PAUSE_MS = 500;

/** Dependencies of the page of a template. */
export interface ITemplateSurroundings {
  readonly model: ISessionsModel;
  readonly trans: TranslationBundle;
  readonly acts: ILaunchActs;
  /** Show the launched session. */
  readonly show: (cluster: string, session: string) => void;
}

function Template(props: ITemplateSurroundings & { readonly text: string }): React.ReactElement {
  const { model, trans, acts, show, text } = props;
  const template = React.useMemo(() => readTemplate(text), [text]);
  const [chosen, choose] = React.useState<ICluster | null>(null);
  if (template === null) {
    return (
      <p role="alert" className="jp-Slurm-problem">
        {trans.__("This file is not a session template, or it is from a later version.")}
      </p>
    );
  }
  const { clusters } = model.jobs;
  const cluster = chosen ?? clusterOf(template, clusters);
  if (cluster !== undefined) {
    const launched = (session: string | null): void => {
      if (session !== null) {
        show(cluster.id, session);
      }
    };
    return (
      <LaunchPage
        key={JSON.stringify(template.form)} // a changed file begins another form
        {...{ model, trans, acts }}
        cluster={cluster.id}
        session={null}
        choose={launched}
        template={template.form}
      />
    );
  }
  if (clusters.length === 0) {
    return <p role="status">{waitText(trans, model.jobs)}</p>;
  }
  return (
    <>
      <p>{trans.__("This template was made for %1. Select a cluster:", template.cluster)}</p>
      <div className="jp-Slurm-actions">
        {clusters.map((one) => (
          <button
            key={one.id}
            type="button"
            className="jp-mod-styled"
            onClick={() => {
              choose(one);
            }}
          >
            {clusterName(one)}
          </button>
        ))}
      </div>
    </>
  );
}

/** The content of the page of a file. */
export class TemplatePanel extends ReactWidget {
  private _timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly _context: DocumentRegistry.Context,
    private readonly _around: ITemplateSurroundings,
  ) {
    super();
    this.addClass("jp-Slurm-panel");
    this.addClass("jp-Slurm-launch");
    void _context.ready.then(() => {
      if (!this.isDisposed) {
        this.update();
        _context.model.contentChanged.connect(this._follow);
      }
    });
  }

  override dispose(): void {
    clearTimeout(this._timer);
    this._context.model.contentChanged.disconnect(this._follow);
    super.dispose();
  }

  /** Draw a changed file when nothing has been typed for a moment: another view of it may be an editor. */
  private readonly _follow = (): void => {
    clearTimeout(this._timer);
    this._timer = setTimeout(() => {
      this.update();
    }, TYPING_PAUSE_MS);
  };

  protected override render(): React.ReactElement | null {
    const { _around: around, _context: context } = this;
    return context.isReady ? (
      <UseSignal signal={around.model.changed}>
        {() => <Template {...around} text={context.model.toString()} />}
      </UseSignal>
    ) : null;
  }
}

/** Creates the page of a file. */
export class TemplateFactory extends ABCWidgetFactory<DocumentWidget<TemplatePanel>> {
  constructor(
    options: DocumentRegistry.IWidgetFactoryOptions<DocumentWidget<TemplatePanel>>,
    private readonly _around: (context: DocumentRegistry.Context) => ITemplateSurroundings,
  ) {
    super(options);
  }

  protected createNewWidget(context: DocumentRegistry.Context): DocumentWidget<TemplatePanel> {
    const content = new TemplatePanel(context, this._around(context));
    const page = new DocumentWidget({ content, context });
    page.toolbar.hide(); // an empty toolbar would be a stripe above the form
    return page;
  }
}
