import { nullTranslator } from "@jupyterlab/translation";
import { Signal } from "@lumino/signaling";
import { describe, expect, it, vi } from "vitest";

import { ACTS, type Act, type IJob } from "../../../src/common/api/objects";
import { taskJobs } from "../../../src/common/api/records";
import { isAllowed } from "../../../src/common/job_states";
import type { IJobsModel } from "../../../src/common/jobs_model";
import { JobStore } from "../../../src/jobs/store";
import { asCsv, cellText, gridColumns } from "../../../src/jobs/table/columns";
import {
  listFacts,
  markOf,
  reasonLines,
  timeShare,
  timeText,
} from "../../../src/jobs/table/row_texts";
import { columnValues } from "../../../src/jobs/table/filters/column_filters";
import { PastJobs, type IPastJobsApi } from "../../../src/jobs/table/filters/period";
import { tableSettings } from "../../../src/jobs/table_settings";
import { JobsTable } from "../../../src/jobs/table/table_model";

const trans = nullTranslator.load("jupyter_slurm");

function job(id: number, state: string, more: Partial<IJob> = {}): IJob {
  return {
    key: null,
    cluster: "local",
    id: String(id),
    state,
    reason: "",
    reason_text: "",
    next_step: "",
    submit_time: id,
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

class Model {
  readonly changed = new Signal<this, void>(this);
  readonly store = new JobStore();
  private _jobs: readonly IJob[] | null = null;
  readonly clusters = [];
  now = 1000;
  loadParts = vi.fn((of: IJob) =>
    Promise.resolve([job(77, "RUNNING", { id: `${of.id ?? ""}_1` })]),
  );

  constructor(...jobs: IJob[]) {
    this.store.maxFinished = 100_000;
    this.store.put(jobs);
  }

  get jobs(): readonly IJob[] {
    return this._jobs ?? this.store.jobs;
  }

  jobsAre(jobs: readonly IJob[]): void {
    this._jobs = jobs;
    this.changed.emit();
  }

  put(...jobs: IJob[]): void {
    this.store.put(jobs);
    this.changed.emit();
  }
}

function tableOf(model: Model): JobsTable {
  return new JobsTable(model as unknown as IJobsModel);
}

function shown(table: JobsTable): string[] {
  return table.lines.map(({ job: { id } }) => id ?? "");
}

describe("jobs in their order", () => {
  it("are as if they were sorted anew, however they come and change", () => {
    const store = new JobStore();
    store.maxFinished = 40;
    const states = ["RUNNING", "PENDING", "COMPLETED", "FAILED", "CANCELLED by 0", "NEW_ONE"];
    const known = new Map<number, IJob>();
    let seed = 1;
    const random = (below: number): number => (seed = (seed * 48271) % 2147483647) % below;
    for (let turn = 0; turn < 2000; turn += 1) {
      const [id, submit_time] = [random(90), random(5)];
      const key = id * 10 + submit_time;
      const state = states[random(states.length)]!;
      const one = job(id, state, { key: String(key), submit_time });
      known.set(key, one);
      store.put([one]);
    }
    const other = new JobStore();
    other.maxFinished = 40;
    other.put([...store.jobs].reverse());
    expect(store.jobs.map(({ id }) => id)).toEqual(other.jobs.map(({ id }) => id));
    const going = [...known.values()].filter(({ state }) =>
      ["RUNNING", "PENDING", "NEW_ONE"].includes(state),
    );
    expect(store.jobs).toHaveLength(going.length + store.finished);
    expect(store.count("running")).toBe(going.filter(({ state }) => state === "RUNNING").length);
    expect([39, 40]).toContain(store.finished); // one of them may go on again
  });

  it("have one row for a requeued job without a key, and two for two jobs of one ID", () => {
    const model = new Model(job(5, "RUNNING"), job(6, "RUNNING"));
    const table = tableOf(model);
    const rows = (): string[] =>
      model.jobs.map(({ id, state, submit_time }) => [id, state, submit_time].join(" "));
    table.click(1, { adds: false, extends: false });
    model.put(job(5, "PENDING", { submit_time: 100, restarts: 1 }));
    expect(rows()).toEqual(["6 RUNNING 6", "5 PENDING 100"]);
    expect([table.marked[0]?.state, table.active]).toEqual(["PENDING", 1]);
    model.put(job(5, "RUNNING", { submit_time: 100, restarts: 1 }));
    expect([table.marked[0]?.state, table.active]).toEqual(["RUNNING", 0]);
    model.put(job(5, "FAILED", { submit_time: 100, restarts: 1 }));
    model.put(job(5, "PENDING", { submit_time: 200, restarts: 2 }));
    expect(rows()).toEqual(["6 RUNNING 6", "5 PENDING 200"]);
    model.put(job(5, "COMPLETED", { submit_time: 200, restarts: 2 }));
    model.put(job(5, "RUNNING", { submit_time: 300 })); // another job: the controller lost its state
    model.put(job(5, "COMPLETED", { submit_time: 200, restarts: 2 }));
    expect(rows()).toEqual(["5 RUNNING 300", "6 RUNNING 6", "5 COMPLETED 200"]);
    const loaded = new JobStore();
    const others = Array.from({ length: 200 }, (_, id) => job(1000 + id, "PENDING"));
    loaded.put([job(5, "RUNNING"), ...others]);
    loaded.put([job(5, "PENDING", { submit_time: 5000 }), ...others]);
    expect(loaded.jobs).toHaveLength(201);
    expect(loaded.jobs[0]?.submit_time).toBe(5000);
  });
});

describe("a table of jobs", () => {
  it("shows what is looked for, by words and by states", () => {
    const model = new Model(
      job(1, "RUNNING", { nodes: "dgx01", name: "Fit <b>" }),
      job(2, "PENDING", { reason: "JobHeldUser" }),
      job(3, "FAILED", { partition: "devwork" }),
    );
    const table = tableOf(model);
    for (const [text, ids] of [
      ["fit DGX01", ["1"]],
      ["held", ["2"]],
      ["devwork", ["3"]],
      ["<b>", ["1"]],
      ["nothing", []],
      ["", ["1", "2", "3"]],
    ] as const) {
      table.filter(text);
      expect(shown(table)).toEqual(ids);
    }
    table.toggleKind("failed");
    table.toggleKind("pending");
    expect(shown(table)).toEqual(["2", "3"]);
    model.put(job(4, "PENDING"), job(5, "RUNNING"));
    expect(shown(table)).toEqual(["4", "2", "3"]);
    expect(table.counts.get("running")).toBe(2);
  });

  it("filters single columns, by words and by values, and shows all again", () => {
    const model = new Model(
      job(1, "RUNNING", { nodes: "dgx01", name: "fit one", partition: "gpu" }),
      job(2, "PENDING", { reason: "JobHeldUser", partition: "gpu,cpu" }),
      job(3, "FAILED", { partition: "cpu", reason_text: "Out of memory." }),
      job(4, "RUNNING", { partition: "cpu", tasks: { RUNNING: 1, FAILED: 2 } }),
    );
    const table = tableOf(model);
    for (const [column, filter, ids] of [
      ["name", "ONE fit", ["1"]],
      ["name", "dgx01", []],
      ["nodes", "dgx", ["1"]],
      ["id", "4", ["4"]],
      ["reason", "held", ["2"]],
      ["reason", "memory", ["3"]],
      ["partition", ["cpu"], ["4", "2", "3"]],
      ["partition", ["gpu"], ["1", "2"]],
      ["state", ["FAILED"], ["4", "3"]],
      ["state", ["FAILED", "PENDING"], ["4", "2", "3"]],
      ["cluster", ["elsewhere"], []],
    ] as const) {
      table.clearFilters();
      table.filterColumn(column, filter);
      expect([column, filter, shown(table)]).toEqual([column, filter, ids]);
      expect(table.isFiltered).toBe(true);
    }
    table.clearFilters();
    table.filterColumn("partition", ["cpu"]);
    table.filterColumn("state", ["RUNNING"]);
    expect(shown(table)).toEqual(["4"]);
    table.filterColumn("state", []);
    table.filterColumn("partition", "");
    expect(table.isFiltered).toBe(false);
    expect(columnValues(model.jobs, "partition", ["old"])).toEqual([
      ["cpu", 3],
      ["gpu", 2],
      ["old", 0],
    ]);
  });

  it("shows the finished jobs of a period, for the longer ones asks the agent", async () => {
    const day = 86_400;
    const at = (days: number): Partial<IJob> => ({ end_time: 100 * day - days * day });
    const model = new Model(
      job(1, "RUNNING"),
      job(2, "FAILED", at(0.5)),
      job(3, "COMPLETED", at(2)),
      job(4, "COMPLETED", at(20)),
    );
    model.now = 100 * day;
    const owned = { ...model, clusters: [{ id: "local" }], jobs: model.jobs };
    const jobs = vi.fn(() =>
      Promise.resolve([job(0, "COMPLETED", at(60)), job(1, "RUNNING"), model.jobs.at(-1)!]),
    );
    const saved = vi.fn(() => Promise.resolve());
    const memory = { load: () => Promise.resolve({ period: 1 }), save: saved };
    const past = new PastJobs({ jobs });
    const table = new JobsTable(owned as unknown as IJobsModel, undefined, memory, null, past);
    expect(shown(table)).toEqual(["1", "4", "3", "2"]);
    await vi.waitFor(() => {
      expect(jobs).toHaveBeenCalledExactlyOnceWith("local", 50_000, 1);
    });
    expect(shown(table)).toEqual(["1", "2"]);
    table.setPeriod(7);
    expect(shown(table)).toEqual(["1", "3", "2"]);
    table.setPeriod(0);
    await vi.waitFor(() => {
      expect(shown(table)).toEqual(["1", "4", "3", "2", "0"]);
    });
    expect(jobs).toHaveBeenLastCalledWith("local", 50_000, 0);
    expect(saved).toHaveBeenLastCalledWith(expect.objectContaining({ period: 0 }));
    await vi.waitFor(() => {
      expect(past.isLoading).toBe(false);
    });
    jobs.mockRejectedValue(new Error("accounting"));
    table.loadPastJobs();
    await vi.waitFor(() => {
      expect(past.problem).not.toBeNull();
    });
    expect(shown(table)).toHaveLength(5);
    table.setPeriod(null);
    expect(shown(table)).toHaveLength(4);
  });

  it("asks once for each cluster where two tables have different periods", async () => {
    const owned = { ...new Model(), clusters: [{ id: "local" }], jobs: [] };
    const jobs = vi.fn<IPastJobsApi["jobs"]>(
      () => new Promise((resolve) => setTimeout(resolve, 1, [])),
    );
    const past = new PastJobs({ jobs });
    const [short, long] = [1, 2].map(
      () => new JobsTable(owned as unknown as IJobsModel, undefined, null, null, past),
    );
    short!.setPeriod(1);
    long!.setPeriod(7);
    const idle = async (): Promise<unknown[]> => {
      await new Promise((resolve) => setTimeout(resolve, 100));
      expect(past.isLoading).toBe(false);
      return jobs.mock.calls.map(([, , days]) => days);
    };
    expect(await idle()).toEqual([1, 7]);
    owned.changed.emit();
    expect(await idle()).toEqual([1, 7]);
    long!.loadPastJobs();
    short!.loadPastJobs(); // the request under way has these jobs, too
    expect(await idle()).toEqual([1, 7, 7]);
    short!.setPeriod(0);
    expect(await idle()).toEqual([1, 7, 7, 0]);
    owned.changed.emit();
    expect(await idle()).toEqual([1, 7, 7, 0]);
    short!.dispose();
    long!.dispose();
  });

  it("is sorted by a column, up, down, and as at first, and puts what changes in its place", () => {
    const names = ["b", "A", "c"];
    const model = new Model(...names.map((name, index) => job(index + 1, "RUNNING", { name })));
    const table = tableOf(model);
    table.sortBy("name");
    expect(shown(table)).toEqual(["2", "1", "3"]);
    model.put(job(4, "PENDING", { name: "aa" }), job(3, "RUNNING", { name: "0" }));
    expect(shown(table)).toEqual(["3", "2", "4", "1"]);
    table.sortBy("name");
    expect(shown(table)).toEqual(["1", "4", "2", "3"]);
    table.sortBy("name");
    expect(shown(table)).toEqual(["3", "2", "1", "4"]);
    table.sortBy("id");
    model.put(job(10, "RUNNING"));
    expect(shown(table)).toEqual(["1", "2", "3", "4", "10"]);
    const before = model.jobs;
    const many = Array.from({ length: 200 }, (_, id) => job(id + 100, "RUNNING"));
    model.jobsAre(many);
    expect(shown(table)).toHaveLength(200);
    model.jobsAre(before); // the very same ones come back
    expect(shown(table)).toEqual(["1", "2", "3", "4", "10"]);
  });

  it("marks lines as lists do", () => {
    const model = new Model(...[1, 2, 3, 4, 5].map((id) => job(id, "RUNNING")));
    const table = tableOf(model);
    const marked = (): string => table.marked.map(({ id }) => id).join("");
    const one = { adds: false, extends: false };
    expect(shown(table).join("")).toBe("54321");
    table.click(1, one);
    expect(marked()).toBe("4");
    table.click(3, { adds: false, extends: true });
    expect(marked()).toBe("432");
    table.click(0, { adds: true, extends: false });
    table.click(2, { adds: true, extends: false });
    expect(marked()).toBe("542");
    table.moveTo(0, false);
    expect([marked(), table.active]).toEqual(["542", 0]);
    table.moveTo(1, true);
    table.moveTo(2, true);
    expect(marked()).toBe("543");
    table.moveTo(1, true);
    expect(marked()).toBe("54");
    model.put(job(9, "RUNNING")); // what is marked, and where the keyboard is, goes with the job
    expect([marked(), table.active]).toEqual(["54", 2]);
    table.filter("job 4");
    expect(marked()).toBe("4"); // nothing is done with what is not seen
    table.filter("");
    table.markAll();
    expect(marked()).toBe("954321");
    table.unmark();
    expect(marked()).toBe("");
  });

  it("means for a command for one job that of the active line, and no other one once it is gone", () => {
    const model = new Model(...[1, 2, 3].map((id) => job(id, "RUNNING")));
    const table = tableOf(model);
    table.markAll();
    expect(table.target?.id).toBe("3");
    table.pointAt(1);
    expect([table.target?.id, table.marked.length]).toEqual(["2", 3]);
    model.jobsAre([job(3, "RUNNING"), job(1, "RUNNING")]);
    expect([table.target, table.marked.length]).toEqual([null, 2]); // its menu may still be open
    table.pointAt(0);
    expect(table.target?.id).toBe("3");
  });

  it("unfolds an array, and asks for its tasks again when it has changed", async () => {
    const model = new Model(job(1, "RUNNING", { tasks: { RUNNING: 2 } }), job(2, "RUNNING"));
    const table = tableOf(model);
    const [, array] = model.jobs;
    table.fold(array!, true);
    table.fold(model.jobs[0]!, true); // which has no parts
    await vi.waitFor(() => {
      expect(shown(table)).toEqual(["2", "1", "1_1"]);
    });
    model.put(job(1, "RUNNING", { tasks: { RUNNING: 1, FAILED: 1 } }), job(2, "COMPLETING"));
    await vi.waitFor(() => {
      expect(model.loadParts).toHaveBeenCalledTimes(2);
    });
    model.loadParts.mockRejectedValueOnce(new Error("gone"));
    model.put(job(1, "RUNNING", { tasks: { FAILED: 2 } }));
    await vi.waitFor(() => {
      expect(table.partsProblem(model.jobs[1]!)?.detail).toBe("gone");
    });
    expect(shown(table)).toEqual(["2", "1", "1_1"]);
    table.fold(model.jobs[1]!, false);
    expect(shown(table)).toEqual(["2", "1"]);
  });

  it("asks for the tasks of an array that changes all the time once at a time, and shows them", async () => {
    const model = new Model(job(1, "RUNNING", { tasks: { RUNNING: 10_000 } }));
    const table = tableOf(model);
    const answers: ((jobs: IJob[]) => void)[] = [];
    model.loadParts.mockImplementation(() => new Promise((resolve) => answers.push(resolve)));
    table.fold(model.jobs[0]!, true);
    for (let left = 10_000; left > 9_900; left -= 1) {
      model.put(job(1, "RUNNING", { tasks: { RUNNING: left } }));
    }
    expect(model.loadParts).toHaveBeenCalledTimes(1);
    answers[0]?.([job(77, "RUNNING", { id: "1_1" })]);
    await vi.waitFor(() => {
      expect(model.loadParts).toHaveBeenCalledTimes(2);
    });
    expect(shown(table)).toEqual(["1", "1_1"]);
    expect(model.loadParts).toHaveBeenLastCalledWith(model.jobs[0]);
    answers[1]?.([job(77, "FAILED", { id: "1_1" })]);
    await vi.waitFor(() => {
      expect(table.lines[1]?.job.state).toBe("FAILED");
    });
    expect(model.loadParts).toHaveBeenCalledTimes(2);
  });

  it("finds the job of a link, also one that comes later", () => {
    const model = new Model(job(1, "RUNNING"));
    const table = tableOf(model);
    table.filter("nothing");
    table.find("local", "7");
    expect(table.marked).toEqual([]);
    model.put(job(7, "PENDING", { key: "K" }));
    expect(table.marked.map(({ id }) => id)).toEqual(["7"]);
    table.find("local", "1");
    expect(table.marked.map(({ id }) => id)).toEqual(["1"]);
  });

  it("remembers its columns, and what it is sorted by, and takes nothing else from what is remembered", async () => {
    const saved: unknown[] = [];
    const memory = (told: unknown): ConstructorParameters<typeof JobsTable>[2] => ({
      load: () => Promise.resolve(told),
      save: (each) => Promise.resolve(void saved.push(JSON.parse(JSON.stringify(each)))),
    });
    const model = new Model() as unknown as IJobsModel;
    const table = new JobsTable(model, ["id", "name", "state"], memory(null));
    table.toggleColumn("name");
    table.toggleColumn("account");
    table.moveColumn("account", -1);
    table.sortBy("account");
    table.toggleKind("failed");
    expect(table.columns).toEqual(["id", "account", "state"]);
    const again = new JobsTable(model, undefined, memory(saved.at(-1)));
    await vi.waitFor(() => {
      expect(again.columns).toEqual(["id", "account", "state"]);
    });
    expect(again.criteria.sort).toEqual({ column: "account", isDescending: false });
    expect([...again.criteria.kinds]).toEqual(["failed"]);
    const older = new JobsTable(model, ["id"], memory({ kinds: ["ended", "failed", 3] }));
    await vi.waitFor(() => {
      expect([...older.criteria.kinds]).toEqual(["failed"]); // of what has no button, nobody could get rid
    });
    const odd = { columns: ["x", 3], sort: { column: "__proto__" }, kinds: "no" };
    const other = new JobsTable(model, ["id"], memory(odd));
    await Promise.resolve();
    other.toggleColumn("id"); // the last one stays
    expect([other.columns, other.criteria.sort]).toEqual([["id"], null]);
  });

  it("has an array with failed tasks among the failed jobs, with those tasks only", async () => {
    const model = new Model(
      job(3, "RUNNING", { tasks: { COMPLETED: 11, FAILED: 1, RUNNING: 3 } }),
      job(2, "RUNNING", { tasks: { COMPLETED: 4, RUNNING: 1 } }),
      job(1, "FAILED"),
    );
    model.loadParts.mockImplementation((of: IJob) =>
      Promise.resolve(
        ["COMPLETED", "FAILED", "RUNNING"].map((state, at) =>
          job(70 + at, state, { id: `${of.id ?? ""}_${at}` }),
        ),
      ),
    );
    const table = tableOf(model);
    const ids = (): (string | null)[] => table.lines.map(({ job: { id } }) => id);
    expect(table.counts.get("failed")).toBe(2);
    table.toggleKind("failed");
    await vi.waitFor(() => {
      expect(ids()).toEqual(["3", "3_1", "1"]);
    });
    expect(model.loadParts).toHaveBeenCalledOnce();
    table.toggleKind("failed");
    expect(ids()).toEqual(["3", "2", "1"]); // folded again
  });

  it("has the columns of the settings until others are chosen, and those again when they are", () => {
    const table = tableOf(new Model());
    table.configure(true, ["id", "qos"]);
    expect([table.columns, table.isCompact]).toEqual([["id", "qos"], true]);
    table.toggleColumn("name");
    table.configure(false, ["id", "state"]);
    expect([table.columns, table.isCompact]).toEqual([["id", "qos", "name"], false]);
    table.toggleColumn("name");
    table.toggleColumn("qos");
    table.toggleColumn("state");
    table.configure(false, ["name"]);
    expect(table.columns).toEqual(["name"]);
    const odd = { density: "tiny", columns: ["x", "id", "id"] };
    expect(tableSettings(odd)).toEqual({ density: "comfortable", columns: ["id"] });
    expect(tableSettings({ density: "compact", columns: [] }).columns).toHaveLength(7);
  });

  it("keeps the widths of its columns, whose template does not depend on a row", async () => {
    const saved: unknown[] = [];
    const memory = (told: unknown): ConstructorParameters<typeof JobsTable>[2] => ({
      load: () => Promise.resolve(told),
      save: (each) => Promise.resolve(void saved.push(JSON.parse(JSON.stringify(each)))),
    });
    const model = new Model() as unknown as IJobsModel;
    const table = new JobsTable(model, ["id", "reason", "time"], memory(null));
    const template = (each: JobsTable): string => gridColumns(each.columns, each.widths).template;
    expect(template(table)).toBe(
      "20px minmax(70px, 84px) minmax(clamp(120px, 100% - 254px, 400px), 1fr) minmax(104px, 136px) 28px",
    );
    table.resize("id", 150.4);
    table.resize("reason", 3);
    expect(template(table)).toBe("20px 150px 40px minmax(104px, 1fr) 28px");
    const again = new JobsTable(model, ["id", "reason", "time"], memory(saved.at(-1)));
    await vi.waitFor(() => {
      expect(again.widths).toEqual({ id: 150, reason: 40 });
    });
    again.resize("reason", null);
    expect(again.widths).toEqual({ id: 150 });
    const odd = new JobsTable(model, ["id"], memory({ widths: { id: "9", x: 50, name: -1 } }));
    await Promise.resolve();
    expect(odd.widths).toEqual({});
  });

  it("tells of a row what it is and how it stands, in few words", () => {
    const facts = (each: IJob): string => listFacts(trans, each, 1000, "").join(" · ");
    const running = job(1, "RUNNING", { start_time: 988, time_limit: 60 });
    expect(facts(running)).toBe("0:12 of 1:00 · arandu");
    expect(timeText(trans, running, 1000)).toBe("0:12 / 1:00");
    expect(timeShare(running, 1000)).toBe(0.2);
    expect(timeShare({ ...running, clock_offset: 100 }, 900)).toBe(0.2); // by the clock of the cluster
    const unlimited = { ...running, time_limit: 365 * 86_400 };
    expect(timeText(trans, unlimited, 1000)).toBe("0:12");
    expect(cellText("limit", unlimited, 1000)).toBe("UNLIMITED");
    expect(facts(job(971, "PENDING"))).toBe("waits 0:29 · arandu");
    const failed = job(1, "FAILED", { start_time: 1, end_time: 4 });
    expect(facts(failed)).toBe("FAILED · 0:03 · arandu");
    expect(timeShare(failed, 1000)).toBeNull();
    const done = job(1, "COMPLETED", { reason_text: "The job ended well." });
    expect(reasonLines(trans, done)).toEqual([]);
    const rows = [[7, "FAILED", "NonZeroExitCode", "A command was not found. (exit code 127)"]];
    const columns = ["task", "state", "reason", "reason_text"];
    const lost = taskJobs(job(1, "RUNNING"), { columns, rows });
    // In the words of the agent, which know of an exit code more than its number.
    expect(lost.map((task) => reasonLines(trans, task))).toEqual([
      ["A command was not found. (exit code 127)"],
    ]);
    const tasks = { COMPLETED: 11, TIMEOUT: 1, RUNNING: 3, PENDING: 5 };
    expect(reasonLines(trans, job(1, "RUNNING", { tasks }))).toEqual([
      "11 done, 1 failed, 3 running, 5 pending",
    ]);
    expect(timeText(trans, { ...running, tasks }, 1000)).toBe("0:12"); // each task has the limit
    expect(markOf(job(1, "RUNNING", { kind: "session" }))).toBe("session");
    expect(markOf(job(1, "RUNNING", { kind: "allocation", kernel: {} }))).toBe("kernel");
    expect(markOf(job(1, "RUNNING", { kind: "allocation" }))).toBe("allocation");
    expect(markOf(job(1, "RUNNING", { kind: "python" }))).toBeNull();
  });

  it("is copied as CSV that no spreadsheet takes for formulas", () => {
    const odd = job(1, "RUNNING", { name: '=1+1,"x"', nodes: "n[1-2]", start_time: 0 });
    expect(asCsv([odd]).split("\r\n")[1]).toBe(
      'local,1,"\'=1+1,""x""",RUNNING,,arandu,n[1-2],,,1970-01-01T00:00:01.000Z,1970-01-01T00:00:00.000Z,,,,',
    );
  });

  it("offers what a job's state allows", () => {
    const acts = (each: IJob): Act[] => ACTS.filter((act) => isAllowed(act, each));
    const held = (by: string): IJob => job(1, "PENDING", { reason: `JobHeld${by}` });
    expect(acts(job(1, "PENDING"))).toEqual(["cancel", "hold", "limit"]);
    expect(acts(held("User"))).toEqual(["cancel", "release", "limit"]);
    expect(acts(held("Admin"))).toEqual(["cancel", "limit"]);
    for (const reason of ["job requeued in held state", "JobHoldMaxRequeue"]) {
      expect(acts(job(1, "PENDING", { reason }))).toEqual(["cancel", "release", "limit"]);
    }
    expect(acts(job(1, "RUNNING"))).toEqual(["cancel", "requeue", "limit"]);
    expect(acts(job(1, "RUNNING", { kind: "allocation" }))).toEqual(["cancel", "limit"]);
    expect(acts(job(1, "RUNNING", { allocation: "key" }))).toEqual(["cancel"]);
    expect(acts(job(1, "RUNNING+COMPLETING"))).toEqual([]);
    expect(acts(job(1, "SUBMITTING", { id: null }))).toEqual(["cancel"]);
    expect(acts(job(1, "FAILED"))).toEqual([]);
  });
});

describe("fifty thousand jobs", () => {
  it("are not sorted again when one of them changes", () => {
    const states = ["COMPLETED", "FAILED", "RUNNING", "PENDING"];
    const many = Array.from({ length: 50_000 }, (_, id) => job(id + 1, states[id % 4]!));
    const model = new Model(...many.slice(0, 10));
    const table = tableOf(model);
    model.put(...many);
    table.sortBy("name");
    const took = (act: () => void): number => {
      const begun = performance.now();
      act();
      return performance.now() - begun;
    };
    const whole = took(() => {
      expect(table.lines).toHaveLength(50_000);
    });
    const each = Array.from({ length: 20 }, (_, id) =>
      took(() => {
        model.put(job(id + 1, "CANCELLED"));
        expect(table.lines).toHaveLength(50_000);
      }),
    );
    expect(Math.min(...each)).toBeLessThan(whole); // the fastest: a busy machine makes any of them slow
  });
});
