/** Remote kernels: their specifications, and the state of their allocations. No DOM. */
import type { ICluster, IJob } from "../common/api/objects";
import { isFinished, stateKind } from "../common/job_states";
import type { ILaunchForm } from "../common/launch_request";
import { isNearLimit } from "../common/time_limit";
import { launchRequest } from "../sessions/form_values";

/** The provisioner in the specification of a remote kernel. */
const PROVISIONER = "jupyter-slurm";

/** The specification of a remote kernel. */
export interface IKernelSpec {
  readonly name: string;
  readonly display_name: string;
}

/** The request for a remote kernel: the ID of its cluster, and the other words of `jupyter slurm kernel add`. */
export interface IKernelRequest {
  readonly cluster: string;
  readonly words: readonly string[];
}

/** The cluster and the allocation of a running kernel. */
export interface IKernelPlace {
  readonly cluster: string;
  /** The key of the allocation; null as long as there is none. */
  readonly allocation: string | null;
}

/** The API of the server extension for kernels. */
export interface IKernelApi {
  kernelSpecs(): Promise<IKernelSpec[]>;
  addKernel(request: IKernelRequest): Promise<IKernelSpec>;
  removeKernel(name: string): Promise<void>;
  /** Null: the kernel is no remote kernel, or has not started. */
  kernelPlace(id: string): Promise<IKernelPlace | null>;
}

/** Return the request for a kernel from a form. */
export function kernelRequest(cluster: ICluster, form: ILaunchForm): IKernelRequest {
  const { options, name, dir, env, idle } = launchRequest(form, "");
  const values = Object.entries({ env, dir, name, idle: String(Math.round(idle / 60)) }); // in minutes
  const keywords = values.flatMap(([word, value]) =>
    value === undefined ? [] : [`${word}=${value}`],
  );
  return { cluster: cluster.id, words: [...options, ...keywords] };
}

/** Whether kernels with such metadata in their specification are kernels of jupyter_slurm. */
export function isSlurmProvisioned(metadata: unknown): boolean {
  const spec = metadata as { kernel_provisioner?: { provisioner_name?: unknown } } | null;
  return spec?.kernel_provisioner?.provisioner_name === PROVISIONER;
}

/** State of the allocation of a kernel; `near`: it runs, and its time limit is near. */
export type Standing = "starting" | "pending" | "running" | "near" | "ended";

/**
 * Return the state of the allocation of a kernel.
 *
 * @param job - Null as long as nothing is known of the allocation.
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
