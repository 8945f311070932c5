/** What was submitted: the script, the options, the files, and what is recorded of it. */
import type { TranslationBundle } from "@jupyterlab/translation";
import * as React from "react";

import type { IJob } from "../common/api/objects";
import { jobFiles, quoted, recordFacts } from "./labels";
import type { JobPage } from "./model";
import { Answer, Facts, useAsked } from "./request_state";

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
  const asked = useAsked(() => api.text(place.cluster, place.job, what), what);
  return (
    <section aria-label={label}>
      <h3>{label}</h3>
      <Answer trans={trans} asked={asked}>
        {(text) => (
          <pre className="jp-Slurm-text" tabIndex={0} aria-label={label}>
            {text}
          </pre>
        )}
      </Answer>
    </section>
  );
}

/** The text of the job; of a Python cell what was typed, then what Slurm runs. */
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

/** What is recorded of a job that we have submitted. */
function Record({ page, trans }: Omit<IDetailsProps, "job">): React.ReactElement {
  const { api, place } = page;
  const asked = useAsked(() => api.record(place.cluster, place.job), "");
  return (
    <Answer trans={trans} asked={asked}>
      {(record) => <Facts facts={recordFacts(record)} />}
    </Answer>
  );
}

/** How it was submitted, where its files are, and what is recorded of it. */
export function Submission({ page, job, trans }: IDetailsProps): React.ReactElement {
  return (
    <>
      {job.argv && (
        <>
          <h3>{trans.__("Command line")}</h3>
          <pre className="jp-Slurm-text" tabIndex={0} aria-label={trans.__("Command line")}>
            {quoted(job.argv)}
          </pre>
        </>
      )}
      <h3>{trans.__("Files")}</h3>
      <Facts facts={jobFiles(trans, job)} />
      <h3>{trans.__("Record")}</h3>
      {job.key === null ? (
        <p className="jp-Slurm-aside">
          {trans.__("It was submitted in another way: nothing is recorded of it.")}
        </p>
      ) : (
        <Record {...{ page, trans }} />
      )}
    </>
  );
}
