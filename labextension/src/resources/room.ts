/** Free space and quotas of the user's directories on a cluster. No DOM. */
import type { ApiSchemas } from "../common/api/objects";

export type IRoom = ApiSchemas["Room"];

/** A disk or a quota. */
export type ISpace = IRoom["spaces"][number];

/** How full a disk or a quota is. */
export interface IShare {
  /** Rounded up; 100 only if nothing is free. */
  readonly percent: number;
  readonly level: "free" | "little" | "full";
}

/** Percentage above which little is free. */
const MUCH_PERCENT = 90;

/** Return how full a disk or a quota is; null where it has no limit, or the use is unknown. */
export function spaceShare({ used, limit, free }: ISpace): IShare | null {
  if (used === null) {
    return null;
  }
  // A disk keeps a part for the system: what is used and what is free are less than its size.
  return free === null ? shareOf(used, limit) : shareOf(used, used + free);
}

/** Return how much of the largest number of files exists; null where there is no limit. */
export function filesShare({ files, files_limit: limit }: ISpace): IShare | null {
  return files === null ? null : shareOf(files, limit);
}

function shareOf(used: number, limit: number | null): IShare | null {
  if (limit === null) {
    return null;
  }
  if (used >= limit) {
    return { percent: 100, level: "full" };
  }
  const percent = Math.min(99, Math.ceil((100 * used) / limit));
  return { percent, level: percent > MUCH_PERCENT ? "little" : "free" };
}
