import { nullTranslator } from "@jupyterlab/translation";
import { Widget } from "@lumino/widgets";
import { afterEach, describe, expect, it, vi } from "vitest";

import { RequestError } from "../../src/common/api/problem";
import { JobsPanel } from "../../src/jobs/panel";
import { JobsTable } from "../../src/jobs/table/table_model";
import { Answers } from "../../src/resources/answers";
import { filesShare, spaceShare, type IRoom, type ISpace } from "../../src/resources/room";
import { groupUse, type IRunningUse } from "../../src/resources/running_use";
import { CLUSTER, here, RESOURCES, type IHere } from "../sessions/fixtures";

const trans = nullTranslator.load("jupyter_slurm");
const HOSTILE = '<img src=x onerror="document.title=1">';
const AGE = { asked_at: 1_700_000_000, unknown_since: null, said: "" };

const USE: IRunningUse = {
  ...AGE,
  user: "ana",
  is_private: false,
  sums: [
    { user: "eva", account: "lab", partition: "gpu", jobs: 2, cpus: 16, gpus: { a100: 4 } },
    { user: HOSTILE, account: "lab", partition: "gpu", jobs: 1, cpus: 8, gpus: { h100: 2 } },
    { user: "ana", account: "lab", partition: "gpu", jobs: 1, cpus: 4, gpus: { a100: 1 } },
    { user: "ana", account: "own", partition: "cpu", jobs: 3, cpus: 64, gpus: { "": 1 } },
    { user: "kim", account: "", partition: "cpu", jobs: 1, cpus: 99, gpus: {} },
  ],
};

const SPACE: ISpace = {
  ...{ folder: "/home/ana", file_system: "nas:/home", tool: "disk", owner: "" },
  ...{ used: 2 ** 40, limit: 4 * 2 ** 40, free: 2 ** 40, files: null, files_limit: null },
};

const ROOM: IRoom = {
  ...AGE,
  spaces: [
    SPACE,
    {
      ...{ ...SPACE, tool: "Lustre", owner: HOSTILE, used: 95 * 2 ** 30, limit: 100 * 2 ** 30 },
      ...{ free: 5 * 2 ** 30, files: 1_000_000, files_limit: 1_000_000 },
    },
    { ...SPACE, folder: null, tool: "quota", owner: "user ana", used: 5, limit: 5, free: 0 },
    { ...SPACE, tool: "newer", owner: "x", used: null, limit: null, free: null },
  ],
  reports: [{ name: "myquota", text: `ana ${HOSTILE}` }],
  kept: [
    { kind: "jobs", folder: "/home/ana/jobs", used: 2 ** 30 },
    { kind: "images", folder: "/home/ana/images", used: 0 },
    { kind: "newer", folder: "/x", used: 1 },
  ],
};

let widget: Widget | undefined;

afterEach(() => {
  widget?.dispose();
  vi.useRealTimers();
  vi.restoreAllMocks();
});

/** The panel with the folds of the cluster; opens them by their text. */
async function panel(desk: IHere): Promise<(text: string) => HTMLDetailsElement> {
  desk.resources.mockResolvedValue(RESOURCES);
  const acts = {
    act: vi.fn(),
    open: vi.fn(),
    write: vi.fn(),
    connect: vi.fn(),
    disconnect: vi.fn(),
  };
  const sessions = { model: desk.model, stop: vi.fn(), show: vi.fn() };
  const jobs = {
    ...desk.model.jobs,
    ...{ failures: [], runningActs: [], pendingAct: () => null, refreshClusters: vi.fn() },
  };
  widget = new JobsPanel(new JobsTable(jobs), trans, acts, { sessions });
  Widget.attach(widget, document.body);
  const { node } = widget;
  const find = (text: string): HTMLDetailsElement | undefined =>
    [...node.querySelectorAll("details")].find(
      ({ firstElementChild }) => firstElementChild?.textContent === text,
    );
  await vi.waitFor(() => {
    find("Free on arandu")!.open = true;
    expect(find("Quotas and free space")).toBeDefined();
  });
  return (text) => {
    const fold = find(text)!;
    fold.open = true;
    return fold;
  };
}

function rows(fold: HTMLElement): (string | null)[][] {
  return [...fold.querySelectorAll("tbody tr")].map((row) =>
    [...row.children].map(({ textContent }) => textContent),
  );
}

