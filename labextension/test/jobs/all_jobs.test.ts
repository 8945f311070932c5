import { nullTranslator } from "@jupyterlab/translation";
import { Signal } from "@lumino/signaling";
import { Widget } from "@lumino/widgets";
import { afterEach, describe, expect, it, vi } from "vitest";

import type { IJob } from "../../src/common/api/objects";
import { RequestError } from "../../src/common/api/problem";
import type { IJobsModel } from "../../src/common/jobs_model";
import { AllJobs, type IQueue } from "../../src/jobs/all_jobs";
import { JobsPanel } from "../../src/jobs/panel";
import { JobStore } from "../../src/jobs/store";
import { asCsv } from "../../src/jobs/table/columns";
import { reasonLines } from "../../src/jobs/table/row_texts";
import { JobsTable } from "../../src/jobs/table/table_model";
import { CLUSTER, session } from "../sessions/fixtures";

const trans = nullTranslator.load("jupyter_slurm");
const HOSTILE = '<img src=x onerror="document.title=1">';

function queue(rows: readonly (readonly unknown[])[], more: Partial<IQueue> = {}): IQueue {
  const columns = ["id", "tasks", "user", "state", "reason", "partition", "nodes", "submit_time"];
  const standing = { asked_at: 1_700_000_000, unknown_since: null, said: "", interval: 30 };
  const reasons = { JobHeldUser: "It is held." };
  return { ...standing, user: "ana", is_private: false, columns, rows, reasons, ...more };
}

const ROWS = [
  ["7", null, "bob", "RUNNING", "", "arandu", "dgx01", 50],
  ["8", 2000, HOSTILE, "PENDING", "JobHeldUser", "devwork", "", 60],
];

class Own {
  readonly changed = new Signal<this, void>(this);
  readonly store = new JobStore();
  readonly clusters = [CLUSTER];
  readonly connection = "live";
  readonly problem = null;
  readonly failures = [];
  readonly runningActs = [];
  readonly prompts = [];
  readonly now = 100;
  pendingAct = (): null => null;
  refreshQueue = vi.fn();
  refresh = vi.fn();

  constructor(...jobs: IJob[]) {
    this.store.maxFinished = 100_000;
    this.store.put(jobs);
  }

  get jobs(): readonly IJob[] {
    return this.store.jobs;
  }

  put(job: IJob): void {
    this.store.put([job]);
    this.changed.emit();
  }
}

const MINE: IJob = { ...session("pending"), session: null, key: null, id: "9", label: "mine" };

function tableOf(own: Own, answer = vi.fn(() => Promise.resolve(queue(ROWS)))): JobsTable {
  return new JobsTable(
    own as unknown as IJobsModel,
    ["id", "name", "state"],
    null,
    new AllJobs({ queue: answer }),
  );
}

function shown(table: JobsTable): string {
  return table.lines.map(({ job: { id } }) => id).join();
}

