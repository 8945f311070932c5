/** Tab with the resources that a job requested and used. */
import type { TranslationBundle } from "@jupyterlab/translation";
import * as React from "react";

import type { IJob } from "../common/api/objects";
import { isFinished } from "../common/job_states";
import { nameOfCluster } from "../common/labels";
import { jobFacts, reportFacts } from "./labels";
import type { JobPage } from "./model";
import { Facts, RefreshableResult, useRequest } from "./request_state";
import { Plots } from "./usage_plots";

interface IUsageProps {
  readonly page: JobPage;
  readonly job: IJob;
  readonly trans: TranslationBundle;
}

/** The report is loaded when the tab is opened, when the job ends, and by the button: it costs requests to Slurm. */
function Report({ page, job, trans }: IUsageProps): React.ReactElement {
  const { api, place } = page;
  const request = useRequest(
    () => api.report(place.cluster, place.job),
    isFinished(job.state) ? job.state : "",
  );
  return (
    <RefreshableResult trans={trans} request={request} label={trans.__("Refresh")}>
      {(report) => (
        <>
          <Facts facts={reportFacts(trans, report)} />
          {report.notes.map((note) => (
            <p key={note} className="jp-Slurm-aside">
              {note}
            </p>
          ))}
        </>
      )}
    </RefreshableResult>
  );
}

export function Usage(props: IUsageProps): React.ReactElement {
  const { page, job, trans } = props;
  return (
    <>
      <h3>{trans.__("Requested")}</h3>
      <Facts facts={jobFacts(trans, job, nameOfCluster(page.jobs, job.cluster))} />
      <h3>{trans.__("Used")}</h3>
      <Report {...props} />
      <h3>{trans.__("Usage over time")}</h3>
      <Plots {...props} />
    </>
  );
}