describe("answers that are loaded on request", () => {
  it("are asked for once in the time for which the agent keeps them, and after a click", async () => {
    let now = 0;
    const ask = vi.fn((cluster: string) => Promise.resolve(cluster));
    const answers = new Answers(ask, 60_000, () => now);
    await Promise.all([answers.keepRecent("a"), answers.keepRecent("a"), answers.load("a")]);
    now = 59_999;
    await answers.keepRecent("a");
    expect(ask).toHaveBeenCalledExactlyOnceWith("a", false);
    expect(answers.stateOf("a")).toEqual({ answer: "a", problem: null, isLoading: false });
    await answers.load("a");
    expect(ask).toHaveBeenLastCalledWith("a", true);
    now += 60_000;
    await answers.keepRecent("a");
    expect(ask).toHaveBeenCalledTimes(3);
    expect(ask).toHaveBeenLastCalledWith("a", false);
  });

  it("stay after a failed request, and are waited for where the agent has none yet", async () => {
    const waits = new RequestError({ detail: "not yet", details: { retry_after: 0.01 } });
    const ask = vi.fn<() => Promise<number>>().mockRejectedValueOnce(waits).mockResolvedValue(1);
    const answers = new Answers(ask, 60_000);
    const said: unknown[] = [];
    answers.changed.connect(() => said.push(answers.stateOf("a").problem?.detail));
    await answers.load("a");
    expect(said).toEqual([undefined, "not yet", undefined]);
    ask.mockRejectedValue(new Error("Slurm does not answer"));
    await answers.load("a");
    const problem = { detail: "Slurm does not answer" };
    expect(answers.stateOf("a")).toEqual({ answer: 1, problem, isLoading: false });
    answers.dispose();
    await answers.load("a");
    expect(answers.stateOf("a").isLoading).toBe(false);
  });
});

describe("the use by all users", () => {
  it("is summed by user, the own row first, then by GPUs", () => {
    const found = groupUse(USE, ["user"]).map(({ group, isOwn, jobs, cpus, gpus, types }) => [
      ...group,
      ...[isOwn, jobs, cpus, gpus, types],
    ]);
    expect(found).toEqual([
      ["ana", true, 4, 68, 2, [["", 1], ["a100", 1]]], // prettier-ignore
      ["eva", false, 2, 16, 4, [["a100", 4]]],
      [HOSTILE, false, 1, 8, 2, [["h100", 2]]],
      ["kim", false, 1, 99, 0, []],
    ]);
  });

  it("is summed by account and partition, in which no row is the user's alone", () => {
    const found = groupUse(USE, ["account"]).map(({ group, isOwn, gpus }) => [group, isOwn, gpus]);
    expect(found).toEqual([
      [["lab"], false, 7],
      [["own"], false, 1],
      [[""], false, 0],
    ]);
    const both = groupUse(USE, ["account", "partition"]).map(({ group }) => group.join());
    expect(both).toEqual(["lab,gpu", "own,cpu", ",cpu"]);
  });
});

describe("the share of a disk or a quota", () => {
  it.each<[Partial<ISpace>, unknown]>([
    [{}, { percent: 50, level: "free" }], // of what the system leaves, not of the size
    [
      { used: 90, limit: 100, free: 10 },
      { percent: 90, level: "free" },
    ],
    [
      { used: 901, limit: 1000, free: 99 },
      { percent: 91, level: "little" },
    ],
    [
      { used: 9999, limit: 10_000, free: 1 },
      { percent: 99, level: "little" },
    ],
    [
      { used: 120, limit: 100, free: 0 },
      { percent: 100, level: "full" },
    ],
    [
      { used: 50, limit: 100, free: null },
      { percent: 50, level: "free" },
    ],
    [{ used: 50, limit: null, free: null }, null],
    [{ used: null }, null],
  ])("of %o is %o", (changed, share) => {
    expect(spaceShare({ ...SPACE, ...changed })).toEqual(share);
  });

  it("counts files only where they have a limit", () => {
    expect(filesShare({ ...SPACE, files: 7 })).toBeNull();
    expect(filesShare({ ...SPACE, files: 95, files_limit: 100 })?.level).toBe("little");
  });
});

