/** An agent at the border of the process, for the tests of the model of the jobs. */
import { expect, vi } from "vitest";

import type {
  IActProgress,
  ICluster,
  IJob,
  IOutcome,
  IPrompt,
  IServerEvent,
  ITaskRows,
} from "../../src/common/api/objects";
import { RequestError } from "../../src/common/api/problem";
import type { IJobsApi } from "../../src/jobs/api";
import { JobsModel } from "../../src/jobs/model";

export const CLUSTER: ICluster = { id: "local", name: "arandu", poll: { error: null } };

export function job(id: string, state: string, more: Partial<IJob> = {}): IJob {
  return {
    key: null,
    cluster: "local",
    id,
    state,
    reason: "",
    reason_text: "",
    next_step: "",
    submit_time: Number(id),
    start_time: null,
    end_time: null,
    partition: "arandu",
    nodes: null,
    name: `job ${id}`,
    label: null,
    known: true,
    unknown_since: null,
    tasks: null,
    ...more,
  };
}

/** Its table, and a stream that the test writes to. */
export class Agent implements IJobsApi {
  table: IJob[] = [];
  known = [CLUSTER];
  running: IActProgress[] = [];
  waiting: IPrompt[] = [];
  clockOffset = 0;
  opened = 0;
  finished = 0;
  cancelled = "COMPLETING";
  refused: string[] = [];
  asked: string[] = [];
  failure: Error | null = null;
  silent = "";
  private _send: (event: IServerEvent | null) => void = () => undefined;

  async clusters(): Promise<ICluster[]> {
    this.asked.push("clusters");
    if (this.failure !== null) {
      throw this.failure;
    }
    return Promise.resolve(this.known);
  }

  async jobs(cluster: string, finished: number): Promise<IJob[]> {
    this.finished = finished;
    if (cluster === this.silent) {
      throw new Error("no answer in time");
    }
    return Promise.resolve(this.table.filter((each) => each.cluster === cluster));
  }

  async job(_cluster: string, reference: string): Promise<IJob> {
    this.asked.push(`job ${reference}`);
    return Promise.resolve(job(reference, "COMPLETED"));
  }

  async act(
    cluster: string,
    act: string,
    jobs: readonly string[],
    limit = "",
  ): Promise<IOutcome[]> {
    this.asked.push(`${act} ${jobs.join(",")} on ${cluster} ${limit}`.trim());
    if (this.failure !== null && !(this.failure instanceof RequestError)) {
      throw this.failure;
    }
    const error = this.failure?.problem ?? null;
    return Promise.resolve(
      jobs.map((each) => {
        const isRefused = error !== null || this.refused.includes(each);
        return {
          job: each,
          error: isRefused ? (error ?? { detail: `not ${each}` }) : null,
          now: isRefused ? null : job(each, this.cancelled, { cluster }),
        };
      }),
    );
  }

  async acts(cluster: string): Promise<IActProgress[]> {
    return Promise.resolve(this.running.filter((each) => each.cluster === cluster));
  }

  async stopAct(_cluster: string, id: string): Promise<IActProgress> {
    this.asked.push(`stop ${id}`);
    const found = this.running.find((each) => each.id === id);
    return found
      ? Promise.resolve({ ...found, state: "stopping" })
      : Promise.reject(new RequestError({ status: 409, detail: "The action has ended." }));
  }

  async tasks(_cluster: string, reference: string): Promise<ITaskRows> {
    this.asked.push(`tasks ${reference}`);
    const columns = ["task", "state", "start_time", "nodes"];
    return Promise.resolve({ columns, rows: [[3, "RUNNING", 10, "n1"]] });
  }

  async steps(_cluster: string, reference: string): Promise<IJob[]> {
    this.asked.push(`steps ${reference}`);
    return Promise.resolve([job(`${reference}.0`, "RUNNING")]);
  }

  async connect(cluster: string): Promise<void> {
    this.asked.push(`connect ${cluster}`);
    return this.failure === null ? Promise.resolve() : Promise.reject(this.failure);
  }

  async disconnect(cluster: string): Promise<void> {
    this.asked.push(`disconnect ${cluster}`);
    return Promise.resolve();
  }

  async prompts(): Promise<IPrompt[]> {
    return Promise.resolve(this.waiting);
  }

  async answer(prompt: string, answers: readonly string[] | null): Promise<void> {
    this.asked.push(`answer ${prompt} ${JSON.stringify(answers)}`);
    return this.failure === null ? Promise.resolve() : Promise.reject(this.failure);
  }

  async events(signal: AbortSignal): Promise<AsyncIterable<IServerEvent>> {
    this.opened += 1;
    this.asked.push("events");
    const waiting: (IServerEvent | null)[] = [];
    let wake: () => void = () => undefined;
    this._send = (event) => {
      waiting.push(event);
      wake();
    };
    async function* stream(): AsyncGenerator<IServerEvent> {
      for (;;) {
        const event = waiting.shift();
        if (event === null) {
          return;
        }
        if (event !== undefined) {
          yield event;
          continue;
        }
        await new Promise<void>((resolve, reject) => {
          wake = resolve;
          signal.addEventListener("abort", () => {
            reject(new Error("aborted"));
          });
        });
      }
    }
    return Promise.resolve(stream());
  }

  send(event: string, data: unknown): void {
    this._send({ event, data });
  }

  end(): void {
    this._send(null);
  }
}

/** A model of such an agent, whose waits a test lets go. */
export class Desk {
  readonly waits: number[] = [];
  /** Let go of the wait that was begun last. */
  proceed: () => void = () => undefined;
  private _model: JobsModel | null = null;

  start(agent: Agent, visible = true): JobsModel {
    const sleep = (milliseconds: number, signal: AbortSignal): Promise<void> =>
      new Promise((resolve) => {
        this.waits.push(milliseconds);
        this.proceed = resolve;
        signal.addEventListener("abort", () => {
          resolve();
        });
      });
    const around = { api: agent, visible, sleep, random: () => 0.5, clock: () => 1000 };
    this._model = new JobsModel(around);
    return this._model;
  }

  async live(agent: Agent): Promise<JobsModel> {
    const model = this.start(agent);
    await vi.waitFor(() => {
      expect(model.connection).toBe("live");
    });
    return model;
  }

  dispose(): void {
    this._model?.dispose();
  }
}
