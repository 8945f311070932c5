/** The time at which Slurm was last asked: old figures are marked as such. */
import type { TranslationBundle } from "@jupyterlab/translation";
import * as React from "react";

import { formatClock } from "../common/format";
import { figuresTime, isOutdated } from "../common/freshness";
import type { IJobsModel } from "../common/jobs_model";

/** Time between two questions to the agent, in milliseconds. */
const ASK_INTERVAL_MS = 10_000;

interface IUpdateTimeProps {
  readonly model: IJobsModel;
  readonly trans: TranslationBundle;
}

export function UpdateTime({ model, trans }: IUpdateTimeProps): React.ReactElement {
  React.useEffect(() => {
    const timer = setInterval(() => {
      model.refreshClusters();
    }, ASK_INTERVAL_MS);
    return () => {
      clearInterval(timer);
    };
  }, [model]);
  const [time, isOld] = [figuresTime(model, formatClock), isOutdated(model)];
  return (
    <span className="jp-Slurm-updated" data-old={isOld}>
      {time === ""
        ? ""
        : isOld
          ? trans.__("Not updated since %1.", time)
          : trans.__("Checked %1.", time)}
    </span>
  );
}
