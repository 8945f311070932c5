import { afterEach, describe, expect, it, vi } from "vitest";

import { JobsModel } from "../src/model";
import { RequestError } from "../src/problem";
import { FINISHED_KEPT, OLDER_KEPT } from "../src/store";
import type {
  IAgentApi,
  ICluster,
  IConnection,
  IJob,
  IOutcome,
  IPrompt,
  IServerEvent,
  ITaskRows,
} from "../src/tokens";

const CLUSTER: ICluster = { id: "local", name: "arandu", poll: { error: null } };

function job(id: string, state: string, more: Partial<IJob> = {}): IJob {
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

/** An agent at the border of the process: its table, and a stream that the test writes to. */
class Agent implements IAgentApi {
  table: IJob[] = [];
  known = [CLUSTER];
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

describe("JobsModel", () => {
  let model: JobsModel;
  let waits: number[];
  let proceed: () => void;

  function start(agent: Agent, visible = true): JobsModel {
    waits = [];
    const sleep = (milliseconds: number, signal: AbortSignal): Promise<void> =>
      new Promise((resolve) => {
        waits.push(milliseconds);
        proceed = resolve;
        signal.addEventListener("abort", () => {
          resolve();
        });
      });
    model = new JobsModel({ api: agent, visible, sleep, random: () => 0.5, clock: () => 1000 });
    return model;
  }

  afterEach(() => {
    model.dispose();
  });

  it("opens the stream before it asks for the table, so that no change falls between the two", async () => {
    const agent = new Agent();
    agent.table = [job("1", "RUNNING"), job("2", "PENDING"), job("3", "PENDING")];
    start(agent);
    await vi.waitFor(() => {
      expect(model.connection).toBe("live");
    });
    expect(agent.asked).toEqual(["events", "clusters"]);
    expect([model.running, model.pending]).toEqual([1, 2]);
    expect(model.jobs.map(({ id }) => id)).toEqual(["1", "3", "2"]);
  });

  it("follows the stream, and keeps what has ended below what goes on", async () => {
    const agent = new Agent();
    agent.table = [job("1", "RUNNING"), job("2", "PENDING")];
    start(agent);
    await vi.waitFor(() => {
      expect(model.connection).toBe("live");
    });
    agent.send("job", job("2", "FAILED"));
    agent.send("job", job("7", "NEW_STATE_OF_SLURM_99"));
    agent.send("something-new", {});
    await vi.waitFor(() => {
      expect(model.jobs.map(({ id }) => id)).toEqual(["7", "1", "2"]);
    });
    expect([model.running, model.pending]).toEqual([1, 0]);
  });

  it("keeps the newest of what has ended, and knows that there are older ones", async () => {
    const agent = new Agent();
    const ended = Array.from({ length: FINISHED_KEPT }, (_, id) => job(String(id), "COMPLETED"));
    agent.table = ended.slice(1);
    start(agent);
    await vi.waitFor(() => {
      expect(model.connection).toBe("live");
    });
    expect([agent.finished, model.older]).toEqual([FINISHED_KEPT, false]);
    agent.send("job", ended[0]);
    agent.send("job", job("7000", "FAILED"));
    await vi.waitFor(() => {
      expect([model.jobs[0]?.id, model.jobs.at(-1)?.id]).toEqual(["7000", "1"]);
    });
    expect([model.jobs.length, model.older]).toEqual([FINISHED_KEPT, true]);
  });

  it("shows the jobs of a cluster beside one that does not answer, and what was last known there", async () => {
    const agent = new Agent();
    agent.known = [CLUSTER, { ...CLUSTER, id: "other" }];
    agent.table = [job("1", "RUNNING"), job("2", "PENDING", { cluster: "other" })];
    await live(agent);
    agent.silent = "other";
    agent.table = [job("3", "RUNNING")];
    model.refresh();
    await vi.waitFor(() => {
      expect(model.jobs.map(({ id }) => id).sort()).toEqual(["1", "2", "3"]);
    });
    expect(model.jobs.find(({ id }) => id === "2")?.state).toBe("PENDING");
    expect([model.connection, model.problem]).toEqual(["live", null]);
    agent.known = agent.known.slice(1);
    model.refresh();
    await vi.waitFor(() => {
      expect([model.connection, model.problem?.detail]).toEqual(["broken", "no answer in time"]);
    });
  });

  it("takes a cluster that comes later, with its jobs", async () => {
    const agent = new Agent();
    agent.known = [];
    start(agent);
    await vi.waitFor(() => {
      expect(model.connection).toBe("live");
    });
    agent.table = [job("1", "RUNNING")];
    agent.send("cluster", CLUSTER);
    await vi.waitFor(() => {
      expect(model.running).toBe(1);
    });
  });

  it("asks what a terminal has submitted when somebody comes to look, by the stream that is open", async () => {
    const agent = new Agent();
    start(agent, false);
    model.look();
    model.setVisible(true);
    await vi.waitFor(() => {
      expect(model.connection).toBe("live");
    });
    agent.table = [job("1", "RUNNING")];
    model.look();
    await vi.waitFor(() => {
      expect(model.running).toBe(1);
    });
    expect([agent.finished, agent.opened]).toEqual([0, 1]);
  });

  it("asks nothing while nobody looks, and learns afterwards what became of the jobs", async () => {
    const agent = new Agent();
    agent.table = [job("1", "RUNNING")];
    start(agent, false);
    expect([model.connection, agent.opened]).toEqual(["paused", 0]);
    model.setVisible(true);
    await vi.waitFor(() => {
      expect(model.running).toBe(1);
    });
    model.setVisible(false);
    agent.table = [];
    model.setVisible(true);
    await vi.waitFor(() => {
      expect(model.jobs.map(({ state }) => state)).toEqual(["COMPLETED"]);
    });
    expect(agent.asked).toContain("job 1");
    expect(agent.opened).toBe(2);
  });

  it("says why there is no connection, tries ever more rarely, and recovers", async () => {
    const agent = new Agent();
    agent.failure = new RequestError({ detail: "No agent answers.", hint: "Start one." });
    start(agent);
    for (const wait of [2_000, 4_000, 8_000]) {
      await vi.waitFor(() => {
        expect(waits.at(-1)).toBe(wait);
      });
      expect(model.connection).toBe("broken");
      expect(model.problem?.hint).toBe("Start one.");
      proceed();
    }
    agent.failure = null; // before the attempt that the last wait has let go
    await vi.waitFor(() => {
      expect(model.connection).toBe("live");
    });
    expect(model.problem).toBeNull();
    agent.end(); // an agent that leaves in order is asked again soon
    await vi.waitFor(() => {
      expect(waits.at(-1)).toBe(2_000);
    });
    expect(model.connection).not.toBe("broken");
  });

  it("cancels, and tells a refusal", async () => {
    const agent = new Agent();
    agent.table = [job("1", "RUNNING")];
    start(agent);
    await vi.waitFor(() => {
      expect(model.running).toBe(1);
    });
    const [running] = model.jobs;
    agent.failure = new RequestError({ detail: "Access denied." });
    const refused = model.cancel(running!);
    expect(model.isCancelling(running!)).toBe(true);
    await refused;
    expect(model.isCancelling(running!)).toBe(false);
    expect(model.problem?.detail).toBe("Access denied.");
    agent.failure = null;
    await model.cancel(running!);
    expect([model.jobs[0]?.state, model.problem]).toEqual(["COMPLETING", null]);
    agent.send("job", job("1", "CANCELLED"));
    await vi.waitFor(() => {
      expect([model.jobs[0]?.state, model.running]).toEqual(["CANCELLED", 0]);
    });
  });

  it("takes a job for being cancelled until it is seen in another state", async () => {
    const agent = new Agent();
    agent.table = [job("1", "RUNNING")];
    agent.cancelled = "RUNNING";
    start(agent);
    await vi.waitFor(() => {
      expect(model.running).toBe(1);
    });
    await model.cancel(model.jobs[0]!);
    expect(model.isCancelling(model.jobs[0]!)).toBe(true);
    agent.send("job", job("1", "PENDING")); // put back into the queue by somebody else
    await vi.waitFor(() => {
      expect(model.pending).toBe(1);
    });
    expect(model.isCancelling(model.jobs[0]!)).toBe(false);
  });

  it("says of a job what is not known when nobody answers the request to cancel it", async () => {
    const agent = new Agent();
    agent.table = [job("1", "RUNNING")];
    start(agent);
    await vi.waitFor(() => {
      expect(model.running).toBe(1);
    });
    agent.failure = new TypeError("Failed to fetch");
    await model.cancel(model.jobs[0]!);
    expect(model.problem?.hint).toBe("Whether the job was cancelled is not known: look again.");
  });

  it("does the same with many jobs in few requests, and tells which were refused", async () => {
    const agent = new Agent();
    agent.known = [CLUSTER, { ...CLUSTER, id: "near" }];
    agent.table = [
      ...Array.from({ length: 60 }, (_, id) => job(String(id + 1), "RUNNING")),
      job("99", "RUNNING", { cluster: "near" }),
    ];
    agent.refused = ["7", "9"];
    await live(agent);
    const asked = model.act("cancel", model.jobs);
    expect(model.jobs.map((each) => model.acting(each))).toEqual(Array(61).fill("cancel"));
    await asked;
    const requests = agent.asked.filter((each) => each.startsWith("cancel "));
    expect(requests.map((each) => each.split(",").length)).toEqual([1, 50, 10]);
    expect(model.failures.map((each) => [each.job.id, each.problem.detail])).toEqual([
      ["9", "not 9"],
      ["7", "not 7"],
    ]);
    expect(model.problem).toBeNull();
    expect(model.jobs.filter(({ state }) => state === "COMPLETING")).toHaveLength(59);
    model.dismiss();
    expect(model.failures).toEqual([]);
    const [task] = await model.parts(job("12", "RUNNING", { tasks: { RUNNING: 1 } }));
    expect([task?.id, task?.state, task?.key, task?.nodes]).toEqual([
      "12_3",
      "RUNNING",
      null,
      "n1",
    ]);
    await model.act("cancel", [task!]); // its answer is no job of the table
    expect(model.jobs).toHaveLength(61);
    expect((await model.parts(job("5", "RUNNING", { kind: "allocation" })))[0]?.id).toBe("5.0");
  });

  it("forgets a hold with its answer: the state stays the same", async () => {
    const agent = new Agent();
    agent.table = [job("1", "PENDING")];
    agent.cancelled = "PENDING";
    await live(agent);
    const asked = model.act("hold", model.jobs);
    expect(model.acting(model.jobs[0]!)).toBe("hold");
    await asked;
    expect(model.acting(model.jobs[0]!)).toBeNull();
    await model.act("limit", model.jobs, "4:00:00");
    expect(agent.asked.at(-1)).toBe("limit 1 on local 4:00:00");
    expect(model.acting(model.jobs[0]!)).toBeNull();
  });

  it("has older jobs on request", async () => {
    const agent = new Agent();
    agent.table = Array.from({ length: FINISHED_KEPT + 5 }, (_, id) =>
      job(String(id), "COMPLETED"),
    );
    await live(agent);
    expect([model.jobs.length, model.older]).toEqual([FINISHED_KEPT, true]);
    model.showOlder();
    await vi.waitFor(() => {
      expect([model.jobs.length, model.older]).toEqual([FINISHED_KEPT + 5, false]);
    });
    expect(agent.finished).toBe(OLDER_KEPT);
  });

  it("tells a broken connection in words", async () => {
    const agent = new Agent();
    agent.failure = new TypeError("Failed to fetch");
    start(agent);
    await vi.waitFor(() => {
      expect(model.connection).toBe("broken");
    });
    expect(model.problem).toEqual({
      detail: "The Jupyter server does not answer: has it ended, or the network?",
      hint: "The connection is tried again by itself.",
    });
  });

  it("tells the time by the server's clock", () => {
    const agent = new Agent();
    agent.clockOffset = -3600;
    expect(start(agent).now).toBe(-2600);
  });

  const FAR: ICluster = { ...CLUSTER, id: "far", name: "far" };
  const GATEWAY: IPrompt = {
    id: "ab",
    cluster: "far",
    host: "gateway",
    kind: "password",
    title: "",
    instruction: "",
    questions: [{ text: "Password: ", echo: false }],
  };

  function at(state: IConnection["state"]): ICluster {
    return { ...FAR, connection: { state, hosts: ["login"], since: 0, message: "" } };
  }

  async function live(agent: Agent): Promise<void> {
    start(agent);
    await vi.waitFor(() => {
      expect(model.connection).toBe("live");
    });
  }

  it("knows the jobs of a cluster as long as somebody is logged in there", async () => {
    const agent = new Agent();
    agent.known = [CLUSTER, at("disconnected")];
    agent.table = [job("1", "RUNNING"), job("2", "RUNNING", { cluster: "far" })];
    await live(agent);
    expect(model.running).toBe(1);
    agent.send("cluster", at("connecting"));
    agent.send("cluster", at("connected"));
    await vi.waitFor(() => {
      expect(model.running).toBe(2);
    });
    agent.send("cluster", at("lost"));
    agent.send("job", job("3", "PENDING"));
    await vi.waitFor(() => {
      expect(model.pending).toBe(1);
    });
    expect(model.running).toBe(2);
    agent.send("cluster", at("disconnected"));
    await vi.waitFor(() => {
      expect(model.running).toBe(1);
    });
  });

  it("tells for a moment that a lost link is back", async () => {
    const agent = new Agent();
    agent.known = [at("lost")];
    await live(agent);
    expect(model.returned).toBeNull();
    agent.send("cluster", at("connected"));
    await vi.waitFor(() => {
      expect(model.returned?.id).toBe("far");
    });
    proceed();
    await vi.waitFor(() => {
      expect(model.returned).toBeNull();
    });
  });

  it("listens while nobody looks only where the person wants to be told then", async () => {
    const agent = new Agent();
    await live(agent);
    model.setKept(true);
    model.setVisible(false);
    expect(model.connection).toBe("live");
    expect(agent.opened).toBe(1);
    model.setKept(false);
    expect(model.connection).toBe("paused");
    model.setVisible(true);
    await vi.waitFor(() => {
      expect(agent.opened).toBe(2);
    });
  });

  it("shows what was asked before it was there, and what is asked while a table is waited for", async () => {
    const agent = new Agent();
    agent.known = [at("connected")];
    agent.waiting = [GATEWAY];
    agent.jobs = () => new Promise(() => undefined);
    start(agent);
    await vi.waitFor(() => {
      expect(model.prompts).toEqual([GATEWAY]);
    });
    agent.send("prompt", { ...GATEWAY, id: "cd" });
    agent.send("prompt", { ...GATEWAY, questions: [], settled: true });
    await vi.waitFor(() => {
      expect(model.prompts.map(({ id }) => id)).toEqual(["cd"]);
    });
  });

  it("keeps a question whose answer did not arrive, and none that is settled", async () => {
    const agent = new Agent();
    agent.waiting = [GATEWAY];
    await live(agent);
    agent.failure = new TypeError("Failed to fetch");
    await model.answer(GATEWAY, ["hush"]);
    expect(model.prompts).toEqual([GATEWAY]);
    expect(model.problem?.hint).toContain("given anew");
    agent.failure = new RequestError({ status: 403, title: "403 Forbidden" });
    await model.answer(GATEWAY, ["hush"]);
    expect(model.prompts).toEqual([]);
    agent.send("prompt", GATEWAY);
    await vi.waitFor(() => {
      expect(model.prompts).toEqual([GATEWAY]);
    });
    const gone = { type: "urn:jupyter-slurm:error:prompt-gone", detail: "settled" };
    agent.failure = new RequestError(gone);
    await model.answer(GATEWAY, ["hush"]);
    expect(model.prompts).toEqual([]);
    expect(agent.asked.slice(-1)).toEqual(['answer ab ["hush"]']);
  });

  it("takes a request to connect that was cut off for no failure of the log-in", async () => {
    const agent = new Agent();
    agent.known = [at("connecting")];
    await live(agent);
    agent.failure = new RequestError({ status: 504, title: "504 Gateway Timeout" });
    await model.connect(FAR);
    expect(model.problem).toBeNull();
    const refused = { type: "urn:jupyter-slurm:error:login-failed", detail: "wrong password" };
    agent.failure = new RequestError(refused);
    await model.connect(FAR);
    expect(model.problem).toEqual(refused);
  });
});
