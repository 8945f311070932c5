import { nullTranslator } from "@jupyterlab/translation";
import { describe, expect, it } from "vitest";

import type { ICluster, IJob, IProblem, IPrompt } from "../../src/common/api/objects";
import { RequestError, toProblem } from "../../src/common/api/problem";
import { formatClock, formatDuration, formatMinute, formatTime } from "../../src/common/format";
import { isCancellable, isFinished, stateKind } from "../../src/common/job_states";
import type { IJobsModel } from "../../src/common/jobs_model";
import {
  cancelBody,
  cancelTitle,
  connectionText,
  jobReason,
  jobTasks,
  jobTime,
  jobTimes,
  problemText,
  statusSummary,
  usersText,
} from "../../src/common/labels";
import { remainingSeconds } from "../../src/common/time_limit";
import { sortKey } from "../../src/jobs/table/columns";

const trans = nullTranslator.load("jupyter_slurm");

function model(more: Partial<IJobsModel>): IJobsModel {
  return {
    connection: "live",
    problem: null,
    clusters: [],
    prompts: [],
    running: 0,
    pending: 0,
    reconnected: null,
    ...more,
  } as IJobsModel;
}

describe("the status bar", () => {
  it("counts what runs and what waits", () => {
    expect(statusSummary(trans, model({ running: 2, pending: 1 }))).toBe(
      "Slurm: 2 running, 1 pending",
    );
    expect(statusSummary(trans, model({ pending: 3 }))).toBe("Slurm: 3 pending");
    expect(statusSummary(trans, model({}))).toBe("Slurm: no jobs");
    expect(statusSummary(trans, model({ connection: "broken", running: 2 }))).toBe(
      "Slurm: not reachable",
    );
  });

  it("says that the counts are old where a cluster does not answer", () => {
    const silent = { id: "local", name: "arandu", poll: { error: "Unable to contact slurm" } };
    const lost = { id: "far", poll: { error: null }, connection: { state: "lost" } } as ICluster;
    const checked = new Date(2026, 10, 26, 16, 15);
    const updatedAt = checked.getTime() / 1000;
    const time = formatMinute(checked.getTime() / 1000);
    const said = (more: Partial<IJobsModel>): string =>
      statusSummary(trans, model({ running: 2, updatedAt, ...more }));
    expect(said({})).toBe("Slurm: 2 running");
    for (const old of [{ clusters: [silent] }, { connection: "connecting" as const }]) {
      expect(said(old)).toBe(`Slurm: 2 running (checked ${time})`);
    }
    expect(said({ running: 0, clusters: [silent] })).toBe(`Slurm: no jobs (checked ${time})`);
    expect(said({ clusters: [lost] })).toBe(
      `Slurm: connection to far lost, 2 running (checked ${time})`,
    );
    expect(said({ clusters: [silent], updatedAt: null })).toBe("Slurm: 2 running");
  });

  it("says in words what becomes of a link", () => {
    const far = (state: string): ICluster =>
      ({ id: "far", name: "site", poll: { error: null }, connection: { state } }) as ICluster;
    const said = (more: Partial<IJobsModel>): string => statusSummary(trans, model(more));
    expect(said({ clusters: [far("lost")], running: 2 })).toBe(
      "Slurm: connection to far lost, 2 running",
    );
    expect(said({ clusters: [far("connecting")] })).toBe("Slurm: logging in to far");
    const asked = {
      cluster: "far",
      questions: [{ text: "Code:", echo: false }],
    } as unknown as IPrompt;
    expect(said({ clusters: [far("connecting")], prompts: [asked] })).toBe(
      "Slurm: login to far required",
    );
    expect(said({ clusters: [far("connecting")], prompts: [{ ...asked, questions: [] }] })).toBe(
      "Slurm: logging in to far",
    );
    expect(said({ clusters: [far("connected")], reconnected: far("connected") })).toBe(
      "Slurm: connection to far restored",
    );
    expect(said({ clusters: [far("disconnected")] })).toBe("Slurm: no jobs");
  });

  it("says what is wrong in words, with the next step", () => {
    const problem = { detail: "No agent answers.", hint: "Start one." };
    expect(connectionText(trans, model({ problem }))).toBe("No agent answers.\nStart one.");
    const silent = { id: "local", name: "arandu", poll: { error: "Unable to contact slurm" } };
    expect(connectionText(trans, model({ clusters: [silent] }))).toBe(
      "arandu: Unable to contact slurm",
    );
  });
});

