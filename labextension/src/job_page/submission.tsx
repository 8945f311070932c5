/** Tabs with the submission of a job: the script, the options, the files, and the record. */
import type { TranslationBundle } from "@jupyterlab/translation";
import * as React from "react";

import type { IJob } from "../common/api/objects";
import { jobFiles, quoteWords, recordFacts } from "./labels";
import type { JobPage } from "./model";
import { Facts, RequestResult, useRequest } from "./request_state";

interface IDetailsProps {
  readonly page: JobPage;
  readonly job: IJob;
  readonly trans: TranslationBundle;
}

function Text(props: {
  readonly page: JobPage;
  readonly trans: TranslationBundle;
  readonly what: "script" | "source";
  readonly label: string;
}): React.ReactElement {
  const { page, trans, what, label } = props;
  const { api, place } = page;
  const request = useRequest(() => api.text(place.cluster, place.job, what), what);
  return (
    <section aria-label={label}>
      <h3>{label}</h3>
      <RequestResult trans={trans} request={request}>
        {(text) => (
          <pre className="jp-Slurm-text" tabIndex={0} aria-label={label}>
            {text}
          </pre>
        )}
      </RequestResult>
    </section>
  );
}

/** The text of the job; of a Python cell the source, then the batch script. */
export function Script({ page, job, trans }: IDetailsProps): React.ReactElement {
  return (
    <>
      {job.kind === "python" && (
        <Text {...{ page, trans }} what="source" label={trans.__("Cell")} />
      )}
      <Text {...{ page, trans }} what="script" label={trans.__("Batch script")} />
    </>
  );
}

/** The record of a job of jupyter_slurm. */
function Record({ page, trans }: Omit<IDetailsProps, "job">): React.ReactElement {
  const { api, place } = page;
  const request = useRequest(() => api.record(place.cluster, place.job), "");
  return (
    <RequestResult trans={trans} request={request}>
      {(record) => <Facts facts={recordFacts(record)} />}
    </RequestResult>
  );
}

/** The command line, the files and the record of a job. */
export function Submission({ page, job, trans }: IDetailsProps): React.ReactElement {
  return (
    <>
      {job.argv && (
        <>
          <h3>{trans.__("Command line")}</h3>
          <pre className="jp-Slurm-text" tabIndex={0} aria-label={trans.__("Command line")}>
            {quoteWords(job.argv)}
          </pre>
        </>
      )}
      <h3>{trans.__("Files")}</h3>
      <Facts facts={jobFiles(trans, job)} />
      <h3>{trans.__("Record")}</h3>
      {job.key === null ? (
        <p className="jp-Slurm-aside">
          {trans.__("No submission record. The job was not submitted with jupyter_slurm.")}
        </p>
      ) : (
        <Record {...{ page, trans }} />
      )}
    </>
  );
}
