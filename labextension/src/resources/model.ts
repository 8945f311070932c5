/** What is free on a cluster, asked for when somebody looks. No DOM. */
import { Token } from "@lumino/coreutils";
import type { IDisposable } from "@lumino/disposable";
import type { ISignal } from "@lumino/signaling";

import type { ApiSchemas, IProblem } from "../common/api/objects";
import { toProblem } from "../common/api/problem";
import { patiently } from "../common/api/retry";
import { parseTimeLimit } from "../common/format";
import type { IForm } from "../common/launch_request";
import { Model } from "../common/observable_model";

/** GPUs of a type in one place; free are those that no job has, on nodes where one could start now. */
export type IGpus = ApiSchemas["Gpus"];

export type IResources = Omit<ApiSchemas["Resources"], "limits"> & {
  readonly limits: readonly ILimit[] | null;
};
export type IPartition = IResources["partitions"][number];
export type INode = IResources["nodes"][number];

/** A limit; a newer agent may send other scopes and kinds than the document has. */
export type ILimit = Omit<
  NonNullable<ApiSchemas["Resources"]["limits"]>[number],
  "scope" | "kind"
> & {
  readonly scope: string;
  readonly kind: string;
};

/** The price of an hour, from the site profile. */
export type ICost = NonNullable<IResources["cost"]>;

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
