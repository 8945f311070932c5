/** Page with the form of a script's job: what its #SBATCH lines ask for, and what the user changes of that. */
import type { TranslationBundle } from "@jupyterlab/translation";
import { ReactWidget, UseSignal } from "@jupyterlab/ui-components";
import * as React from "react";

import type { ICluster, IJob } from "../../common/api/objects";
import { FoldHead } from "../../common/jupyterlab/fold";
import { clusterName } from "../../common/labels";
import type { ILaunchForm } from "../../common/launch_request";
import type { FormDraft } from "../../sessions/form_drafts";
import type { IFormUse } from "../../sessions/form_requests";
import type { ISessionsModel } from "../../sessions/model";
import { RequestForm } from "../../sessions/request_form";
import { scriptForm, scriptValues, unitHints, type ScriptOptions } from "./script_values";

/** The place of a script, by which its form is restored. */
export interface IScriptPlace {
  /** The path, as the file browser shows it. */
  readonly path: string;
  /** The ID of the cluster. */
  readonly cluster: string;
}

/** A script, as it was read when its form was opened. */
export interface IScript {
  readonly cluster: ICluster;
  readonly path: string;
  /** The name of its file. */
  readonly name: string;
  /** The #SBATCH lines of each part; only a heterogeneous job has several. */
  readonly parts: readonly (readonly string[])[];
  /** The options that those of the first part give. */
  readonly options: ScriptOptions;
}

interface IProps {
  readonly model: ISessionsModel;
  readonly trans: TranslationBundle;
  readonly script: IScript;
  readonly use: IFormUse<IJob>;
  readonly submitted: (job: IJob) => void;
  /** What was typed for this script, and not submitted. */
  readonly draft: FormDraft;
  readonly first: ILaunchForm;
}

/** Return the title of the page. */
export function scriptTitle(trans: TranslationBundle, { name, cluster }: IScript): string {
  return trans.__("Submit %1 to %2", name, clusterName(cluster));
}

/** The #SBATCH lines of a script, and which of its parts the form is about. */
function Lines({
  trans,
  parts,
}: {
  readonly trans: TranslationBundle;
  readonly parts: IScript["parts"];
}): React.ReactElement {
  const [lines = []] = parts;
  if (parts.length === 1) {
    return lines.length === 0 ? (
      <p className="jp-Slurm-aside">
        {trans.__("The script has no #SBATCH lines. The defaults of the cluster apply.")}
      </p>
    ) : (
      <details className="jp-Slurm-scriptLines">
        <FoldHead>{trans._n("%1 #SBATCH line", "%1 #SBATCH lines", lines.length)}</FoldHead>
        <pre tabIndex={0}>{lines.join("\n")}</pre>
      </details>
    );
  }
  return (
    <>
      <p className="jp-Slurm-aside" role="note">
        {trans.__(
          "The script describes a heterogeneous job with %1 parts. The form shows the values of part 1. A value that you change applies to all parts, as options of sbatch do. To change one part only, edit its #SBATCH lines.",
          parts.length,
        )}
      </p>
      {parts.map((each, at) => (
        <details key={at} className="jp-Slurm-scriptLines" open>
          <FoldHead>{trans.__("Part %1", at + 1)}</FoldHead>
          <pre tabIndex={0}>{each.join("\n")}</pre>
        </details>
      ))}
    </>
  );
}

function ScriptPage(props: IProps): React.ReactElement {
  const { model, trans, script, use, submitted, draft, first } = props;
  const { options, name, parts } = script;
  // Its name may be known only after the form was opened.
  const cluster = model.jobs.clusters.find(({ id }) => id === script.cluster.id) ?? script.cluster;
  const title = scriptTitle(trans, { ...script, cluster });
  const words = {
    launch: trans.__("Submit"),
    launching: trans.__("Submitting…"),
    anyway: trans.__("Submit anyway"),
  };
  const [values] = React.useState(() => scriptValues(options));
  return (
    <>
      <h2>{title}</h2>
      <Lines {...{ trans, parts }} />
      <RequestForm
        {...{ model, trans, cluster, title, words, use, draft, first }}
        initial={scriptForm(values)}
        script={values}
        hints={{ name: trans.__("Default: %1", name), ...unitHints(trans, options) }}
        launched={submitted}
      />
    </>
  );
}

export class ScriptPanel extends ReactWidget {
  constructor(private readonly _props: IProps) {
    super();
    this.addClass("jp-Slurm-panel");
    this.addClass("jp-Slurm-launch");
  }

  get place(): IScriptPlace {
    const { cluster, path } = this._props.script;
    return { path, cluster: cluster.id };
  }

  protected override render(): React.ReactElement {
    return (
      <UseSignal signal={this._props.model.changed}>
        {() => <ScriptPage {...this._props} />}
      </UseSignal>
    );
  }
}