describe("a job", () => {
  const waiting = {
    state: "PENDING",
    submit_time: 100,
    start_time: null,
    end_time: null,
    reason: "Priority",
    reason_text: "others are ahead",
    next_step: "wait",
    known: true,
    unknown_since: 130,
    tasks: null,
  } as IJob;

  it("has waited since it was submitted, runs since it started, and ran until its end", () => {
    expect(jobTime(waiting, 160)).toBe("1:00");
    for (const clock_offset of [-3600, 3600]) {
      // the cluster's clock is an hour off
      expect(jobTime({ ...waiting, clock_offset }, 160 - clock_offset)).toBe("1:00");
      const running = {
        ...waiting,
        state: "RUNNING",
        start_time: 150,
        time_limit: 60,
        clock_offset,
      };
      expect(jobTime(running, 160 - clock_offset)).toBe("0:10");
      expect(remainingSeconds(running, 160 - clock_offset)).toBe(50);
      expect(sortKey("time", running, 160 - clock_offset)).toBe(10);
    }
    expect(jobTime({ ...waiting, state: "RUNNING", start_time: 150 }, 160)).toBe("0:10");
    expect(jobTime({ ...waiting, state: "FAILED", start_time: 150, end_time: 155 }, 999)).toBe(
      "0:05",
    );
    expect(jobTime({ ...waiting, state: "CANCELLED", end_time: 155 }, 999)).toBe("");
  });

  it("says why it waits, and since when nothing is known of it", () => {
    expect(jobReason(trans, waiting)).toEqual(["others are ahead", "wait"]);
    const since = formatClock(130);
    expect(jobReason(trans, { ...waiting, known: false })[0]).toBe(`State unknown since ${since}.`);
    const nothing = { ...waiting, reason: "None", reason_text: "", next_step: "" };
    expect(jobReason(trans, nothing)).toEqual([]);
    const held = { ...waiting, id: "7", reason: "JobHeldUser", reason_text: "It is held." };
    const release = { ...held, next_step: "Release it with scontrol release 7." };
    expect(jobReason(trans, release)).toEqual(["It is held.", "Release it."]); // by a button
  });

  it("counts the tasks of an array", () => {
    expect(jobTasks(trans, waiting)).toBe("");
    expect(jobTasks(trans, { ...waiting, tasks: { PENDING: 1998, RUNNING: 3 } })).toBe(
      "2001 tasks",
    );
    expect(jobTasks(trans, { ...waiting, tasks: { FAILED: 1 } })).toBe("1 task");
  });

  it("is taken for finished only in states that we know to be an end", () => {
    expect(["COMPLETED", "CANCELLED by 1000", "OUT_OF_MEMORY"].every(isFinished)).toBe(true);
    expect(
      ["SUSPENDED", "RUNNING+COMPLETING", "A_NEW_ONE", "constructor", ""].some(isFinished),
    ).toBe(false);
    expect(stateKind("A_NEW_ONE")).toBe("unknown");
  });

  it("can be cancelled until its work is done", () => {
    expect(["PENDING", "RUNNING", "A_NEW_ONE"].every(isCancellable)).toBe(true);
    expect(["COMPLETED", "COMPLETING", "RUNNING+COMPLETING"].some(isCancellable)).toBe(false);
  });

  it("is named before it is cancelled, and so is the number of its tasks", () => {
    const job = { ...waiting, id: "12", name: "fit", label: null };
    expect(cancelTitle(trans, job)).toBe("Cancel job 12 (fit)?");
    expect(cancelTitle(trans, { ...job, name: null })).toBe("Cancel job 12?");
    expect(cancelTitle(trans, job, "far")).toBe("Cancel job 12 (fit · far)?");
    const turned = cancelTitle(trans, { ...job, name: "a\u202etl\u2067" }); // would turn what comes after it
    expect(turned).toBe("Cancel job 12 (a\ufffdtl\ufffd)?");
    expect(cancelTitle(trans, { ...job, id: null })).toBe("Cancel job fit?");
    expect(cancelTitle(trans, { ...job, name: "x".repeat(1000) })).toHaveLength(58);
    expect(cancelBody(trans, job)).toBe("Unsaved output of this job is lost.");
    const tasks = { PENDING: 1998, RUNNING: 3, COMPLETED: 7 };
    expect(cancelBody(trans, { ...job, tasks })).toContain("2001 unfinished tasks");
    expect(cancelBody(trans, { ...job, tasks: { RUNNING: 1 } })).toContain("1 unfinished task,");
  });

  it("tells when it was submitted, started and ended", () => {
    const when = formatTime;
    expect(jobTimes(trans, { ...waiting, start_time: 500 })).toBe(`Submitted ${when(100)}`);
    expect(jobTimes(trans, { ...waiting, state: "FAILED", start_time: 150, end_time: 155 })).toBe(
      `Submitted ${when(100)}\nStarted ${when(150)}\nEnded ${when(155)}`,
    );
  });
});

