/** Labels of free resources and limits, in the language of the user. All values are text, never markup. */
import type { TranslationBundle } from "@jupyterlab/translation";

import { formatClock, formatDuration } from "../common/format";
import { problemText } from "../common/labels";
import { acceleratorName, type ILaunchForm } from "../common/launch_request";
import {
  acceleratorsOf,
  costOf,
  partitionOf,
  type IGpus,
  type ILimit,
  type INode,
  type IPartition,
  type IResources,
  type IResourcesState,
} from "./model";

/** Return a text about free GPUs, with those that are free when Slurm has cleaned up an ended job on their node. */
function withSoon(trans: TranslationBundle, text: string, soon = 0): string {
  return soon === 0 ? text : trans.__("%1 (%2 more soon: node completing)", text, soon);
}

/** Return the free GPUs by type: "6 of 8 a100, 0 of 2 h100"; empty where there are none. */
export function freeText(trans: TranslationBundle, gpus: readonly IGpus[]): string {
  return gpus
    .map(({ type, free, total, soon }) =>
      withSoon(
        trans,
        trans.__("%1 of %2 %3", free, total, acceleratorName(type) || trans.__("GPUs")),
        soon,
      ),
    )
    .join(", ");
}

/** Return the time limit of a partition. */
export function limitText(trans: TranslationBundle, seconds: number | null): string {
  return seconds === null
    ? trans.__("no time limit")
    : trans.__("at most %1", formatDuration(seconds));
}

/** Return the description of a partition to choose from. */
export function partitionText(trans: TranslationBundle, partition: IPartition): string {
  const free = freeText(trans, acceleratorsOf(partition));
  return [
    partition.is_default ? trans.__("default") : "",
    partition.state === "UP" ? "" : partition.state,
    free === "" ? trans.__("no GPUs") : trans.__("%1 free", free),
    limitText(trans, partition.time_limit),
  ]
    .filter((word) => word !== "")
    .join(", ");
}

/** Return the description of a type of GPU to choose from. */
export function typeText(trans: TranslationBundle, { free, total, soon }: IGpus): string {
  return withSoon(trans, trans.__("%1 of %2 free", free, total), soon);
}

/** Return the free GPUs of the kind that a form requests; undefined where they are not known. */
export function freeGpusText(
  trans: TranslationBundle,
  resources: IResources | null,
  form: ILaunchForm,
): string | undefined {
  const partition = partitionOf(resources, form.partition);
  const matching =
    form.gpuType === ""
      ? (partition?.gpus ?? [])
      : partition === undefined
        ? []
        : acceleratorsOf(partition).filter(({ type }) => form.gpuType === type);
  return matching.length === 0 ? undefined : trans.__("%1 free now.", freeText(trans, matching));
}

/** Return the free CPUs of the partition of a form; undefined where they are not known. */
export function freeCpusText(
  trans: TranslationBundle,
  resources: IResources | null,
  { partition: name }: ILaunchForm,
): string | undefined {
  const partition = partitionOf(resources, name);
  return partition && trans.__("%1 of %2 free now.", partition.cpus_free, partition.cpus);
}

/** Return the nodes of the partition of a form by state; undefined where they are not known. */
export function partitionNodesText(
  trans: TranslationBundle,
  resources: IResources | null,
  { partition: name }: ILaunchForm,
): string | undefined {
  const partition = partitionOf(resources, name);
  const nodes = partition === undefined ? "" : nodesText(partition);
  return nodes === "" ? undefined : trans.__("Nodes: %1.", nodes);
}

/**
 * Return the limits of the chosen options, with the resources that count toward them; undefined where there are none.
 */
export function limitsText(
  trans: TranslationBundle,
  resources: IResources | null,
  scopes: readonly string[],
  name: string,
): string | undefined {
  const matching = (resources?.limits ?? []).filter(
    (limit) => limit.name === name && scopes.includes(limit.scope),
  );
  const lines = matching.map((limit) => `${limitName(trans, limit)}, ${limitAmount(trans, limit)}`);
  return lines.length === 0 ? undefined : `${lines.join("; ")}.`;
}

/** Return the price of a form where the profile of the cluster has prices; else an empty text. */
export function costText(
  trans: TranslationBundle,
  resources: IResources | null,
  form: ILaunchForm,
): string {
  const cost = costOf(resources, form);
  return cost === null || !resources?.cost
    ? ""
    : trans.__(
        "Cost of the whole time limit: %1 %2.",
        cost.toLocaleString(undefined, { maximumFractionDigits: 2 }),
        resources.cost.unit,
      );
}

/** Return the number of nodes of a partition by state: "3 idle, 1 drain". */
export function nodesText({ nodes }: IPartition): string {
  return Object.entries(nodes)
    .sort(([, one], [, other]) => other - one)
    .map(([state, count]) => `${count} ${state.toLowerCase()}`)
    .join(", ");
}

/** Return the state of a node, as Slurm names it. */
export function nodeState({ state, flags }: INode): string {
  return [state, ...flags].join("+").toLowerCase();
}

