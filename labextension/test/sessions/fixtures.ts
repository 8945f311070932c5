/** Sessions, and an agent at the border of the process, for the tests of what shows and launches them. */
import { Signal } from "@lumino/signaling";
import { vi } from "vitest";

import type { ICluster, IJob } from "../../src/common/api/objects";
import type { IJobsModel } from "../../src/common/jobs_model";
import type { ILaunchForm } from "../../src/common/launch_request";
import { ResourcesModel, type IResources } from "../../src/resources/model";
import type { IRoom } from "../../src/resources/room";
import type { IRunningUse } from "../../src/resources/running_use";
import { SessionsModel, type ISessionsApi, type SessionJob } from "../../src/sessions/model";

export const CLUSTER: ICluster = { id: "local", name: "arandu", gpus: true, poll: { error: null } };

export function session(state: string, more: Partial<IJob> = {}, message = ""): SessionJob {
  return {
    key: "20261122-050000-0011223344556677",
    cluster: "local",
    id: "12",
    state: { pending: "PENDING", ended: "FAILED" }[state] ?? "RUNNING",
    reason: "",
    reason_text: "",
    next_step: "",
    submit_time: 100,
    start_time: null,
    end_time: null,
    partition: "arandu",
    nodes: null,
    name: "jupyter",
    label: "training",
    known: true,
    unknown_since: null,
    tasks: null,
    ...more,
    session: {
      state,
      message,
      path: "/jupyter-slurm/20261122-050000-0011223344556677/",
      steps: [
        { state: "submitted", time: 100 },
        { state: "pending", time: 102 },
      ],
      idle: 3600,
      server: null,
      ...more.session,
    },
  } as SessionJob;
}

/** Eight GPUs of a type on one partition, six of them free; one of a drained node on the other. */
export const RESOURCES: IResources = {
  asked_at: 1_700_000_000,
  unknown_since: null,
  said: "",
  gpus: [{ type: "a100", total: 8, used: 2, free: 6, most: 8 }],
  partitions: [
    {
      name: "arandu",
      is_default: false,
      state: "UP",
      time_limit: 7200,
      default_time: null,
      nodes: { MIXED: 1 },
      cpus: 128,
      cpus_free: 126,
      gpus: [{ type: "a100", total: 8, used: 2, free: 6, most: 8 }],
    },
    {
      name: "devwork",
      is_default: true,
      state: "UP",
      time_limit: null,
      default_time: 3600,
      nodes: { IDLE: 3, DRAIN: 1 },
      cpus: 64,
      cpus_free: 48,
      gpus: [{ type: "", total: 4, used: 0, free: 3, most: 1 }],
    },
  ],
  nodes: [],
  use: { jobs: 1, tasks: 2, cpu: 2, mem: 2 ** 35, "gres/gpu": 2 },
  limits: [
    {
      scope: "user",
      name: "c4ai",
      kind: "in-use",
      resource: "gres/gpu",
      most: 4,
      used: 2,
      partition: "",
    },
  ],
  cost: { unit: "credits", gpu_hour: { a100: 4 }, cpu_hour: 0.5 },
};

export interface IHere {
  readonly model: SessionsModel;
  readonly api: { [Name in keyof ISessionsApi]: ReturnType<typeof vi.fn> };
  readonly saved: Map<string, ILaunchForm>;
  /** Answers what is free; at first nothing is known of it. */
  readonly resources: ReturnType<typeof vi.fn>;
  /** Answer who uses what, and what room there is; at first nothing is known of them either. */
  readonly runningUse: ReturnType<typeof vi.fn>;
  readonly room: ReturnType<typeof vi.fn>;
  /** What the jobs' model has from now on. */
  readonly tell: (...jobs: IJob[]) => void;
}

export function here(...clusters: ICluster[]): IHere {
  const jobs = { jobs: [] as IJob[], connection: "live", problem: null, now: 200, clusters };
  const changed = new Signal<object, void>(jobs);
  const names: Record<string, [string, string][]> = {
    partition: [
      ["arandu", "1 node, 8 a100 a node"],
      ["devwork", "default, 4 nodes"],
    ],
    account: [["c4ai", "default"]],
    "gpu-of-node": [
      ["a100", "1 node, up to 8"],
      ["a100:1", "1 node"],
      ["1", "1 node"],
    ],
  };
  const api = {
    names: vi.fn((_cluster: string, kind: string) =>
      Promise.resolve((names[kind] ?? []).map(([name, about]) => ({ name, about }))),
    ),
    preview: vi.fn(() => Promise.resolve({})),
    launch: vi.fn(() => Promise.resolve(session("submitted"))),
    session: vi.fn(() => Promise.resolve(session("ready"))),
    reach: vi.fn(() => Promise.resolve(session("ready"))),
    stop: vi.fn(() => Promise.resolve(session("ended", { state: "CANCELLED" }))),
    log: vi.fn(() => Promise.resolve("")),
    address: vi.fn((path: string) => `http://here${path}`),
    newNotebook: vi.fn(() => Promise.resolve("/jupyter-slurm/key/lab/tree/Untitled.ipynb")),
    isIsolated: vi.fn(() => true),
  };
  const saved = new Map<string, ILaunchForm>();
  const drafts = new Map<string, Partial<ILaunchForm>>();
  const memory = {
    load: (cluster: string) => Promise.resolve(saved.get(cluster)),
    save: (cluster: string, form: ILaunchForm) => {
      saved.set(cluster, form);
      return Promise.resolve();
    },
    loadDraft: (name: string) => Promise.resolve(drafts.get(name)),
    saveDraft: (name: string, typed: Partial<ILaunchForm>) => {
      drafts.set(name, typed);
      return Promise.resolve();
    },
  };
  const told = Object.assign(jobs, { changed }) as unknown as IJobsModel;
  const tell = (...all: IJob[]): void => {
    jobs.jobs = all;
    changed.emit();
  };
  const resources = vi.fn(() => Promise.reject<IResources>(new Error("nobody knows")));
  const runningUse = vi.fn(() => Promise.reject<IRunningUse>(new Error("nobody knows")));
  const room = vi.fn(() => Promise.reject<IRoom>(new Error("nobody knows")));
  const known = new ResourcesModel({ resources, runningUse, room });
  const model = new SessionsModel(api, told, memory, known);
  return { model, api, saved, resources, runningUse, room, tell };
}