describe("a moment", () => {
  it("is written with 24 hours, as the Python side does, whatever the locale", () => {
    const at = new Date(2026, 0, 9, 16, 4, 5).getTime() / 1000;
    expect([formatTime(at), formatClock(at)]).toEqual(["2026-01-09 16:04:05", "16:04:05"]);
    expect(formatMinute(at)).toBe("2026-01-09 16:04");
    const today = new Date();
    today.setHours(7, 8, 9);
    expect(formatMinute(today.getTime() / 1000)).toBe("07:08");
  });
});

describe("formatDuration", () => {
  it("writes times as Slurm does", () => {
    expect([0, 61, 3600, 90061, -5].map(formatDuration)).toEqual([
      "0:00",
      "1:01",
      "1:00:00",
      "1-01:01:01",
      "0:00",
    ]);
  });
});

describe("who uses a log-in", () => {
  const used = (...kinds: string[]): ICluster => {
    const users = kinds.map((kind, index) => ({ kind, name: index ? "" : "fit.ipynb", since: 0 }));
    return { id: "far", name: "far", poll: { error: null }, users };
  };

  it("is told in words", () => {
    expect(usersText(trans, used())).toBe("");
    expect(usersText(trans, used("kernel"))).toBe("1 notebook uses it: fit.ipynb");
    expect(usersText(trans, used("kernel", "kernel"))).toBe(
      "2 notebooks use it: fit.ipynb, kernel",
    );
    expect(usersText(trans, used("kernel", "terminal"))).toBe(
      "2 processes use it: fit.ipynb, terminal",
    );
  });
});

describe("what went wrong", () => {
  it("is translated where the words are ours; the server's are left as they are", () => {
    const shouted = { __: trans.__.bind(trans), gettext: (text: string) => text.toUpperCase() };
    const said = (problem: IProblem): string =>
      problemText(shouted as unknown as typeof trans, problem);
    expect(said(toProblem(new TypeError("Failed to fetch"), "Try again."))).toBe(
      "THE JUPYTER SERVER DOES NOT ANSWER. CHECK THAT IT RUNS, AND CHECK THE NETWORK.\nTRY AGAIN.",
    );
    const refused = { detail: "Invalid account", hint: "Look into slurm-%1.out." };
    expect(said(toProblem(new RequestError(refused), "Try again."))).toBe(
      "Invalid account\nLook into slurm-%1.out.",
    );
    expect(said({})).toBe("The request failed.");
  });
});
