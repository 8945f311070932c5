/** CPUs and GPUs of the running jobs of all users, grouped. No DOM. */
import type { ApiSchemas } from "../common/api/objects";

/** The sums by user, account and partition. */
export type IRunningUse = ApiSchemas["RunningUse"];

/** Keys by which the use can be grouped. */
export type UseKey = "user" | "account" | "partition";

/** The groupings to choose from. */
export const USE_GROUPINGS: readonly (readonly [UseKey, ...UseKey[]])[] = [
  ["user"],
  ["account"],
  ["partition"],
  ["user", "account", "partition"],
];

/** The use of one group. */
export interface IUseRow {
  /** The values of the keys. */
  readonly group: readonly string[];
  /** Whether all of it is the user's own. */
  readonly isOwn: boolean;
  readonly jobs: number;
  readonly cpus: number;
  readonly gpus: number;
  /** Number by type, in the order of the types; the type is empty if Slurm does not say it. */
  readonly types: readonly (readonly [string, number])[];
}

/** Return a row for each group: the user's own first, then the one with the most GPUs. */
export function groupUse(use: IRunningUse, keys: readonly UseKey[]): IUseRow[] {
  const groups = new Map<string, IRunningUse["sums"][number][]>();
  for (const one of use.sums) {
    const name = JSON.stringify(keys.map((key) => one[key]));
    groups.set(name, [...(groups.get(name) ?? []), one]);
  }
  const rows = [...groups.entries()].map(([name, members]): IUseRow => {
    const types = new Map<string, number>();
    for (const [type, count] of members.flatMap(({ gpus }) => Object.entries(gpus))) {
      types.set(type, (types.get(type) ?? 0) + count);
    }
    return {
      group: JSON.parse(name) as string[],
      isOwn: keys.includes("user") && members.every(({ user }) => user === use.user),
      jobs: sum(members.map(({ jobs }) => jobs)),
      cpus: sum(members.map(({ cpus }) => cpus)),
      gpus: sum([...types.values()]),
      types: [...types].sort(([one], [other]) => one.localeCompare(other)),
    };
  });
  return rows.sort(
    (one, other) =>
      Number(other.isOwn) - Number(one.isOwn) ||
      other.gpus - one.gpus ||
      other.cpus - one.cpus ||
      one.group.join("\n").localeCompare(other.group.join("\n")),
  );
}

function sum(counts: readonly number[]): number {
  return counts.reduce((one, other) => one + other, 0);
}
