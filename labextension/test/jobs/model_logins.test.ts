import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import type { ICluster, IConnection, IPrompt } from "../../src/common/api/objects";
import { RequestError } from "../../src/common/api/problem";
import type { JobsModel } from "../../src/jobs/model";
import { Agent, CLUSTER, Desk, job } from "./fixtures";

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

describe("what the model knows of log-ins", () => {
  let desk: Desk;
  let model: JobsModel;

  beforeEach(() => {
    desk = new Desk();
  });
  afterEach(() => {
    desk.dispose();
  });

  it("knows the jobs of a cluster as long as somebody is logged in there", async () => {
    const agent = new Agent();
    agent.known = [CLUSTER, at("disconnected")];
    agent.table = [job("1", "RUNNING"), job("2", "RUNNING", { cluster: "far" })];
    model = await desk.live(agent);
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
    model = await desk.live(agent);
    expect(model.reconnected).toBeNull();
    agent.send("cluster", at("connected"));
    await vi.waitFor(() => {
      expect(model.reconnected?.id).toBe("far");
    });
    desk.proceed();
    await vi.waitFor(() => {
      expect(model.reconnected).toBeNull();
    });
  });

  it("shows what was asked before it was there, and what is asked while a table is waited for", async () => {
    const agent = new Agent();
    agent.known = [at("connected")];
    agent.waiting = [GATEWAY];
    agent.jobs = () => new Promise(() => undefined);
    model = desk.start(agent);
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
    model = await desk.live(agent);
    agent.failure = new TypeError("Failed to fetch");
    await model.answer(GATEWAY, ["hush"]);
    expect(model.prompts).toEqual([GATEWAY]);
    expect(model.problem?.hint).toContain("answer again");
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
    model = await desk.live(agent);
    agent.failure = new RequestError({ status: 504, title: "504 Gateway Timeout" });
    await model.connect(FAR);
    expect(model.problem).toBeNull();
    const refused = { type: "urn:jupyter-slurm:error:login-failed", detail: "wrong password" };
    agent.failure = new RequestError(refused);
    await model.connect(FAR);
    expect(model.problem).toEqual(refused);
  });
});
