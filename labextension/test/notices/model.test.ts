import type { ISettingRegistry } from "@jupyterlab/settingregistry";
import { nullTranslator, type TranslationBundle } from "@jupyterlab/translation";
import { Signal } from "@lumino/signaling";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import schema from "../../schema/notices.json";
import type { IJob, IPrompt } from "../../src/common/api/objects";
import { createClaim, createTurnRequest } from "../../src/common/jupyterlab/browser_tabs";
import type { IJobsModel } from "../../src/common/jobs_model";
import { show } from "../../src/notices/browser_notifications";
import { lastErrorLine } from "../../src/notices/error_line";
import { describeNotices, openLabel } from "../../src/notices/labels";
import { DEFAULT_SETTINGS, Notices, type INotice } from "../../src/notices/model";
import { translatedSchema } from "../../src/common/jupyterlab/setting_texts";
import { noticeSettingTexts } from "../../src/notices/setting_labels";

const trans = nullTranslator.load("jupyter_slurm");

function job(id: string, state: string, more: Partial<IJob> = {}): IJob {
  return {
    key: `key-${id}`,
    cluster: "local",
    id,
    state,
    reason: "",
    reason_text: "",
    next_step: "",
    submit_time: 900,
    start_time: null,
    end_time: null,
    partition: "arandu",
    nodes: null,
    name: "train",
    label: null,
    known: true,
    unknown_since: null,
    tasks: null,
    ...more,
  };
}

const PROMPT: IPrompt = {
  id: "p1",
  cluster: "far",
  host: "gateway",
  kind: "keyboard-interactive",
  title: "",
  instruction: "",
  questions: [{ text: "Code:", echo: false }],
};

/** What the browser keeps for all tabs of a server. */
class Shared {
  readonly kept = new Map<string, string>();
  readonly getItem = (name: string): string | null => this.kept.get(name) ?? null;
  readonly setItem = (name: string, value: string): void => {
    this.kept.set(name, value);
  };
}

/** A tab: its model, and what it tells. */
class Tab {
  readonly model = {
    jobs: [] as IJob[],
    prompts: [] as IPrompt[],
    connection: "connecting",
    now: 1_000,
  };
  readonly told: INotice[][] = [];
  isHidden = false;
  /** The jobs whose page or card the person looks at. */
  seen: string[] = [];
  wishes = { ...DEFAULT_SETTINGS, started: true };
  readonly notices: Notices;
  private readonly _changed = new Signal<object, void>(this);

  constructor(shared = new Shared()) {
    const model = Object.assign(this.model, { changed: this._changed });
    this.notices = new Notices(model as unknown as IJobsModel, {
      settings: () => this.wishes,
      isHidden: () => this.isHidden,
      isSeen: ({ id }) => Promise.resolve(this.seen.includes(id ?? "")),
      claim: createClaim("told", { storage: () => shared, locks: null, clock: () => 0 }),
      show: (notices) => this.told.push([...notices]),
    });
  }

  get texts(): string[] {
    return this.told
      .flatMap((each) => describeNotices(trans, each, this.model.now))
      .map(({ text }) => text);
  }

  /** The agent tells of these jobs, and what was gathered is told. */
  async see(...jobs: IJob[]): Promise<void> {
    this.change(...jobs);
    await vi.runAllTimersAsync();
  }

  change(...jobs: IJob[]): void {
    this.model.connection = "live";
    this.model.jobs = jobs;
    this._changed.emit();
  }
}

