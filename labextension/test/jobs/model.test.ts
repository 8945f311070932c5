import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { RequestError } from "../../src/common/api/problem";
import type { JobsModel } from "../../src/jobs/model";
import { MAX_FINISHED, MAX_OLDER } from "../../src/jobs/store";
import { Agent, CLUSTER, Desk, job } from "./fixtures";

describe("JobsModel", () => {
  let desk: Desk;
  let model: JobsModel;

  beforeEach(() => {
    desk = new Desk();
  });
  afterEach(() => {
    desk.dispose();
  });

  it("opens the stream before it asks for the table, so that no change falls between the two", async () => {
    const agent = new Agent();
    agent.table = [job("1", "RUNNING"), job("2", "PENDING"), job("3", "PENDING")];
    model = await desk.live(agent);
    expect(agent.asked).toEqual(["events", "clusters"]);
    expect([model.running, model.pending]).toEqual([1, 2]);
    expect(model.jobs.map(({ id }) => id)).toEqual(["1", "3", "2"]);
  });

  it("follows the stream, and keeps what has ended below what goes on", async () => {
    const agent = new Agent();
    agent.table = [job("1", "RUNNING"), job("2", "PENDING")];
    model = await desk.live(agent);
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
    const ended = Array.from({ length: MAX_FINISHED }, (_, id) => job(String(id), "COMPLETED"));
    agent.table = ended.slice(1);
    model = await desk.live(agent);
    expect([agent.finished, model.hasOlder]).toEqual([MAX_FINISHED, false]);
    agent.send("job", ended[0]);
    agent.send("job", job("7000", "FAILED"));
    await vi.waitFor(() => {
      expect([model.jobs[0]?.id, model.jobs.at(-1)?.id]).toEqual(["7000", "1"]);
    });
    expect([model.jobs.length, model.hasOlder]).toEqual([MAX_FINISHED, true]);
  });

  it("shows the jobs of a cluster beside one that does not answer, and what was last known there", async () => {
    const agent = new Agent();
    agent.known = [CLUSTER, { ...CLUSTER, id: "other" }];
    agent.table = [job("1", "RUNNING"), job("2", "PENDING", { cluster: "other" })];
    model = await desk.live(agent);
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
    model = await desk.live(agent);
    agent.table = [job("1", "RUNNING")];
    agent.send("cluster", CLUSTER);
    await vi.waitFor(() => {
      expect(model.running).toBe(1);
    });
  });

  it("asks what a terminal has submitted when somebody comes to look, by the stream that is open", async () => {
    const agent = new Agent();
    model = desk.start(agent, false);
    model.refreshQueue();
    model.setVisible(true);
    await vi.waitFor(() => {
      expect(model.connection).toBe("live");
    });
    agent.table = [job("1", "RUNNING")];
    model.refreshQueue();
    await vi.waitFor(() => {
      expect(model.running).toBe(1);
    });
    expect([agent.finished, agent.opened]).toEqual([0, 1]);
  });

  it("asks nothing while nobody looks, and learns afterwards what became of the jobs", async () => {
    const agent = new Agent();
    agent.table = [job("1", "RUNNING")];
    model = desk.start(agent, false);
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
    model = desk.start(agent);
    for (const wait of [2_000, 4_000, 8_000]) {
      await vi.waitFor(() => {
        expect(desk.waits.at(-1)).toBe(wait);
      });
      expect(model.connection).toBe("broken");
      expect(model.problem?.hint).toBe("Start one.");
      desk.proceed();
    }
    agent.failure = null; // before the attempt that the last wait has let go
    await vi.waitFor(() => {
      expect(model.connection).toBe("live");
    });
    expect(model.problem).toBeNull();
    agent.end(); // an agent that leaves in order is asked again soon
    await vi.waitFor(() => {
      expect(desk.waits.at(-1)).toBe(2_000);
    });
    expect(model.connection).not.toBe("broken");
  });

  it("has older jobs on request", async () => {
    const agent = new Agent();
    agent.table = Array.from({ length: MAX_FINISHED + 5 }, (_, id) => job(String(id), "COMPLETED"));
    model = await desk.live(agent);
    expect([model.jobs.length, model.hasOlder]).toEqual([MAX_FINISHED, true]);
    model.showOlder();
    await vi.waitFor(() => {
      expect([model.jobs.length, model.hasOlder]).toEqual([MAX_FINISHED + 5, false]);
    });
    expect(agent.finished).toBe(MAX_OLDER);
  });

  it("tells a broken connection in words", async () => {
    const agent = new Agent();
    agent.failure = new TypeError("Failed to fetch");
    model = desk.start(agent);
    await vi.waitFor(() => {
      expect(model.connection).toBe("broken");
    });
    expect(model.problem).toEqual({
      detail: "The Jupyter server does not answer. Check that it runs, and check the network.",
      hint: "The connection is retried automatically.",
    });
  });

  it("tells the time by the server's clock", () => {
    const agent = new Agent();
    agent.clockOffset = -3600;
    expect(desk.start(agent).now).toBe(-2600);
  });

  it("listens while nobody looks only where the person wants to be told then", async () => {
    const agent = new Agent();
    model = await desk.live(agent);
    model.setInBackground(true);
    model.setVisible(false);
    expect(model.connection).toBe("live");
    expect(agent.opened).toBe(1);
    model.setInBackground(false);
    expect(model.connection).toBe("paused");
    model.setVisible(true);
    await vi.waitFor(() => {
      expect(agent.opened).toBe(2);
    });
  });
});
