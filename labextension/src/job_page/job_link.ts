/** Links to a job: `…/lab?slurm-job=CLUSTER/JOB`. No DOM. */
import { parseJobLocation, type IJobLocation } from "./model";

/** The parameter of the query. */
export const LINK_PARAMETER = "slurm-job";

/** Return the link to a job, for the page of a JupyterLab. */
export function jobLink(page: string, { cluster, job }: IJobLocation): string {
  const address = new URL(page);
  address.searchParams.set(LINK_PARAMETER, `${cluster}/${job}`);
  return address.href;
}

/** Return the job that the query of an address names, if any, and the rest of the query. */
export function parseJobLink(query: string): {
  readonly place: IJobLocation | null;
  readonly rest: string;
} {
  const parameters = new URLSearchParams(query);
  const [cluster, job] = (parameters.get(LINK_PARAMETER) ?? "").split("/");
  parameters.delete(LINK_PARAMETER);
  return {
    place: parseJobLocation({ cluster, job }),
    rest: parameters.size > 0 ? `?${parameters.toString()}` : "",
  };
}
