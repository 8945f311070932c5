/** Kernels on nodes: those that can be chosen for a notebook, and how the allocation of one stands. No DOM. */
import type { ICluster, IJob } from "../common/api/objects";
import { isFinished, stateKind } from "../common/job_states";
import { clusterName } from "../common/labels";
import type { IForm } from "../common/launch_request";
import { isNearLimit } from "../common/time_limit";
import { launchOf } from "../sessions/form_values";

/** What the specification of a kernel of ours names as its provisioner. */
const PROVISIONER = "jupyter-slurm";

/** A kernel of ours that can be chosen for a notebook. */
export interface IKernelSpec {
  readonly name: string;
  readonly display_name: string;
}

/** What is to be asked of Slurm for a kernel: the words of `jupyter slurm kernel add`. */
export interface IKernelRequest {
  readonly words: readonly string[];
}

/** Where a kernel that was started has its GPUs. */
export interface IKernelPlace {
  readonly cluster: string;
  /** Key of the allocation; null as long as there is none. */
  readonly allocation: string | null;
}

/** What is needed of the server for kernels. */
export interface IKernelApi {
  kernelSpecs(): Promise<IKernelSpec[]>;
  addKernel(request: IKernelRequest): Promise<IKernelSpec>;
  removeKernel(name: string): Promise<void>;
  /** Null: it is none of ours, or has not begun. */
  kernelPlace(id: string): Promise<IKernelPlace | null>;
}

/** Return what a form asks for, as a kernel. */
export function kernelOf(cluster: ICluster, form: IForm): IKernelRequest {
  const { options, name, dir, env } = launchOf(form, "");
  const said = Object.entries({ env, dir, name, idle: form.idle.trim() }); // a number alone is minutes
  const ours = said.flatMap(([word, value]) => (value === undefined ? [] : [`${word}=${value}`]));
  return { words: [clusterName(cluster), ...options, ...ours] };
}

/** Whether kernels with such metadata in their specification start through us. */
export function isOurs(metadata: unknown): boolean {
  const told = metadata as { kernel_provisioner?: { provisioner_name?: unknown } } | null;
  return told?.kernel_provisioner?.provisioner_name === PROVISIONER;
}

/** How the allocation of a kernel stands; `near`: it runs, and its time limit is near. */
export type Standing = "starting" | "pending" | "running" | "near" | "ended";

/**
 * Return how the allocation of a kernel stands.
 *
 * @param job - Null as long as nothing is known of it.
 */
export function standingOf(job: IJob | null, now: number): Standing {
  if (job === null) {
    return "starting";
  }
  if (isFinished(job.state)) {
    return "ended";
  }
  if (isNearLimit(job, now)) {
    return "near";
  }
  return stateKind(job.state) === "pending" ? "pending" : "running";
}