describe("notices", () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  it("tell of what starts, ends and fails, not of what was so when the page was loaded", async () => {
    const tab = new Tab();
    await tab.see(job("1", "COMPLETED"), job("2", "RUNNING"), job("3", "PENDING"));
    expect(tab.told).toEqual([]);
    await tab.see(
      job("1", "COMPLETED"),
      job("2", "RUNNING"),
      job("3", "RUNNING", { nodes: "dgx01" }),
    );
    expect(tab.texts).toEqual(["train has started on dgx01."]);
    const failed = {
      name: "three",
      exit_code: 1,
      reason: "NonZeroExitCode",
      reason_text: "It ended with exit code 1.",
      next_step: "Read its log.",
    };
    await tab.see(job("2", "COMPLETED"), job("3", "FAILED", failed));
    expect(tab.texts.slice(1)).toEqual(["train has ended.", "three failed (exit code 1)."]);
    await tab.see(job("2", "COMPLETED"), job("3", "FAILED", { ...failed, end_time: 1_100 }));
    expect(tab.texts).toHaveLength(3);
  });

  it("judge a job that was never seen by its own times", async () => {
    const tab = new Tab();
    await tab.see();
    await tab.see(
      job("1", "COMPLETED", { end_time: 990 }),
      job("2", "COMPLETED", { end_time: 1_010 }),
      job("3", "RUNNING", { start_time: 990 }),
      job("4", "RUNNING", { start_time: 1_010 }),
    );
    expect(tab.texts).toEqual(["train has ended.", "train has started."]);
  });

  it.each([-3_600, 3_600])("judge it by the clock of the cluster, %i s ahead", async (offset) => {
    const tab = new Tab();
    await tab.see();
    const at = (time: number): Partial<IJob> => ({
      clock_offset: offset,
      start_time: time + offset,
      end_time: time + offset,
    });
    await tab.see(
      job("1", "COMPLETED", at(990)),
      job("2", "COMPLETED", at(1_010)),
      job("3", "RUNNING", { ...at(990), end_time: null }),
      job("4", "RUNNING", { ...at(1_010), end_time: null }),
    );
    expect(tab.texts).toEqual(["train has ended.", "train has started."]);
  });

  it("are silent of what was so before, and of what is not known now", async () => {
    const tab = new Tab();
    await tab.see(job("1", "PENDING"), job("2", "RUNNING"), job("3", "RUNNING"));
    await tab.see(
      job("1", "RUNNING", { start_time: 900 }), // the agent has just begun, and learns it
      job("2", "COMPLETED", { known: false }),
      job("3", "COMPLETED", { end_time: 950 }), // by a clock that is a little behind
    );
    expect(tab.texts).toEqual(["train has ended."]);
    await tab.see(job("2", "FAILED", { end_time: 1_100 }));
    expect(tab.texts.slice(1)).toEqual(["train failed (FAILED)."]);
  });

  it("name the failed task of an array, and how many failed", async () => {
    const tab = new Tab();
    const array = { name: "sweep", reason_text: "It ended with exit code 1." };
    await tab.see(job("9", "RUNNING", { ...array, tasks: { RUNNING: 20 } }));
    const failed_task = { task: 7, state: "FAILED", exit_code: 1, signal: null };
    const tasks = { COMPLETED: 19, FAILED: 1 };
    await tab.see(job("9", "FAILED", { ...array, tasks, failed_task, end_time: 1_100 }));
    expect(tab.texts).toEqual(["sweep: 1 of 20 tasks failed (task 7, exit code 1)."]);
    const [notification] = describeNotices(trans, tab.told.flat(), 0);
    expect(notification?.task).toBe(7);
    expect(openLabel(trans, notification!)).toBe("Show task 7");
  });

  it("fold a burst into one line", async () => {
    const tab = new Tab();
    const all = Array.from({ length: 15 }, (_, index) => String(index));
    await tab.see(...all.map((id) => job(id, "RUNNING")));
    all.forEach((_, end) => {
      tab.change(
        ...all.map((id, at) => job(id, at > end ? "RUNNING" : at < 3 ? "TIMEOUT" : "COMPLETED")),
      );
    });
    await vi.runAllTimersAsync();
    expect(tab.texts).toEqual(["3 jobs have failed, 12 jobs have ended"]);
    const [notification] = describeNotices(trans, tab.told.flat(), 0);
    expect(notification?.type).toBe("error");
    expect(openLabel(trans, notification!)).toBe("Show jobs");
  });

  it("are not of what sbatch has refused: who submitted it was told", async () => {
    const tab = new Tab();
    await tab.see(job("7", "FAILED", { name: "seven", reason: "BadConstraints", end_time: 1_100 }));
    await tab.see(
      job("8", "FAILED", { name: "eight", reason: "NonZeroExitCode", end_time: 1_100 }),
    );
    expect(tab.texts.join()).toContain("eight");
    expect(tab.texts.join()).not.toContain("seven");
  });

  it("are told by one tab, which is one that is seen", async () => {
    const shared = new Shared();
    const [hidden, seen] = [new Tab(shared), new Tab(shared)];
    hidden.isHidden = true;
    for (const state of ["RUNNING", "COMPLETED"]) {
      hidden.change(job("1", state));
      seen.change(job("1", state));
      await vi.runAllTimersAsync();
    }
    expect(seen.texts).toEqual(["train has ended."]);
    expect(hidden.texts).toEqual([]);
    await seen.see(job("1", "PENDING")); // requeued
    await seen.see(job("1", "RUNNING", { start_time: 1_200 }));
    await hidden.see(job("1", "RUNNING", { start_time: 1_200 }));
    await hidden.see(job("1", "COMPLETED", { start_time: 1_200, restarts: 1 }));
    expect(seen.texts.slice(1)).toEqual(["train has started."]);
    expect(hidden.texts).toEqual(["train has ended."]);
  });

  it("tell once that a time limit is near; of a short job when a quarter of it is left", async () => {
    const tab = new Tab();
    const long = job("1", "RUNNING", { start_time: 0, time_limit: 7_200 });
    const short = job("2", "RUNNING", { start_time: 900, time_limit: 600 });
    await tab.see(long, short, job("3", "RUNNING", { start_time: 0, time_limit: null }));
    const until = async (now: number): Promise<void> => {
      tab.model.now = now;
      tab.notices.checkTimeLimits();
      await vi.runAllTimersAsync();
    };
    await until(1_340);
    expect(tab.texts).toEqual([]);
    await until(1_360);
    expect(tab.texts).toEqual(["train reaches its time limit in 3 minutes."]);
    await until(6_310);
    await until(6_340);
    expect(tab.texts.slice(1)).toEqual(["train reaches its time limit in 15 minutes."]);
  });

  it("are silent of what the person sees already, but not of a limit that is near", async () => {
    const tab = new Tab();
    tab.seen = ["1", "2"];
    const near = { start_time: 0, time_limit: 1_010 };
    await tab.see(job("1", "RUNNING"), job("2", "RUNNING", near), job("3", "RUNNING"));
    await tab.see(job("1", "FAILED"), job("2", "RUNNING", near), job("3", "COMPLETED"));
    tab.notices.checkTimeLimits();
    await vi.runAllTimersAsync();
    expect(tab.told.flat().map((each) => [each.job?.id, each.kind])).toEqual([
      ["3", "ended"],
      ["2", "near-limit"],
    ]);
    tab.isHidden = true;
    await tab.see(job("2", "COMPLETED", near));
    expect(tab.texts).toHaveLength(3); // nobody sees a page that is hidden
  });

  it("are of a session when it can be opened for the first time, not of its start", async () => {
    const tab = new Tab();
    const session = (state: string, ready: number | null = null) => ({
      name: "jupyter",
      label: "jupyter-1",
      session: { state, ready_time: ready } as unknown as NonNullable<IJob["session"]>,
    });
    await tab.see(job("1", "PENDING", session("pending")));
    await tab.see(job("1", "RUNNING", session("starting")));
    expect(tab.texts).toEqual([]);
    await tab.see(job("1", "RUNNING", session("ready", 1_020)));
    await tab.see(job("1", "RUNNING", session("reconnecting", 1_020)));
    await tab.see(job("1", "RUNNING", session("ready", 1_020)));
    await tab.see(job("2", "RUNNING", session("ready", 900))); // before the page was loaded
    expect(tab.texts).toEqual(["Session jupyter-1 is ready."]);
    expect(describeNotices(trans, tab.told.flat(), 0)[0]?.shows).toBe("session");
    await tab.see(job("1", "TIMEOUT", session("ended")));
    expect(tab.texts.slice(1)).toEqual(["Session jupyter-1 failed (TIMEOUT)."]);
  });

  it("end with the last line of the error, where no cause is known that the output does not show", () => {
    const plain = job("1", "FAILED", {
      exit_code: 1,
      reason_text: "The job ended with exit code 1.",
    });
    const limit = job("2", "TIMEOUT", { reason_text: "It reached its time limit." });
    const killed = job("3", "FAILED", { signal: 9 });
    const notices = [plain, limit, killed].map(
      (each) => ({ key: "", kind: "failed", job: each, prompt: null }) as const,
    );
    const errors = new Map([
      [plain, "FileNotFoundError: x"],
      [killed, "Killed"],
    ]);
    expect(describeNotices(trans, notices, 0, errors).map(({ text }) => text)).toEqual([
      "train failed (exit code 1): FileNotFoundError: x",
      "train failed (TIMEOUT): It reached its time limit.",
      "train failed (signal 9): Killed",
    ]);
    const clusterOf = (): string => "arandu (one)";
    expect(describeNotices(trans, notices.slice(1, 2), 0, errors, clusterOf)[0]?.text).toBe(
      "train on arandu (one) failed (TIMEOUT): It reached its time limit.",
    );
    expect(lastErrorLine("Traceback\n\u001b[31mKeyError\u001b[0m: 'a'\r\n\n")).toBe(
      "KeyError: 'a'",
    );
    expect(lastErrorLine("ls: no file\nsrun: error: c1: task 0: Exited with exit code 2\n")).toBe(
      "ls: no file",
    );
    expect(lastErrorLine("slurmstepd: error: *** STEP KILLED ***")).toContain("KILLED");
    const ended =
      "[2026-05-04T10:11:12.345] error: *** JOB 7 ON c1 CANCELLED AT 2026-05-04T10:11:12 ***";
    expect(lastErrorLine(`ls: no file\n${ended}\n`)).toBe("ls: no file");
    expect(lastErrorLine("x".repeat(9_000))).toHaveLength(91);
    // Such characters would turn the words of the notification around them.
    expect(lastErrorLine("no\u202e file\u2067 x\n")).toBe("no\ufffd file\ufffd x");
  });

  it("tell of a log-in only where nobody sees its dialog", async () => {
    const tab = new Tab();
    tab.model.prompts = [PROMPT];
    await tab.see();
    expect(tab.told).toEqual([]);
    tab.isHidden = true;
    await tab.see();
    await tab.see();
    expect(tab.texts).toEqual(["gateway asks for the login to far."]);
    expect(describeNotices(trans, tab.told.flat(), 0)[0]?.isLogin).toBe(true);
  });

  it("are wished without settings as with those that nobody has changed", () => {
    const told = Object.entries(schema.properties).map(([name, each]) => [name, each.default]);
    expect(Object.fromEntries(told)).toEqual({ ...DEFAULT_SETTINGS, browser: false });
  });

  it("are told as they are wished", async () => {
    const tab = new Tab();
    tab.wishes = { ...DEFAULT_SETTINGS, ended: false };
    await tab.see(job("1", "PENDING"), job("2", "RUNNING"), job("3", "RUNNING"));
    await tab.see(job("1", "RUNNING"), job("2", "CANCELLED"), job("3", "NODE_FAIL"));
    expect(tab.texts).toEqual(["train failed (NODE_FAIL)."]);
  });
});

