/** What is free on a cluster, asked for when somebody looks. No DOM. */
import { Token } from "@lumino/coreutils";
import type { IDisposable } from "@lumino/disposable";
import type { ISignal } from "@lumino/signaling";

import type { IProblem } from "../common/api/objects";
import { toProblem } from "../common/api/problem";
import { patiently } from "../common/api/retry";
import { parseTimeLimit } from "../common/format";
import type { IForm } from "../common/launch_request";
import { Model } from "../common/observable_model";

/** GPUs of a type in one place; free are those that no job has, on nodes where one could start now. */
export interface IGpus {
  /** Empty where they have none. */
  readonly type: string;
  readonly total: number;
  readonly used: number;
  readonly free: number;
  /** On one node. */
  readonly most: number;
}

export interface IPartition {
  readonly name: string;
  readonly is_default: boolean;
  readonly state: string;
  /** Seconds; null is no limit. */
  readonly time_limit: number | null;
  readonly default_time: number | null;
  /** How many by state. */
  readonly nodes: Readonly<Record<string, number>>;
  readonly cpus: number;
  readonly cpus_free: number;
  readonly gpus: readonly IGpus[];
}

export interface INode {
  readonly name: string;
  readonly state: string;
  readonly flags: readonly string[];
  readonly is_up: boolean;
  readonly partitions: readonly string[];
  readonly cpus: number;
  readonly cpus_used: number;
  /** MiB. */
  readonly memory: number;
  readonly memory_used: number;
  readonly load: number | null;
  readonly gpus: readonly Pick<IGpus, "type" | "total" | "used">[];
  readonly features: readonly string[];
  readonly reason: string;
}

export interface ILimit {
  /** `user`, `account`, `qos`, `qos-user`; others may come. */
  readonly scope: string;
  readonly name: string;
  /** `in-use`, `job`, `minutes`, `jobs`, `submitted`; others may come. */
  readonly kind: string;
  /** As Slurm names it; empty for jobs. */
  readonly resource: string;
  /** Memory in bytes. */
  readonly most: number;
  readonly used: number | null;
  readonly partition: string;
}

/** What an hour costs, as the site profile says it. */
export interface ICost {
  readonly unit: string;
  readonly cpu_hour?: number;
  readonly gpu_hour?: number | Readonly<Record<string, number>>;
  /** How many times that, by partition, where it is not once. */
  readonly partitions?: Readonly<Record<string, number>>;
}

/** `Resources` of openapi.yaml. */
export interface IResources {
  /** Seconds since the epoch, on the clock of the agent, as the next one. */
  readonly asked_at: number;
  readonly unknown_since: number | null;
  readonly said: string;
  readonly gpus: readonly IGpus[];
  readonly partitions: readonly IPartition[];
  readonly nodes: readonly INode[];
  /** What one's own running jobs have; null: not known. */
  readonly use: Readonly<Record<string, number>> | null;
  readonly limits: readonly ILimit[] | null;
  readonly cost: ICost | null;
}

/** What the model needs of the agent. */
export interface IResourcesApi {
  resources(cluster: string, asked: ILook): Promise<IResources>;
}

/** How somebody looks. */
export interface ILook {
  /** A button was pressed. */
  readonly newer?: boolean;
  /** Each node is to be told. */
  readonly nodes?: boolean;
}

/** What is known of a cluster. */
export interface IKnown {
  /** Null before the first answer. */
  readonly resources: IResources | null;
  readonly problem: IProblem | null;
  readonly isAsking: boolean;
}

export interface IResourcesModel extends IDisposable {
  readonly changed: ISignal<IResourcesModel, void>;
  known(cluster: string): IKnown;
  /** Ask the agent, which asks Slurm at most once a minute; after a click sooner, within limits. */
  look(cluster: string, asked?: ILook): Promise<void>;
}

export const IResourcesModel = new Token<IResourcesModel>(
  "jupyter-slurm:IResourcesModel",
  "What is free on the clusters of this person.",
);

const NOTHING: IKnown = { resources: null, problem: null, isAsking: false };

export class ResourcesModel extends Model implements IResourcesModel {
  private readonly _known = new Map<string, IKnown>();
  /** Of which each node is wanted. */
  private readonly _withNodes = new Set<string>();

  constructor(private readonly _api: IResourcesApi) {
    super();
  }

  known(cluster: string): IKnown {
    return this._known.get(cluster) ?? NOTHING;
  }

  async look(cluster: string, { newer = false, nodes = false }: ILook = {}): Promise<void> {
    if (nodes) {
      this._withNodes.add(cluster);
    }
    const before = this.known(cluster);
    if (before.isAsking) {
      return;
    }
    const asked = { newer, nodes: this._withNodes.has(cluster) };
    this._set(cluster, { ...before, isAsking: true });
    try {
      const resources = await patiently(
        () => this._api.resources(cluster, asked),
        (problem) => {
          this._set(cluster, { ...before, problem, isAsking: true });
        },
      );
      this._set(cluster, { resources, problem: null, isAsking: false });
    } catch (error) {
      this._set(cluster, { ...before, problem: toProblem(error, "Look again."), isAsking: false });
    }
    if (this._withNodes.has(cluster) && !asked.nodes) {
      await this.look(cluster); // they were wanted by somebody who came meanwhile
    }
  }

  private _set(cluster: string, known: IKnown): void {
    this._known.set(cluster, known);
    this._changed.emit();
  }
}

/** Return the partition that a form means, the default where it names none. */
export function partitionOf(known: IResources | null, name: string): IPartition | undefined {
  return known?.partitions.find((one) => (name === "" ? one.is_default : one.name === name));
}

/** Return what a form would cost if it ran for all of its time, null where the profile does not say it. */
export function costOf(known: IResources | null, form: IForm): number | null {
  const cost = known?.cost;
  const partition = partitionOf(known, form.partition);
  const byDefault = partition?.default_time ?? partition?.time_limit ?? null;
  const seconds = form.time.trim() === "" ? byDefault : parseTimeLimit(form.time);
  if (!cost || seconds === null) {
    return null;
  }
  const gpus = Number(form.gpus.trim());
  const types = (partition?.gpus ?? []).map(({ type }) => type);
  const type = form.gpuType || (types.length === 1 ? (types[0] ?? "") : "");
  const { gpu_hour: byType } = cost;
  const ofGpu =
    typeof byType !== "object" ? byType : Object.hasOwn(byType, type) ? byType[type] : undefined;
  if (gpus > 0 && ofGpu === undefined && cost.gpu_hour !== undefined) {
    return null; // of that type it says nothing
  }
  const hourly = gpus * (ofGpu ?? 0) + (Number(form.cpus.trim()) || 1) * (cost.cpu_hour ?? 0);
  const factors = new Map(Object.entries(cost.partitions ?? {}));
  return ((factors.get(partition?.name ?? "") ?? 1) * hourly * seconds) / 3600;
}
