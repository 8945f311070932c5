/** Page with the form of a script's job: what its #SBATCH lines ask for, and what the user changes of that. */
import type { TranslationBundle } from "@jupyterlab/translation";
import { ReactWidget, UseSignal } from "@jupyterlab/ui-components";
import * as React from "react";

import type { ICluster, IJob } from "../../common/api/objects";
import { clusterName } from "../../common/labels";
import type { IFormUse } from "../../sessions/form_requests";
import type { ISessionsModel } from "../../sessions/model";
import { RequestForm } from "../../sessions/request_form";
import { scriptForm, scriptValues, unitHints, type ScriptOptions } from "./script_values";

/** A script, as it was read when its form was opened. */
export interface IScript {
  readonly cluster: ICluster;
  /** The name of its file. */
  readonly name: string;
  /** Its #SBATCH lines. */
  readonly lines: readonly string[];
  /** The options that they give. */
  readonly options: ScriptOptions;
}

interface IProps {
  readonly model: ISessionsModel;
  readonly trans: TranslationBundle;
  readonly script: IScript;
  readonly use: IFormUse<IJob>;
  readonly submitted: (job: IJob) => void;
}

/** Return the title of the page. */
export function scriptTitle(trans: TranslationBundle, { name, cluster }: IScript): string {
  return trans.__("Submit %1 to %2", name, clusterName(cluster));
}

function ScriptPage({ model, trans, script, use, submitted }: IProps): React.ReactElement {
  const { lines, options, name } = script;
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
      {lines.length === 0 ? (
        <p className="jp-Slurm-aside">
          {trans.__("The script has no #SBATCH lines. The defaults of the cluster apply.")}
        </p>
      ) : (
        <details className="jp-Slurm-scriptLines">
          <summary>{trans._n("%1 #SBATCH line", "%1 #SBATCH lines", lines.length)}</summary>
          <pre tabIndex={0}>{lines.join("\n")}</pre>
        </details>
      )}
      <RequestForm
        {...{ model, trans, cluster, title, words, use }}
        first={scriptForm(values)}
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

  protected override render(): React.ReactElement {
    return (
      <UseSignal signal={this._props.model.changed}>
        {() => <ScriptPage {...this._props} />}
      </UseSignal>
    );
  }
}
