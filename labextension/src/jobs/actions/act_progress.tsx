/** Progress of actions on many jobs, with a button that stops them. */
import type { TranslationBundle } from "@jupyterlab/translation";
import * as React from "react";

import type { IActProgress } from "../../common/api/objects";
import { ToolbarButton } from "../../common/jupyterlab/toolbar_button";
import type { IJobsModel } from "../../common/jobs_model";
import { actProgressText } from "./action_labels";

interface IProps {
  readonly model: IJobsModel;
  readonly trans: TranslationBundle;
}

function Progress({ model, trans, act }: IProps & { act: IActProgress }): React.ReactElement {
  const text = actProgressText(trans, act);
  const isEnded = act.state === "stopped" || act.state === "finished";
  return (
    <div className="jp-Slurm-actProgress" role="status" data-state={act.state}>
      <span>{text}</span>
      {!isEnded && <progress aria-label={text} value={act.done} max={act.total} />}
      <ToolbarButton
        label={isEnded ? trans.__("Dismiss") : trans.__("Stop")}
        isOff={act.state === "stopping"}
        act={() => void model.stopAct(act)}
      />
    </div>
  );
}

export function ActProgress({ model, trans }: IProps): React.ReactElement {
  return (
    <>
      {model.runningActs.map((act) => (
        <Progress key={act.id} {...{ model, trans, act }} />
      ))}
    </>
  );
}
