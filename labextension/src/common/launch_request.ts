/** The launch of a session or kernel: the fields of its form, the request to the agent, and the key of a request. */
import type { ApiSchemas } from "./api/objects";

/** The values of the form, as typed. An empty value leaves the decision to Slurm or the agent. */
export interface ILaunchForm {
  readonly partition: string;
  readonly gpus: string;
  readonly gpuType: string;
  readonly cpus: string;
  readonly memory: string;
  readonly time: string;
  readonly account: string;
  readonly qos: string;
  readonly env: string;
  readonly dir: string;
  readonly name: string;
  /** Minutes. */
  readonly idle: string;
  /** A named app instead of Jupyter. */
  readonly app: string;
  /** The values of the apps that have one; only that of the chosen app is sent. */
  readonly logdir: string;
  readonly notebook: string;
  readonly store: string;
}

export type LaunchField = keyof ILaunchForm;

/** In place of a type of GPU: a generic resource that is not a GPU, by Slurm's name of what it counts ("gres/npu:910b"). */
const OTHER_GRES = "gres/";

/** Return the value of the field for a generic resource that is not a GPU. */
export function otherGres(name: string, type: string): string {
  return `${OTHER_GRES}${type === "" ? name : `${name}:${type}`}`;
}

/** Return the name of a type of GPU, or of another generic resource. */
export function acceleratorName(type: string): string {
  return type.startsWith(OTHER_GRES) ? type.slice(OTHER_GRES.length) : type;
}

/** Return the option that requests GPUs, or other generic resources. */
export function acceleratorOption(type: string, count: number): string {
  const value = type === "" ? `${count}` : `${acceleratorName(type)}:${count}`;
  return type.startsWith(OTHER_GRES) ? `--gres=${value}` : `--gpus=${value}`;
}

/** Return a key that makes a request safe to repeat: the date, the time (UTC) and random digits. */
export function newRequestKey(): string {
  const [date, time] = new Date().toISOString().replace(/[-:]/g, "").slice(0, 15).split("T");
  const random = crypto.getRandomValues(new Uint8Array(8));
  const digits = [...random].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return `${date ?? ""}-${time ?? ""}-${digits}`;
}

/** A request to launch a session. */
export type ILaunch = Pick<ApiSchemas["Launch"], "key" | "idle" | "app" | "app_values"> &
  Required<Pick<ApiSchemas["Launch"], "options">> & {
    readonly [field in "name" | "dir" | "env" | "on"]?: string;
  };