/** Return the time of the data, or the reason why newer data are missing. */
export function ageText(trans: TranslationBundle, known: IResourcesState): string {
  const { resources, problem, isLoading } = known;
  if (problem !== null) {
    return problemText(trans, problem);
  }
  if (resources === null) {
    return isLoading ? trans.__("Loading free resources…") : "";
  }
  return checkedText(trans, resources);
}

/** The time of an answer, and since when there is no newer one. */
export interface IAnswerAge {
  readonly asked_at: number;
  readonly unknown_since: number | null;
  readonly said: string;
}

/** Return the time of an answer, and the reason why a newer one is missing. */
export function checkedText(trans: TranslationBundle, answer: IAnswerAge): string {
  const age = trans.__("Checked %1.", formatClock(answer.asked_at));
  return answer.unknown_since === null
    ? age
    : `${age} ${trans.__("Not updated since %1.", formatClock(answer.unknown_since))} ${answer.said}`;
}

/** Return an amount of a resource with its unit. */
export function amountText(resource: string, count: number): string {
  return resource === "mem" ? memoryText(count / 2 ** 20) : String(count);
}

/** Return an amount of memory in MiB as text. */
export function memoryText(mebibytes: number): string {
  const [amount, unit] =
    mebibytes < 1024
      ? [mebibytes, "MiB"]
      : mebibytes < 2 ** 20
        ? [mebibytes / 2 ** 10, "GiB"]
        : [mebibytes / 2 ** 20, "TiB"];
  return `${Math.round(amount * 10) / 10} ${unit}`;
}

/** Return the name of a resource. */
function resourceText(trans: TranslationBundle, resource: string): string {
  const known: Record<string, string> = {
    cpu: trans.__("CPUs"),
    mem: trans.__("memory"),
    node: trans.__("nodes"),
    "gres/gpu": trans.__("GPUs"),
  };
  return known[resource] ?? resource.replace(/^gres\/gpu:/, "");
}

/** Return the scope and the kind of a limit. */
export function limitName(trans: TranslationBundle, limit: ILimit): string {
  const { scope, name, kind, resource, partition } = limit;
  const whose: Record<string, string> = {
    user: trans.__("You, account %1", name),
    account: trans.__("Account %1", name),
    qos: trans.__("QOS %1", name),
    "qos-user": trans.__("You, QOS %1", name),
  };
  const of: Record<string, string> = {
    "in-use": resourceText(trans, resource),
    job: trans.__("%1 of a job", resourceText(trans, resource)),
    minutes: trans.__("minutes of %1", resourceText(trans, resource)),
    jobs: trans.__("running jobs and array tasks"),
    submitted: trans.__("jobs and array tasks"),
  };
  const where = partition === "" ? "" : ` (${partition})`;
  return `${whose[scope] ?? name}${where}: ${of[kind] ?? `${resource} ${kind}`.trim()}`;
}

/** Return the use that counts toward a limit, and the limit. */
export function limitAmount(trans: TranslationBundle, limit: ILimit): string {
  const most = amountText(limit.resource, limit.most);
  return limit.used === null
    ? trans.__("at most %1", most)
    : trans.__("%1 of %2", amountText(limit.resource, limit.used), most);
}

/** Return the GPUs in use with their types: "2 GPUs (a100)", "3 GPUs (2 a100, 1 h100)". */
function gpusInUse(trans: TranslationBundle, use: Readonly<Record<string, number>>): string {
  const count = use[GPUS] ?? 0;
  const types = Object.entries(use).filter(([name]) => name.startsWith(`${GPUS}:`));
  const words = types.map(([name, each]) => {
    const type = name.slice(GPUS.length + 1);
    return each === count ? type : `${each} ${type}`;
  });
  const text = trans._n("%1 GPU", "%1 GPUs", count);
  return words.length === 0 ? text : `${text} (${words.join(", ")})`;
}

/** Slurm's name of GPUs of any type. */
const GPUS = "gres/gpu";

/** Return the number of the user's running jobs, in which an array is one: "4 jobs (12 counting array tasks)". */
function jobsInUse(trans: TranslationBundle, use: Readonly<Record<string, number>>): string {
  const { jobs = 0, tasks = jobs } = use;
  return tasks > jobs
    ? trans._n("%1 job (%2 counting array tasks)", "%1 jobs (%2 counting array tasks)", jobs, tasks)
    : trans._n("%1 job", "%1 jobs", jobs);
}

/** Return a sentence on the resources of the user's running jobs. */
export function useText(trans: TranslationBundle, use: Readonly<Record<string, number>>): string {
  const others = Object.entries(use).filter(
    ([name, count]) => count > 0 && name.startsWith("gres/") && !name.startsWith(GPUS),
  );
  const words = [
    use["cpu"] ? trans._n("%1 CPU", "%1 CPUs", use["cpu"]) : "",
    use["mem"] ? amountText("mem", use["mem"]) : "",
    use[GPUS] ? gpusInUse(trans, use) : "",
    ...others.map(([name, count]) => `${count} ${name.slice("gres/".length)}`),
  ].filter((word) => word !== "");
  return words.length === 0
    ? trans.__("You use nothing now.")
    : trans.__("You use: %1 in %2", words.join(", "), jobsInUse(trans, use));
}
