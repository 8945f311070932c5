/** Addresses that lead to a job: `…/lab?slurm-job=CLUSTER/JOB`. No DOM. */
import { jobPlaceOf, type IJobPlace } from "./model";

/** The word in the address. */
export const LINK = "slurm-job";

/** Return the address of a job, on the page of a JupyterLab. */
export function linkTo(page: string, { cluster, job }: IJobPlace): string {
  const address = new URL(page);
  address.searchParams.set(LINK, `${cluster}/${job}`);
  return address.href;
}

/** Return the job that the query of an address names, if any, and the query without that. */
export function linked(query: string): { readonly place: IJobPlace | null; readonly rest: string } {
  const asked = new URLSearchParams(query);
  const [cluster, job] = (asked.get(LINK) ?? "").split("/");
  asked.delete(LINK);
  return {
    place: jobPlaceOf({ cluster, job }),
    rest: asked.size > 0 ? `?${asked.toString()}` : "",
  };
}
