/** The time at which Slurm was last asked: old figures are marked as such. */
import type { TranslationBundle } from "@jupyterlab/translation";
import * as React from "react";

import { formatClock } from "../common/format";
import { figuresTime, isOutdated } from "../common/freshness";
import type { IJobsModel } from "../common/jobs_model";

/** Time between two questions to the agent, and before the time is known for the first time, in milliseconds. */
const [ASK_INTERVAL_MS, FIRST_INTERVAL_MS] = [10_000, 1_000];

interface IUpdateTimeProps {
  readonly model: IJobsModel;
  readonly trans: TranslationBundle;
}

export function UpdateTime({ model, trans }: IUpdateTimeProps): React.ReactElement {
  const [time, isOld] = [figuresTime(model, formatClock), isOutdated(model)];
  const interval = time === "" ? FIRST_INTERVAL_MS : ASK_INTERVAL_MS;
  React.useEffect(() => {
    const timer = setInterval(() => {
      model.refreshClusters();
    }, interval);
    return () => {
      clearInterval(timer);
    };
  }, [model, interval]);
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
