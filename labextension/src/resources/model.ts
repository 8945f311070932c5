/** Model of the free resources of the clusters, loaded on request. No DOM. */
import { Token } from "@lumino/coreutils";
import type { IDisposable } from "@lumino/disposable";
import type { ISignal } from "@lumino/signaling";

import type { ApiSchemas, IProblem } from "../common/api/objects";
import { toProblem } from "../common/api/problem";
import { retryUntilAnswered } from "../common/api/retry";
import { otherGres, type ILaunchForm } from "../common/launch_request";
import { Model } from "../common/observable_model";
import { parseDuration } from "../common/time_limit";
import { Answers, type IAnswers } from "./answers";
import type { IRoom } from "./room";
import type { IRunningUse } from "./running_use";

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

/** The requests to the agent. */
export interface IResourcesApi {
  resources(cluster: string, query: IResourcesQuery): Promise<IResources>;
  runningUse(cluster: string): Promise<IRunningUse>;
  /** `newer`: whether a button was pressed. */
  room(cluster: string, newer: boolean): Promise<IRoom>;
}

/** The options of a request. */
export interface IResourcesQuery {
  /** Whether a button was pressed, so that newer data are wanted. */
  readonly newer?: boolean;
  /** Whether the answer has each node. */
  readonly nodes?: boolean;
}

/** The resources of a cluster, and the state of the request. */
export interface IResourcesState {
  /** Null before the first answer. */
  readonly resources: IResources | null;
  readonly problem: IProblem | null;
  readonly isLoading: boolean;
}

export interface IResourcesModel extends IDisposable {
  readonly changed: ISignal<IResourcesModel, void>;
  /** The use of each cluster by all users. */
  readonly use: IAnswers<IRunningUse>;
  /** Free space and quotas on each cluster. */
  readonly room: IAnswers<IRoom>;
  stateOf(cluster: string): IResourcesState;
  /** Load the resources. The agent asks Slurm at most once a minute; after a click sooner, within limits. */
  load(cluster: string, query?: IResourcesQuery): Promise<void>;
}

export const IResourcesModel = new Token<IResourcesModel>(
  "jupyter-slurm:IResourcesModel",
  "Free resources of your clusters.",
);

const NOTHING: IResourcesState = { resources: null, problem: null, isLoading: false };
/** Times for which the agent keeps an answer, in milliseconds. */
const [USE_PERIOD_MS, ROOM_PERIOD_MS] = [60_000, 300_000];

export class ResourcesModel extends Model implements IResourcesModel {
  readonly use: IAnswers<IRunningUse>;
  readonly room: IAnswers<IRoom>;
  private readonly _states = new Map<string, IResourcesState>();
  /** Clusters whose nodes are wanted. */
  private readonly _withNodes = new Set<string>();

  constructor(private readonly _api: IResourcesApi) {
    super();
    this.use = new Answers((cluster) => _api.runningUse(cluster), USE_PERIOD_MS);
    this.room = new Answers((cluster, newer) => _api.room(cluster, newer), ROOM_PERIOD_MS);
  }

  override dispose(): void {
    this.use.dispose();
    this.room.dispose();
    super.dispose();
  }

  stateOf(cluster: string): IResourcesState {
    return this._states.get(cluster) ?? NOTHING;
  }

  async load(
    cluster: string,
    { newer = false, nodes = false }: IResourcesQuery = {},
  ): Promise<void> {
    if (nodes) {
      this._withNodes.add(cluster);
    }
    const before = this.stateOf(cluster);
    if (before.isLoading) {
      return;
    }
    const query = { newer, nodes: this._withNodes.has(cluster) };
    this._set(cluster, { ...before, isLoading: true });
    try {
      const resources = await retryUntilAnswered(
        () => this._api.resources(cluster, query),
        (problem) => {
          this._set(cluster, { ...before, problem, isLoading: true });
        },
      );
      this._set(cluster, { resources, problem: null, isLoading: false });
    } catch (error) {
      this._set(cluster, { ...before, problem: toProblem(error, "Refresh."), isLoading: false });
    }
    if (this._withNodes.has(cluster) && !query.nodes) {
      await this.load(cluster); // another view has requested the nodes meanwhile
    }
  }

  private _set(cluster: string, known: IResourcesState): void {
    this._states.set(cluster, known);
    this._changed.emit();
  }
}

/** Return the partition of a form; the default one where it names none. */
export function partitionOf(known: IResources | null, name: string): IPartition | undefined {
  return known?.partitions.find((one) => (name === "" ? one.is_default : one.name === name));
}

/** Return the GPUs of a place, then its other generic resources (NPUs, TPUs …), their types as in the launch form. */
export function acceleratorsOf(place: Pick<IPartition, "gpus" | "gres">): IGpus[] {
  const others = (place.gres ?? []).map(({ name, type, ...numbers }) => ({
    ...numbers,
    type: otherGres(name, type),
  }));
  return [...place.gpus, ...others];
}

/** Return the price of a form that runs for all of its time; null where the profile has no price. */
export function costOf(known: IResources | null, form: ILaunchForm): number | null {
  const cost = known?.cost;
  const partition = partitionOf(known, form.partition);
  const byDefault = partition?.default_time ?? partition?.time_limit ?? null;
  const seconds = form.time.trim() === "" ? byDefault : parseDuration(form.time);
  if (!cost || seconds === null || seconds === Infinity) {
    return null;
  }
  const gpus = Number(form.gpus.trim());
  const types = (partition?.gpus ?? []).map(({ type }) => type);
  const type = form.gpuType || (types.length === 1 ? (types[0] ?? "") : "");
  const { gpu_hour: byType } = cost;
  const ofGpu =
    typeof byType !== "object" ? byType : Object.hasOwn(byType, type) ? byType[type] : undefined;
  if (gpus > 0 && ofGpu === undefined && cost.gpu_hour !== undefined) {
    return null; // the profile has no price of this type
  }
  const hourly = gpus * (ofGpu ?? 0) + (Number(form.cpus.trim()) || 1) * (cost.cpu_hour ?? 0);
  const factors = new Map(Object.entries(cost.partitions ?? {}));
  return ((factors.get(partition?.name ?? "") ?? 1) * hourly * seconds) / 3600;
}
