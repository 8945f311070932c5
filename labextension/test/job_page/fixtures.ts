/** The page of a job, and an agent at the border of the process. */
import { nullTranslator } from "@jupyterlab/translation";
import { Signal } from "@lumino/signaling";
import { vi } from "vitest";

import type { IJob, IServerEvent } from "../../src/common/api/objects";
import { RequestError } from "../../src/common/api/problem";
import type { IJobsModel } from "../../src/common/jobs_model";
import type { IJobApi } from "../../src/job_page/api";
import { JobPage } from "../../src/job_page/model";

export const trans = nullTranslator.load("jupyter_slurm");
export const HOSTILE = '<img src=x onerror="document.title=1"><b>bold</b>';
export const KEY = "20261122-050000-0011223344556677";

export const JOB: IJob = {
  key: KEY,
  cluster: "local",
  id: "12",
  kind: "script",
  state: "RUNNING",
  reason: "",
  reason_text: "",
  next_step: "",
  submit_time: 100,
  start_time: 160,
  end_time: null,
  partition: "arandu",
  nodes: "dgx01",
  name: HOSTILE,
  label: null,
  known: true,
  unknown_since: null,
  tasks: null,
  time_limit: 3600,
  stdout: "/home/me/out",
  stderr: "/home/me/err",
  argv: ["sbatch", "-J", "two words"],
};

export const FAILED = { ...JOB, state: "FAILED", end_time: 200, exit_code: 3 };

type Api = { [Name in keyof IJobApi]: ReturnType<typeof vi.fn> };

export interface IHere {
  readonly page: JobPage;
  readonly api: Api;
  readonly files: { stdout: string; stderr: string };
  readonly hear: (event: string, data: unknown) => void;
  /** What the jobs' model has from now on. */
  readonly tell: (...jobs: IJob[]) => void;
  readonly streams: AbortSignal[];
}

/** A page, and an agent at the border of the process. */
export function here(job: IJob = JOB, place = "12"): IHere {
  const files = { stdout: "", stderr: "" };
  const heard: IServerEvent[] = [];
  const streams: AbortSignal[] = [];
  let wake = (): void => undefined;
  async function* follow(signal: AbortSignal): AsyncGenerator<IServerEvent> {
    signal.addEventListener("abort", () => {
      wake();
    });
    while (!signal.aborted) {
      const event = heard.shift();
      if (event?.event === "end") {
        return;
      }
      if (event !== undefined) {
        yield event;
      } else {
        await new Promise<void>((resolve) => (wake = resolve));
      }
    }
  }
  const api: Api = {
    job: vi.fn(() => Promise.resolve(job)),
    cancel: vi.fn(() => Promise.resolve({ ...job, state: "CANCELLED" })),
    resubmit: vi.fn(() => Promise.resolve({ ...job, id: "13" })),
    reader: vi.fn((_cluster: string, _job: string, stream: "stdout" | "stderr") => {
      return (offset: number, limit: number) => {
        const bytes = new TextEncoder().encode(files[stream]);
        const start = offset < 0 ? Math.max(0, bytes.length + offset) : offset;
        return Promise.resolve({ data: bytes.slice(start, start + limit), size: bytes.length });
      };
    }),
    follow: vi.fn((_cluster, _job, _offsets, signal: AbortSignal) => {
      streams.push(signal);
      return Promise.resolve(follow(signal));
    }),
    text: vi.fn((_cluster, _job, what: string) => Promise.resolve(`${what} ${HOSTILE}`)),
    record: vi.fn(() => Promise.resolve({ options: ["--time", "a b"], git: { commit: "abc" } })),
    report: vi.fn(() => Promise.reject(new RequestError({ detail: "Nothing was used yet." }))),
    usage: vi.fn(() =>
      Promise.resolve({
        node: "dgx01",
        cpus: 4,
        memory: 2 ** 30,
        gpus: 1,
        points: [
          { time: 100, cpus: 1, memory: 2 ** 20, gpu: null, gpu_memory: null },
          { time: 130, cpus: 4, memory: 2 ** 29, gpu: 0.5, gpu_memory: 2 ** 30 },
        ],
        note: HOSTILE,
      }),
    ),
    tasks: vi.fn(() =>
      Promise.resolve({
        columns: ["task", "state", "exit_code"],
        rows: [
          [3, "COMPLETED", 0],
          [4, "FAILED", 1],
        ],
        names: ["lr"],
        parameters: [["0.1"], [HOSTILE]],
      }),
    ),
    steps: vi.fn(() => Promise.resolve([])),
  };
  const jobs = {
    jobs: [] as IJob[],
    clusters: [],
    problem: null,
    now: 200,
    pendingAct: () => null,
  };
  const changed = new Signal<object, void>(jobs);
  const model = Object.assign(jobs, { changed }) as unknown as IJobsModel;
  const sleep = (): Promise<void> => Promise.resolve();
  const page = new JobPage(api, model, { cluster: "local", job: place }, sleep);
  return {
    page,
    api,
    files,
    streams,
    hear: (event, data) => {
      heard.push({ event, data });
      wake();
    },
    tell: (...known) => {
      jobs.jobs = known;
      changed.emit();
    },
  };
}