describe("the jobs of everybody", () => {
  let widget: Widget | undefined;

  afterEach(() => {
    widget?.dispose();
  });

  it("are asked for when they are shown, and then only by a click; one's own go on as they are", async () => {
    const asked = vi.fn(() => Promise.resolve(queue(ROWS)));
    const own = new Own(MINE);
    const table = tableOf(own, asked);
    expect([shown(table), table.columns]).toEqual(["9", ["id", "name", "state"]]);
    expect(asked).not.toHaveBeenCalled();
    table.setAllUsers(true);
    table.loadAllJobs(); // while the answer is waited for
    await vi.waitFor(() => {
      expect(shown(table)).toBe("9,7,8");
    });
    expect(asked).toHaveBeenCalledExactlyOnceWith("local");
    expect(table.columns).toEqual(["id", "user", "name", "state"]);
    expect(table.chosen).toEqual(["id", "name", "state"]);
    table.moveColumn("name", -1);
    expect(table.columns).toEqual(["user", "id", "state", "name"]);
    own.put({ ...MINE, state: "RUNNING" });
    expect(table.lines[0]?.job).toMatchObject({ state: "RUNNING", user: "ana" });
    expect(table.counts.get("running")).toBe(2);
    table.filter("bob");
    expect(shown(table)).toBe("7");
    table.filter("ANA");
    expect(shown(table)).toBe("9");
    table.filter("");
    table.sortBy("user");
    expect(shown(table)).toBe("8,9,7"); // <, a, b
    expect(asCsv(table.jobs).split("\r\n")[2]).toMatch(/^local,7,.*,bob$/);
    table.click(1, { adds: false, extends: false });
    own.put({ ...MINE, submit_time: 500, restarts: 1 }); // requeued
    expect(table.marked).toMatchObject([{ id: "9", user: "ana" }]);
    expect(own.store.has(table.marked[0]!)).toBe(true);
    table.setAllUsers(false);
    expect([shown(table), table.criteria.sort]).toEqual(["9", null]);
    expect(asked).toHaveBeenCalledOnce();
  });

  it("offers nothing to be done with those of others, says how old they are, and what is hidden", async () => {
    const asked = vi.fn(() => Promise.resolve(queue(ROWS)));
    const acts = {
      ...{ act: vi.fn(), open: vi.fn(), write: vi.fn() },
      ...{ connect: vi.fn(), disconnect: vi.fn() },
    };
    const table = tableOf(new Own(MINE), asked);
    const panel = (widget = new JobsPanel(table, trans, acts));
    Widget.attach(panel, document.body);
    const { node } = panel;
    const button = (name: string): HTMLButtonElement =>
      [...node.querySelectorAll("button")].find(
        ({ textContent, ariaLabel }) => textContent === name || ariaLabel === name,
      )!;
    await vi.waitFor(() => {
      expect(node.querySelectorAll(".jp-Slurm-body [role=row]")).toHaveLength(1);
    });
    button("All users").click();
    await vi.waitFor(() => {
      expect(node.querySelectorAll(".jp-Slurm-body [role=row]")).toHaveLength(3);
    });
    expect(node.querySelector("h2")?.textContent).toBe("Slurm jobs of all users");
    expect(node.querySelectorAll(".jp-Slurm-action button")).toHaveLength(1);
    expect(node.querySelectorAll("button.jp-Slurm-fold")).toHaveLength(0);
    expect(node.querySelector("img")).toBeNull();
    expect(node.textContent).toContain(`8${HOSTILE}2000 tasks`);
    expect(table.jobs.map((job) => reasonLines(trans, job).at(-1))).toContain("It is held.");
    expect(asCsv(table.jobs)).toContain("JobHeldUser"); // Slurm's word, for programs
    const others = (): string => node.querySelector(".jp-Slurm-others")!.textContent;
    expect(others()).toMatch(/^Jobs of other users, checked [^.]+\. $/);
    table.markAll();
    await vi.waitFor(() => {
      expect(node.querySelector("[aria-label='Cancel 1 job']")).not.toBeNull();
    });

    asked.mockResolvedValueOnce(
      queue([], { is_private: true, unknown_since: 1, said: "Silence." }),
    );
    button("Refresh").click();
    await vi.waitFor(() => {
      expect(others()).toContain("arandu shows users only their own jobs (PrivateData=jobs).");
    });
    expect(others()).toMatch(/Not updated since .*Silence\./);
    asked.mockRejectedValueOnce(new RequestError({ detail: "Too much was asked." }));
    button("Refresh").click();
    await vi.waitFor(() => {
      expect(node.querySelector(".jp-Slurm-others [data-problem=true]")?.textContent).toMatch(
        /^Too much was asked\. Jobs of other users, checked/,
      );
    });
  });

  it("are asked for again as long as Slurm has not said what there is", async () => {
    const waits = new RequestError({ detail: "not yet", details: { retry_after: 0.01 } });
    const asked = vi.fn().mockRejectedValueOnce(waits).mockRejectedValueOnce(waits);
    asked.mockResolvedValue(queue(ROWS));
    const everybody = new AllJobs({ queue: asked });
    const said: unknown[] = [];
    everybody.changed.connect(() => said.push(everybody.stateOf("local").problem?.detail));
    await everybody.load(["local"]);
    expect(everybody.stateOf("local").jobs).toHaveLength(2);
    expect(said).toEqual([undefined, "not yet", "not yet", undefined]);
  });

  it("are fifty thousand, and a change of one's own does not sort them again", async () => {
    const many = Array.from({ length: 50_000 }, (_, id) => [
      ...[String(id + 1), null, `user${id % 300}`, id % 3 ? "PENDING" : "RUNNING"],
      ...["Priority", "arandu", "", id],
    ]);
    const own = new Own(MINE);
    const table = tableOf(
      own,
      vi.fn(() => Promise.resolve(queue(many))),
    );
    table.setAllUsers(true);
    await vi.waitFor(() => {
      expect(table.lines).toHaveLength(50_001);
    });
    const took = (act: () => void): number => {
      const begun = performance.now();
      act();
      return performance.now() - begun;
    };
    const whole = took(() => {
      table.sortBy("user");
      expect(table.lines).toHaveLength(50_001);
    });
    const each = Array.from({ length: 10 }, (_, at) =>
      took(() => {
        own.put({ ...MINE, reason: String(at) });
        expect(table.lines).toHaveLength(50_001);
      }),
    );
    expect(Math.min(...each)).toBeLessThan(whole); // the fastest: a busy machine makes any of them slow
  });
});