describe("a notice of the browser", () => {
  it("is left out where only a service worker could show it, as on telephones", () => {
    const told = {
      text: "Job 3 has ended.",
      type: "info",
      job: null,
      isLogin: false,
      isNearEnd: false,
      task: null,
      shows: "job",
    } as const;
    vi.stubGlobal("Notification", function () {
      throw new TypeError("Illegal constructor");
    });
    expect(() => {
      show(told, () => undefined);
    }).not.toThrow(); // what JupyterLab shows comes after it
    vi.unstubAllGlobals();
  });
});

type Hold = (lock: object | null) => unknown;

/** Web Locks as tabs have them in common: one holds a name, the others wait, or are told that it is held. */
class Locks {
  private readonly _held = new Map<string, Promise<unknown>>();

  async request(name: string, ...[first, last]: [Hold] | [LockOptions, Hold]): Promise<unknown> {
    const [{ signal, ifAvailable }, hold] =
      typeof first === "function" ? [{}, first] : [first, last as Hold];
    const before = this._held.get(name);
    if (ifAvailable && before) {
      return hold(null);
    }
    const turn = (before ?? Promise.resolve()).then(() => (signal?.aborted ? null : hold({})));
    this._held.set(name, turn);
    const told = await turn;
    if (this._held.get(name) === turn) {
      this._held.delete(name);
    }
    return told;
  }
}

