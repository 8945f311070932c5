/** Sessions, and an agent at the border of the process, for the tests of what shows and launches them. */
import { Signal } from "@lumino/signaling";
import { vi } from "vitest";

import type { IForm } from "../src/form";
import { SessionsModel, type ISessionsApi, type SessionJob } from "../src/sessions";
import type { ICluster, IJob, IJobsModel } from "../src/tokens";

export const CLUSTER: ICluster = { id: "local", name: "arandu", poll: { error: null } };

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

export interface IHere {
  readonly model: SessionsModel;
  readonly api: { [Name in keyof ISessionsApi]: ReturnType<typeof vi.fn> };
  readonly saved: Map<string, IForm>;
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
  };
  const saved = new Map<string, IForm>();
  const memory = {
    load: (cluster: string) => Promise.resolve(saved.get(cluster)),
    save: (cluster: string, form: IForm) => {
      saved.set(cluster, form);
      return Promise.resolve();
    },
  };
  const told = Object.assign(jobs, { changed }) as unknown as IJobsModel;
  const tell = (...all: IJob[]): void => {
    jobs.jobs = all;
    changed.emit();
  };
  return { model: new SessionsModel(api, told, memory), api, saved, tell };
}
