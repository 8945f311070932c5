/** Plots of the resources that a job used over time. */
import type { TranslationBundle } from "@jupyterlab/translation";
import * as React from "react";

import type { IJob } from "../common/api/objects";
import { formatTime } from "../common/format";
import type { IUsage } from "./api";
import { usagePlots, type IPlot } from "./labels";
import type { JobPage } from "./model";
import { RefreshableResult, useRequest } from "./request_state";

const WIDTH = 300;
const HEIGHT = 60;

/** Return the line of a plot in the notation of SVG; it is interrupted where there are no measurements. */
function lineOf({ values, top }: IPlot, times: readonly number[]): string {
  const [first, last] = [times[0] ?? 0, times.at(-1) ?? 0];
  const across = (time: number): number => ((time - first) / Math.max(1, last - first)) * WIDTH;
  let isDown = false;
  return values
    .map((value, index) => {
      if (value === null) {
        isDown = false;
        return "";
      }
      const step = isDown ? "L" : "M";
      isDown = true;
      const up = HEIGHT - (Math.min(value, top) / top) * HEIGHT;
      return `${step}${across(times[index] ?? 0).toFixed(1)} ${up.toFixed(1)}`;
    })
    .join("");
}

function Plot({ plot, times }: { plot: IPlot; times: readonly number[] }): React.ReactElement {
  return (
    <figure className="jp-Slurm-plot">
      <figcaption>
        {plot.label} <span className="jp-Slurm-aside">{plot.text}</span>
      </figcaption>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${plot.label}: ${plot.text}`}
      >
        <path d={lineOf(plot, times)} vectorEffect="non-scaling-stroke" />
      </svg>
    </figure>
  );
}

function Drawn({ usage, trans }: { usage: IUsage; trans: TranslationBundle }): React.ReactElement {
  const times = usage.points.map(({ time }) => time);
  const [first, last] = [times[0], times.at(-1)];
  return (
    <>
      {first !== undefined && last !== undefined && (
        <>
          <div className="jp-Slurm-plots">
            {usagePlots(trans, usage).map((plot) => (
              <Plot key={plot.label} plot={plot} times={times} />
            ))}
          </div>
          <p className="jp-Slurm-aside">
            {trans.__(
              "On %1, from %2 to %3.",
              usage.node ?? "",
              formatTime(first),
              formatTime(last),
            )}
          </p>
        </>
      )}
      {usage.note !== "" && <p className="jp-Slurm-aside">{usage.note}</p>}
    </>
  );
}

/** Plots of the measurements of the job itself, without requests to Slurm. */
export function Plots(props: {
  readonly page: JobPage;
  readonly job: IJob;
  readonly trans: TranslationBundle;
}): React.ReactElement {
  const { page, job, trans } = props;
  const { api, place } = page;
  const request = useRequest(() => api.usage(place.cluster, place.job), job.state);
  return (
    <RefreshableResult trans={trans} request={request} label={trans.__("Refresh")}>
      {(usage) => <Drawn usage={usage} trans={trans} />}
    </RefreshableResult>
  );
}