describe("turns", () => {
  it("are of one tab at a time, of the next one when it goes, and of each where there are no locks", async () => {
    const heard: Record<string, boolean> = {};
    const locks = new Locks() as unknown as LockManager;
    const [one, two, three, alone] = ["one", "two", "three", "alone"].map((tab) =>
      createTurnRequest("hidden", tab === "alone" ? null : locks, (isOurs) => {
        heard[tab] = isOurs;
      }),
    ) as [Tell, Tell, Tell, Tell];
    for (const tab of [one, two, three, alone, one]) {
      tab(true);
    }
    await vi.waitFor(() => {
      expect(heard).toEqual({ one: true, alone: true });
    });
    two(false); // before it had its turn
    one(false);
    await vi.waitFor(() => {
      expect(heard).toEqual({ one: false, two: false, three: true, alone: true });
    });
    const request = (): Promise<never> => Promise.reject(new DOMException("no", "SecurityError"));
    createTurnRequest("hidden", { request }, (isOurs) => {
      heard["framed"] = isOurs;
    })(true);
    await vi.waitFor(() => {
      expect(heard["framed"]).toBe(true);
    });
  });
});

type Claim = ReturnType<typeof createClaim>;
type Tell = (isWanted: boolean) => void;

describe("claims", () => {
  it("work where the browser keeps nothing", async () => {
    const storage = (): Storage => {
      throw new DOMException("no", "SecurityError");
    };
    const claim = createClaim("told", { storage, locks: null });
    expect(await claim(["a", "b"])).toEqual(new Set(["a", "b"]));
    expect(await claim(["b", "c"])).toEqual(new Set(["c"]));
  });

  it("work where the browser has no locks for the page, and with anything that another page has kept", async () => {
    const shared = new Shared();
    const request = (): Promise<never> => Promise.reject(new DOMException("no", "SecurityError"));
    const locks = { request } as unknown as LockManager;
    for (const kept of ["", "[1,2]", '"x"', "null", '{"a":"x","__proto__":{"b":1}}', "{"]) {
      shared.kept.set("told", kept);
      const claim = createClaim("told", { storage: () => shared, locks });
      expect(await claim(["b", "toString"])).toEqual(new Set(["b", "toString"]));
      expect(await claim(["b"])).toEqual(new Set());
    }
  });

  it("go to one tab also where it hears late of what another has written", async () => {
    const locks = new Locks() as unknown as LockManager;
    const sleeping: (() => void)[] = [];
    const sleep = (): Promise<void> => new Promise((resolve) => sleeping.push(resolve));
    const [one, two] = [new Shared(), new Shared()].map((storage) =>
      createClaim("told", { storage: () => storage, locks, sleep }),
    ) as [Claim, Claim];
    expect(await Promise.all([one(["a", "b"]), two(["b", "c"])])).toEqual([
      new Set(["a", "b"]),
      new Set(["c"]),
    ]);
    expect(await two(["a"])).toEqual(new Set());
    expect(await one(["a", "d"])).toEqual(new Set(["d"]));
    sleeping.forEach((wake) => {
      wake();
    });
    await Promise.resolve();
  });

  it("have settings whose words are translated, all of them, and in English are those of the schema", () => {
    const told = schema as unknown as ISettingRegistry.ISchema;
    expect(translatedSchema(told, noticeSettingTexts(trans))).toEqual(told);
    const loud = { __: (text: string) => text.toUpperCase() } as unknown as TranslationBundle;
    const said = translatedSchema(told, noticeSettingTexts(loud));
    for (const one of [said, ...Object.values(said.properties ?? {})]) {
      for (const text of [one.title, one.description]) {
        expect(text).toBe(text?.toUpperCase());
      }
    }
  });

  it("forget what was told long ago", async () => {
    const shared = new Shared();
    let now = 0;
    const claim = createClaim("told", { storage: () => shared, locks: null, clock: () => now });
    await claim(["old"]);
    now = 25 * 3600 * 1000;
    await claim(["new"]);
    expect(Object.keys(JSON.parse(shared.kept.get("told") ?? "") as object)).toEqual(["new"]);
  });
});
