import { nullTranslator } from "@jupyterlab/translation";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import type { IActProgress } from "../../src/common/api/objects";
import { RequestError } from "../../src/common/api/problem";
import {
  actProgressText,
  actQuestion,
  failureLines,
  needsConfirmation,
} from "../../src/jobs/actions/action_labels";
import type { JobsModel } from "../../src/jobs/model";
import { Agent, CLUSTER, Desk, job } from "./fixtures";

const trans = nullTranslator.load("jupyter_slurm");

describe("what the model does with jobs", () => {
  let desk: Desk;
  let model: JobsModel;

  beforeEach(() => {
    desk = new Desk();
  });
  afterEach(() => {
    desk.dispose();
  });

  it("cancels, and tells a refusal", async () => {
    const agent = new Agent();
    agent.table = [job("1", "RUNNING")];
    model = desk.start(agent);
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
    model = desk.start(agent);
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

  it("takes a requeued job that runs again for running, not for being requeued", async () => {
    const agent = new Agent();
    agent.table = [job("1", "RUNNING")];
    agent.cancelled = "RUNNING";
    model = await desk.live(agent);
    await model.act("requeue", model.jobs);
    expect(model.pendingAct(model.jobs[0]!)).toBe("requeue");
    for (const state of ["PENDING", "RUNNING"]) {
      agent.send("job", job("1", state, { restarts: 1 }));
      await vi.waitFor(() => {
        expect(model.jobs[0]).toMatchObject({ state, restarts: 1 });
      });
      expect(model.pendingAct(model.jobs[0]!)).toBeNull();
    }
  });

  it("asks the other clusters too when one does not answer, and names the jobs of that one", async () => {
    const agent = new Agent();
    agent.known = [CLUSTER, { ...CLUSTER, id: "near" }];
    agent.table = [
      job("1", "RUNNING"),
      job("2", "RUNNING"),
      job("3", "RUNNING", { cluster: "near" }),
    ];
    model = await desk.live(agent);
    const answer = agent.act.bind(agent);
    agent.act = (cluster, ...rest) =>
      cluster === "local"
        ? Promise.reject(new TypeError("Failed to fetch"))
        : answer(cluster, ...rest);
    const ordered = [...model.jobs].sort((one, other) =>
      (one.id ?? "").localeCompare(other.id ?? ""),
    );
    await model.act("cancel", ordered);
    expect(agent.asked.at(-1)).toBe("cancel 3 on near");
    expect(model.failures.map(({ job: { id }, problem: { hint } }) => [id, hint])).toEqual(
      ["1", "2"].map((id) => [
        id,
        "It is not known whether the job was cancelled. Refresh the list.",
      ]),
    );
    expect(model.problem).toBeNull();
    expect(model.jobs.map((each) => model.pendingAct(each))).toEqual([null, null, null]);
    await model.act("cancel", ordered.slice(0, 2)); // a single request
    expect([model.failures.length, model.problem?.hint]).toEqual([
      0,
      "It is not known whether the job was cancelled. Refresh the list.",
    ]);
  });

  it("says of a job what is not known when nobody answers the request to cancel it", async () => {
    const agent = new Agent();
    agent.table = [job("1", "RUNNING")];
    model = desk.start(agent);
    await vi.waitFor(() => {
      expect(model.running).toBe(1);
    });
    agent.failure = new TypeError("Failed to fetch");
    await model.cancel(model.jobs[0]!);
    expect(model.problem?.hint).toBe(
      "It is not known whether the job was cancelled. Refresh the list.",
    );
  });

  it("does the same with many jobs in one request of each cluster, and tells which were refused", async () => {
    const agent = new Agent();
    agent.known = [CLUSTER, { ...CLUSTER, id: "near" }];
    agent.table = [
      ...Array.from({ length: 60 }, (_, id) => job(String(id + 1), "RUNNING")),
      job("99", "RUNNING", { cluster: "near" }),
    ];
    agent.refused = ["7", "9"];
    model = await desk.live(agent);
    const asked = model.act("cancel", model.jobs);
    expect(model.jobs.map((each) => model.pendingAct(each))).toEqual(Array(61).fill("cancel"));
    await asked;
    const requests = agent.asked.filter((each) => each.startsWith("cancel "));
    expect(requests.map((each) => each.split(",").length)).toEqual([1, 60]);
    expect(model.failures.map((each) => [each.job.id, each.problem.detail])).toEqual([
      ["9", "not 9"],
      ["7", "not 7"],
    ]);
    expect(model.problem).toBeNull();
    expect(model.jobs.filter(({ state }) => state === "COMPLETING")).toHaveLength(59);
    model.dismiss();
    expect(model.failures).toEqual([]);
    const [task] = await model.loadParts(job("12", "RUNNING", { tasks: { RUNNING: 1 } }));
    expect([task?.id, task?.state, task?.key, task?.nodes]).toEqual([
      "12_3",
      "RUNNING",
      null,
      "n1",
    ]);
    await model.act("cancel", [task!]); // its answer is no job of the table
    expect(model.jobs).toHaveLength(61);
    expect((await model.loadParts(job("5", "RUNNING", { kind: "allocation" })))[0]?.id).toBe("5.0");
  });

  it("forgets a hold with its answer: the state stays the same", async () => {
    const agent = new Agent();
    agent.table = [job("1", "PENDING")];
    agent.cancelled = "PENDING";
    model = await desk.live(agent);
    const asked = model.act("hold", model.jobs);
    expect(model.pendingAct(model.jobs[0]!)).toBe("hold");
    await asked;
    expect(model.pendingAct(model.jobs[0]!)).toBeNull();
    await model.act("limit", model.jobs, "4:00:00");
    expect(agent.asked.at(-1)).toBe("limit 1 on local 4:00:00");
    expect(model.pendingAct(model.jobs[0]!)).toBeNull();
  });

  it("shows the progress of an action on many jobs, also after a reload, and stops it", async () => {
    const agent = new Agent();
    const act: IActProgress = {
      ...{ id: "a1", cluster: "local", act: "cancel", state: "running", unread: false },
      ...{ total: 1000, done: 350, failed: 0, error: null },
    };
    agent.running = [act];
    model = await desk.live(agent);
    const told = (): string[] => model.runningActs.map((each) => actProgressText(trans, each));
    expect(told()).toEqual(["Cancelling 350 of 1000 jobs…"]);
    await model.stopAct(act);
    expect(agent.asked.at(-1)).toBe("stop a1");
    expect(told()).toEqual(["Stopping… 350 of 1000 jobs are done."]);
    const failed = { failed: 2, error: { detail: "Job 7 was not cancelled: Access denied." } };
    const over = { ...act, ...failed, state: "stopped" as const, done: 400, unread: true };
    agent.send("act", over);
    await vi.waitFor(() => {
      expect(told()).toEqual([
        "Cancel: stopped after 400 of 1000 jobs. It failed for 2 jobs. Job 7 was not cancelled: Access denied.",
      ]);
    });
    agent.running = [];
    await model.stopAct(over); // has ended, and another page has dismissed it
    expect([told(), model.problem]).toEqual([[], null]);
    agent.send("act", act);
    await vi.waitFor(() => {
      expect(told()).toHaveLength(1);
    });
    agent.send("act", { ...over, unread: false }); // its page has the answer
    await vi.waitFor(() => {
      expect(told()).toEqual([]);
    });
  });

  it("says one reason of many failures once, with their number", () => {
    const failures = ["11", "12", "13"].map((id) => ({
      job: job(id, "PENDING"),
      problem: {
        detail: `Job ${id} was not cancelled: ${id === "13" ? "Access denied" : "busy"}.`,
      },
    }));
    expect(failureLines(trans, failures, () => "")).toEqual([
      "2 jobs, for example 11: Job 11 was not cancelled: busy.",
      "13: Job 13 was not cancelled: Access denied.",
    ]);
  });

  it("lists the jobs of a confirmation, one a line, arrays with the tasks that the action affects", () => {
    const jobs = [
      job("7", "RUNNING", { name: "fit" }),
      job("8", "PENDING", { name: "sweep", tasks: { PENDING: 1000, RUNNING: 9, COMPLETED: 5 } }),
    ];
    const { title, body, items } = actQuestion(trans, "cancel", jobs, () => "");
    expect(title).toBe("Cancel 2 jobs?");
    expect(body).toBe("Unsaved output of these jobs is lost. 1 of them is an array (tasks: 1009).");
    expect(items).toEqual(["fit · 7", "sweep · 8 · 1009 tasks"]);
    const many = Array.from({ length: 25 }, (_, at) => job(String(at), "PENDING"));
    expect((["hold", "release"] as const).map((act) => needsConfirmation(act, many))).toEqual([
      true,
      true,
    ]);
    expect([needsConfirmation("hold", jobs), needsConfirmation("limit", many)]).toEqual([
      false,
      false,
    ]);
    const held = actQuestion(trans, "hold", many, () => "");
    expect([held.end, held.items.length, held.body]).toEqual([
      "Hold 25 jobs",
      25,
      "Held jobs do not start until they are released.",
    ]);
  });
});