describe("the folds below what is free", () => {
  it("load who uses what when it is opened, as text, by the chosen keys", async () => {
    const desk = here(CLUSTER);
    desk.runningUse.mockResolvedValue(USE);
    const open = await panel(desk);
    expect(desk.runningUse).not.toHaveBeenCalled();
    const fold = open("GPUs and CPUs in use");
    await vi.waitFor(() => {
      expect(rows(fold)).toEqual([
        ["ana you1 without a type, 1 a100", "2", "1 without a type, 1 a100", "68", "4"],
        ["eva4 a100", "4", "4 a100", "16", "2"],
        [`${HOSTILE}2 h100`, "2", "2 h100", "8", "1"],
        ["kim", "0", "", "99", "1"],
      ]);
    });
    expect(fold.querySelector("img")).toBeNull();
    expect(fold.querySelectorAll("th[scope=row]")).toHaveLength(4);
    expect(fold.querySelectorAll("[data-own=true]")).toHaveLength(1);
    const select = fold.querySelector("select")!;
    expect(select.labels[0]?.textContent).toContain("Group by");
    select.value = "1";
    select.dispatchEvent(new Event("change", { bubbles: true }));
    await vi.waitFor(() => {
      expect(rows(fold).map(([name]) => name)).toEqual([
        "lab5 a100, 2 h100",
        "own", // of no type that Slurm says
        "none",
      ]);
    });
    expect(desk.runningUse).toHaveBeenCalledExactlyOnceWith("local");
    expect(desk.room).not.toHaveBeenCalled();
  });

  it("tell that nothing runs, that a site hides others, and why there is no answer", async () => {
    const desk = here(CLUSTER);
    desk.runningUse.mockResolvedValue({ ...USE, is_private: true, sums: [] });
    const open = await panel(desk);
    const [use, room] = [open("GPUs and CPUs in use"), open("Quotas and free space")];
    await vi.waitFor(() => {
      expect(use.textContent).toContain("No job is running.");
      expect(use.textContent).toContain("This cluster shows only your own jobs (PrivateData).");
      expect(room.querySelector("[aria-live]")?.textContent).toBe("nobody knows");
    });
    expect(room.querySelector("table")).toBeNull();
    desk.room.mockResolvedValue({ ...ROOM, spaces: [], unknown_since: 1, said: "No answer." });
    room.querySelector<HTMLButtonElement>(".jp-Slurm-age button")!.click();
    await vi.waitFor(() => {
      expect(room.textContent).toContain("The login node shows no free space.");
      expect(room.textContent).toMatch(/Not updated since.*No answer\./);
    });
    desk.room.mockRejectedValue(new Error("nobody knows"));
    room.querySelector<HTMLButtonElement>(".jp-Slurm-age button")!.click();
    await vi.waitFor(() => {
      expect(room.textContent).toMatch(/nobody knows Checked .*no free space/); // with the age of what is shown
    });
    expect(desk.room).toHaveBeenLastCalledWith("local", true);
  });

  it("show disks and quotas, and mark those that are nearly full in words", async () => {
    const desk = here(CLUSTER);
    desk.room.mockResolvedValue(ROOM);
    const fold = (await panel(desk))("Quotas and free space");
    await vi.waitFor(() => {
      expect(rows(fold).map(([, ...cells]) => cells)).toEqual([
        ["1.0 TiB", "4.0 TiB", "1.0 TiB", "50 %", ""],
        ["95.0 GiB", "100.0 GiB", "5.0 GiB", "95 %nearly full", "1,000,000 of 1,000,000 full"],
        ["5 B", "5 B", "0 B", "100 %full", ""],
        ["", "", "", "", ""],
      ]);
    });
    const heads = [...fold.querySelectorAll("th[scope=row]")].map((head) => head.textContent);
    expect(heads).toEqual([
      "/home/ana50 %disk, shared by all users1.0 TiB of 4.0 TiB, 1.0 TiB free",
      `/home/ana95 %nearly fullLustre quota of ${HOSTILE}95.0 GiB of 100.0 GiB, 5.0 GiB free` +
        "Files: 1,000,000 of 1,000,000, full",
      "nas:/home100 %fullquota of user ana5 B of 5 B, 0 B free",
      "/home/ananewer quota of x",
    ]);
    const levels = [...fold.querySelectorAll<HTMLElement>("td > [data-level]")];
    expect(levels.map(({ dataset }) => dataset["level"])).toEqual(["free", "little", "full"]);
    expect(fold.querySelector("pre")?.textContent).toBe(`ana ${HOSTILE}`);
    expect(fold.textContent).toContain("Job directories in /home/ana/jobs: 1.0 GiB");
    expect(fold.textContent).not.toContain("/home/ana/images");
    expect(fold.querySelector("img")).toBeNull();
  });

  it("are kept recent while they are open, and the tab is visible", async () => {
    const desk = here(CLUSTER);
    desk.runningUse.mockResolvedValue(USE);
    const open = await panel(desk);
    vi.useFakeTimers();
    const fold = open("GPUs and CPUs in use");
    // What opens and closes is drawn later, without a timer: each look here lets 50 ms of the timers pass.
    await vi.waitFor(() => {
      expect(desk.runningUse).toHaveBeenCalledTimes(1);
    });
    await vi.advanceTimersByTimeAsync(50_000);
    expect(desk.runningUse).toHaveBeenCalledTimes(1);
    await vi.advanceTimersByTimeAsync(20_000);
    expect(desk.runningUse).toHaveBeenCalledTimes(2);
    const hidden = vi.spyOn(document, "hidden", "get").mockReturnValue(true);
    await vi.advanceTimersByTimeAsync(300_000);
    expect(desk.runningUse).toHaveBeenCalledTimes(2);
    hidden.mockReturnValue(false);
    await vi.advanceTimersByTimeAsync(6_000);
    expect(desk.runningUse).toHaveBeenCalledTimes(3);
    fold.open = false;
    await vi.waitFor(() => {
      expect(fold.children).toHaveLength(1);
    });
    await vi.advanceTimersByTimeAsync(300_000);
    expect(desk.runningUse).toHaveBeenCalledTimes(3);
  });
});
