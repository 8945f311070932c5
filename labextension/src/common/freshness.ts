/** Age of the figures: since when they may be out of date. All values are text, never markup. */
import type { ICluster } from "./api/objects";
import type { IJobsModel } from "./jobs_model";

/** Return a cluster whose controller does not answer: its data may be out of date. */
export function silentCluster(model: IJobsModel): ICluster | undefined {
  return model.clusters.find(({ poll }) => poll.error !== null);
}

/** Whether the figures may be out of date: the agent does not answer, or a cluster, or the connection to one is lost. */
export function isOutdated(model: IJobsModel): boolean {
  const isLost = model.clusters.some(({ connection }) => connection?.state === "lost");
  return model.connection !== "live" || isLost || silentCluster(model) !== undefined;
}

/** Return the time of day of the figures; empty: not known. */
export function figuresTime(
  { updatedAt }: IJobsModel,
  format: (seconds: number) => string,
): string {
  return typeof updatedAt === "number" ? format(updatedAt) : "";
}
