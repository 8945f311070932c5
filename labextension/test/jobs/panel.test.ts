import { nullTranslator } from "@jupyterlab/translation";
import { MessageLoop } from "@lumino/messaging";
import { Signal } from "@lumino/signaling";
import { Widget } from "@lumino/widgets";
import { afterEach, describe, expect, it, vi } from "vitest";

import type { IJob } from "../../src/common/api/objects";
import type { IJobsModel } from "../../src/common/jobs_model";
import { JobsPanel } from "../../src/jobs/panel";
import { StatusItem } from "../../src/jobs/status_item";
import { JobsTable } from "../../src/jobs/table/table_model";

const ROW = ".jp-Slurm-body [role=row]";
const trans = nullTranslator.load("jupyter_slurm");
const HOSTILE = '<img src=x onerror="document.title=1"><b>bold</b>';

const JOB: IJob = {
  key: null,
  cluster: "local",
  id: "12",
  state: "PENDING",
  reason: HOSTILE,
  reason_text: "",
  next_step: "",
  submit_time: 0,
  start_time: null,
  end_time: null,
  partition: HOSTILE,
  nodes: HOSTILE,
  name: HOSTILE,
  label: null,
  known: true,
  unknown_since: null,
  tasks: null,
};

const NOTHING = {
  act: vi.fn(),
  open: vi.fn(),
  write: vi.fn(),
  connect: vi.fn(),
  disconnect: vi.fn(),
};

/** A panel with what a model holds. */
function panel(shown: IJobsModel, acts: Partial<typeof NOTHING> = {}): JobsPanel {
  return new JobsPanel(new JobsTable(shown), trans, { ...NOTHING, ...acts });
}

function model(jobs: IJob[]): IJobsModel {
  const owner = {};
  return {
    changed: new Signal(owner),
    connection: "live",
    problem: { detail: HOSTILE },
    clusters: [],
    prompts: [],
    jobs,
    running: 0,
    pending: 1,
    now: 60,
    updatedAt: 50,
    refreshClusters: () => undefined,
    failures: [],
    runningActs: [],
    pendingAct: () => null,
  } as unknown as IJobsModel;
}

describe("what is shown", () => {
  let widget: Widget | undefined;

  async function show(shown: Widget): Promise<HTMLElement> {
    widget = shown;
    Widget.attach(shown, document.body);
    await vi.waitFor(() => {
      expect(shown.node.childElementCount).toBeGreaterThan(0);
      // Rows come when it is known how much room there is for them.
      expect(
        shown.node.querySelector("[role=treegrid]") && !shown.node.querySelector(ROW),
      ).toBeFalsy();
    });
    return shown.node;
  }

  afterEach(() => {
    widget?.dispose();
  });

  it("takes text from outside as text", async () => {
    const node = await show(panel(model([JOB])));
    expect(node.querySelector("img, b")).toBeNull();
    expect(node.querySelector(".jp-Slurm-body .jp-Slurm-name")?.textContent).toBe(HOSTILE);
    expect(node.querySelector(".jp-Slurm-body .jp-Slurm-nodes")?.textContent).toBe(HOSTILE);
    expect(node.querySelector("[role=status]")?.textContent).toBe(HOSTILE);
  });

  it("offers to cancel what goes on, and nothing for what has ended", async () => {
    const act = vi.fn();
    const ended = { ...JOB, id: "11", state: "FAILED" };
    const ending = { ...JOB, id: "10", state: "COMPLETING" };
    const node = await show(panel(model([JOB, ending, ended]), { act }));
    const buttons = node.querySelectorAll<HTMLButtonElement>(".jp-Slurm-action button");
    expect(buttons).toHaveLength(1);
    buttons[0]!.click();
    expect(act).toHaveBeenCalledExactlyOnceWith("cancel", [JOB]);
  });

  it("shows an allocation that was given back as that, and how much of its time was used", async () => {
    const over = { ...JOB, state: "CANCELLED", start_time: 100, end_time: 160, time_limit: 3600 };
    const jobs: IJob[] = [
      { ...over, id: "9", released: "asked" },
      { ...over, id: "8", released: "forgotten", time_limit: null },
      { ...over, id: "7", released: "asked", state: "RUNNING", end_time: null },
      { ...over, id: "6", released: "asked", state: "TIMEOUT", reason_text: "too long" },
      { ...over, id: "5", released: null, reason: "None" },
    ];
    const node = await show(panel(model(jobs)));
    const rows = [...node.querySelectorAll<HTMLElement>(ROW)];
    const shown = rows.map((row) => [
      row.dataset["kind"],
      row.querySelector(".jp-Slurm-badge")?.textContent,
      row.querySelector(".jp-Slurm-reason")?.textContent,
    ]);
    expect(shown).toEqual([
      ["done", "released", "Used 1:00 of 1:00:00."],
      ["done", "released", "Used 1:00. Its kernel was killed and did not restart."],
      ["running", "being released", ""],
      ["failed", "TIMEOUT", "too long"],
      ["cancelled", "CANCELLED", ""],
    ]);
  });

  it("draws of very many jobs those in sight, and says how many there are", async () => {
    const showOlder = vi.fn();
    const many = Array.from({ length: 50_000 }, (_, id) => ({ ...JOB, id: String(id) }));
    const shown = { ...model(many), hasOlder: true, showOlder } as unknown as IJobsModel;
    const node = await show(panel(shown));
    expect(node.querySelectorAll(ROW).length).toBeLessThan(100);
    expect(node.querySelector("[role=treegrid]")?.ariaRowCount).toBe("50001");
    const links = [...node.querySelectorAll<HTMLButtonElement>(".jp-Slurm-link")];
    links.find(({ textContent }) => textContent === "Show older jobs")!.click();
    expect(showOlder).toHaveBeenCalledOnce();
  });

  it("is used by the keyboard alone", async () => {
    const acts = { act: vi.fn(), open: vi.fn(), write: vi.fn() };
    const jobs = ["3", "2", "1"].map((id) => ({ ...JOB, id, name: `job ${id}` }));
    const shown = panel(model(jobs), acts);
    const node = await show(shown);
    const grid = node.querySelector<HTMLElement>("[role=treegrid]")!;
    shown.activate();
    await vi.waitFor(() => {
      expect(document.activeElement?.className).toBe("jp-Slurm-filter");
    });
    const press = (key: string, more: KeyboardEventInit = {}): void => {
      grid.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, ...more }));
    };
    const rows = (which: string): (string | undefined)[] =>
      [...node.querySelectorAll(`${ROW}[${which}=true]`)].map(
        (row) => row.querySelector(".jp-Slurm-id")?.textContent,
      );
    const down = { key: "ArrowDown", bubbles: true };
    document.activeElement?.dispatchEvent(new KeyboardEvent("keydown", down));
    expect(document.activeElement).toBe(grid);
    MessageLoop.sendMessage(shown, Widget.Msg.ActivateRequest); // as by a click: whoever is within stays there
    await shown.renderPromise;
    expect(document.activeElement).toBe(grid);
    press("ArrowDown", { shiftKey: true });
    await vi.waitFor(() => {
      expect([rows("aria-selected"), rows("data-active")]).toEqual([["3", "2"], ["2"]]);
    });
    expect(grid.getAttribute("aria-activedescendant")).toBe(
      node.querySelector("[data-active=true]")?.id,
    );
    press("Enter");
    expect(acts.open).toHaveBeenCalledExactlyOnceWith(jobs[1]);
    press("Delete");
    expect(acts.act).toHaveBeenCalledExactlyOnceWith("cancel", jobs.slice(0, 2));
    press("c", { ctrlKey: true });
    expect(acts.write.mock.calls[0]?.[0]).toContain("local,3,job 3,PENDING");
    press("End");
    press(" ");
    await vi.waitFor(() => {
      expect(rows("aria-selected")).toEqual(["3", "2", "1"]);
    });
    press("Escape");
    await vi.waitFor(() => {
      expect(rows("aria-selected")).toEqual([]);
    });
    press("Delete"); // nothing is selected: it is about the line where the keyboard is
    expect(acts.act).toHaveBeenLastCalledWith("cancel", [jobs[2]]);
  });

  it("shows the columns that are wanted, in their order, and copies what is shown", async () => {
    const write = vi.fn();
    const node = await show(panel(model([JOB]), { write }));
    const heads = (): string[] =>
      [...node.querySelectorAll(".jp-Slurm-head .jp-Slurm-cell")].map((each) => each.textContent);
    const toggle = (name: string): void => {
      [...node.querySelectorAll("label")].find((each) => each.textContent === name)?.click();
    };
    expect(heads().slice(0, 3)).toEqual(["Job", "Name", "State"]);
    toggle("Name");
    toggle("Time limit");
    await vi.waitFor(() => {
      expect([heads().slice(0, 2), heads().at(-1)]).toEqual([["Job", "State"], "Time limit"]);
    });
    node.querySelector<HTMLElement>("[aria-label='Move column State to the left']")?.click();
    await vi.waitFor(() => {
      expect(heads().slice(0, 2)).toEqual(["State", "Job"]);
    });
    const buttons = [...node.querySelectorAll<HTMLElement>(".jp-Slurm-tools button")];
    buttons.find(({ textContent }) => textContent === "Copy as JSON")?.click();
    expect(JSON.parse(String(write.mock.calls[0]?.[0]))).toEqual([JOB]);
  });

  it("offers with the selected jobs what they allow, and tells which were refused", async () => {
    const act = vi.fn();
    const jobs = [
      { ...JOB, id: "3", reason: "" },
      { ...JOB, id: "2", reason: "JobHeldUser" },
      { ...JOB, id: "1", state: "FAILED" },
    ];
    const failures = [{ job: jobs[0]!, problem: { detail: HOSTILE, hint: "Ask." } }];
    const shown = { ...model(jobs), failures } as unknown as IJobsModel;
    const node = await show(panel(shown, { act }));
    expect(node.querySelector("[role=alert] li")?.textContent).toBe(`3: ${HOSTILE} Ask.`);
    node.querySelectorAll<HTMLElement>(ROW)[0]!.click();
    node
      .querySelectorAll<HTMLElement>(ROW)[2]!
      .dispatchEvent(new MouseEvent("click", { bubbles: true, shiftKey: true }));
    const offered = (): string[] =>
      [...node.querySelectorAll<HTMLElement>(".jp-Slurm-marked button:enabled")].map(
        ({ ariaLabel, textContent }) => ariaLabel ?? textContent,
      );
    await vi.waitFor(() => {
      expect(offered()).toEqual([
        "Cancel 2 jobs",
        "Hold 1 job",
        "Release 1 job",
        "Time limit of 2 jobs…",
        "Clear selection",
      ]);
    });
    const [cancel, , , , clear] = node.querySelectorAll<HTMLElement>(
      ".jp-Slurm-marked button:enabled",
    );
    cancel?.click();
    expect(act).toHaveBeenCalledExactlyOnceWith("cancel", jobs.slice(0, 2));
    clear?.focus();
    clear?.click(); // with the button, the keyboard would have been gone
    await vi.waitFor(() => {
      expect(offered()).toEqual([]);
    });
    expect(document.activeElement?.role).toBe("treegrid");
  });

  it("keeps all actions in their place, whether something is selected or not", async () => {
    const node = await show(panel(model([{ ...JOB, reason: "" }])));
    const drawn = (): string[] =>
      [...node.querySelectorAll<HTMLElement>(".jp-Slurm-marked button")].map(
        ({ textContent }) => textContent,
      );
    const before = drawn();
    expect(node.querySelectorAll(".jp-Slurm-marked button svg")).toHaveLength(5); // an icon for each action
    expect(node.querySelector(".jp-Slurm-marked button:enabled")).toBeNull();
    node.querySelector<HTMLElement>(ROW)?.click();
    await vi.waitFor(() => {
      expect(node.querySelector(".jp-Slurm-marked button:enabled")).not.toBeNull();
    });
    expect(drawn()).toEqual(before);
  });

  it("opens what the first click has hit, and the name with one click", async () => {
    const open = vi.fn();
    const jobs = [
      { ...JOB, id: "2" },
      { ...JOB, id: "1" },
    ];
    const shown = model(jobs);
    const node = await show(panel(shown, { open }));
    const rows = (): HTMLElement[] => [...node.querySelectorAll<HTMLElement>(ROW)];
    const press = (type: string, detail: number): void => {
      rows()[0]?.dispatchEvent(new MouseEvent(type, { bubbles: true, detail }));
    };
    press("click", 1);
    const later = { ...JOB, id: "3" };
    Object.assign(shown, { jobs: [later, ...jobs] });
    (shown.changed as unknown as { emit: () => void }).emit(); // a new job comes first, below the pointer
    await vi.waitFor(() => {
      expect(rows()).toHaveLength(3);
    });
    press("click", 2);
    press("dblclick", 2);
    expect(open).toHaveBeenCalledExactlyOnceWith(jobs[0]);
    rows()[0]?.querySelector<HTMLElement>(".jp-Slurm-name button")?.click();
    expect(open).toHaveBeenLastCalledWith(later);
  });

  it("acts on the job of the row, also where a change of the list is not drawn yet", async () => {
    const listed = (...ids: string[]): IJob[] => ids.map((id) => ({ ...JOB, id }));
    const shown = model(listed("4", "3", "2", "1"));
    const table = new JobsTable(shown);
    const node = await show(new JobsPanel(table, trans, NOTHING));
    const menu = vi.fn();
    document.body.addEventListener("contextmenu", menu);
    const rows = new Map(
      [...node.querySelectorAll<HTMLElement>(ROW)].map((row) => [
        row.querySelector(".jp-Slurm-id")?.textContent,
        row,
      ]),
    );
    const press = (id: string, type: string, more: MouseEventInit = {}): string[] => {
      const event = new MouseEvent(type, { bubbles: true, cancelable: true, ...more });
      rows.get(id)!.dispatchEvent(event);
      return table.marked.map((job) => job.id ?? "");
    };
    Object.assign(shown, { jobs: listed("6", "5", "3", "2", "1") }); // drawn a moment later
    expect(press("2", "click")).toEqual(["2"]);
    expect(press("1", "contextmenu")).toEqual(["1"]);
    expect(press("3", "click")).toEqual(["3"]);
    Object.assign(shown, { jobs: listed("7", "6", "5", "3", "2", "1") });
    expect(press("1", "click", { shiftKey: true })).toEqual(["3", "2", "1"]);
    expect(menu).toHaveBeenCalledOnce();
    expect(press("4", "click")).toEqual(["3", "2", "1"]);
    expect(press("4", "contextmenu")).toEqual(["3", "2", "1"]);
    expect(menu).toHaveBeenCalledOnce(); // no menu for a job that is gone
    document.body.removeEventListener("contextmenu", menu);
  });

  it("is a list of two-line rows where it is narrow, with the states that occur", async () => {
    const running: IJob = { ...JOB, id: "13", state: "RUNNING", start_time: 30, time_limit: 60 };
    const widen = vi.fn();
    const table = new JobsTable(model([{ ...running, partition: "devwork" }, JOB]));
    const narrow = new JobsPanel(table, trans, { ...NOTHING, widen });
    Object.defineProperty(narrow.node, "clientWidth", { value: 232 });
    const node = await show(narrow);
    expect(node.querySelector("[role=columnheader]")).toBeNull();
    const [row] = node.querySelectorAll<HTMLElement>(ROW);
    const reason = ` · ${JOB.reason}`;
    expect(row?.querySelector(".jp-Slurm-facts")?.textContent).toBe(
      `0:30 of 1:00 · devwork${reason}`,
    );
    expect(row?.querySelector(".jp-Slurm-listReason")?.textContent).toBe(reason);
    expect(row?.querySelector(".jp-Slurm-state")?.textContent).toBe("RUNNING");
    const labels = [...node.querySelectorAll(".jp-Slurm-kinds button")].map(
      (chip) => chip.ariaLabel,
    );
    expect(labels).toEqual(["Running 1", "Pending 1"]);
    expect(node.querySelector(".jp-Slurm-filter")).toBeNull();
    node.querySelector<HTMLElement>("button[aria-label=Filter]")?.click();
    await vi.waitFor(() => {
      expect(node.querySelector(".jp-Slurm-filter")).not.toBeNull();
    });
    node.querySelector<HTMLElement>("[aria-label='Open in a tab']")?.click();
    expect(widen).toHaveBeenCalledOnce();
    expect(node.querySelector(".jp-Slurm-updated")?.textContent).toMatch(/^Checked /);
  });

  describe("with an open list of free resources", () => {
    const clusters = [{ id: "local", name: "arandu", poll: { error: null }, connection: null }];
    const isOpen = (node: HTMLElement): boolean =>
      node.querySelector<HTMLDetailsElement>(".jp-Slurm-free")?.open === true &&
      node.querySelector(".jp-Slurm-resources") !== null;

    async function opened(): Promise<{ wide: JobsPanel; shown: JobsTable; node: HTMLElement }> {
      const changed = new Signal<object, void>({});
      const state = { resources: null, problem: null, isLoading: false };
      const unanswered = { answer: null, problem: null, isLoading: true };
      const answers = { changed, stateOf: () => unanswered, keepRecent: vi.fn() };
      const resources = {
        changed,
        stateOf: () => state,
        load: vi.fn(),
        use: answers,
        room: answers,
      };
      const sessions = { model: { changed, active: [], resources } };
      const shown = new JobsTable(Object.assign(model([JOB]), { clusters, refreshQueue: vi.fn() }));
      const beside = { sessions } as unknown as ConstructorParameters<typeof JobsPanel>[3];
      const wide = new JobsPanel(shown, trans, NOTHING, beside);
      Object.defineProperty(wide.node, "clientWidth", { value: 1000, configurable: true });
      const node = await show(wide);
      node.querySelector<HTMLDetailsElement>(".jp-Slurm-free")!.open = true;
      await vi.waitFor(() => {
        expect(isOpen(node)).toBe(true);
      });
      return { wide, shown, node };
    }

    it("keeps it open where its width changes the place", async () => {
      const { wide, node } = await opened();
      const isFirst = (): boolean => {
        const [first] = node.querySelectorAll(".jp-Slurm-free, .jp-Slurm-jobs");
        return first?.className === "jp-Slurm-free";
      };
      expect(isFirst()).toBe(true);
      Object.defineProperty(wide.node, "clientWidth", { value: 232 });
      wide.update();
      await vi.waitFor(() => {
        expect(isFirst()).toBe(false);
      });
      expect(isOpen(node)).toBe(true);
    });

    it("keeps it open, and what is open inside, while it is hidden", async () => {
      const { wide, node } = await opened();
      const inside = (): HTMLDetailsElement | null => node.querySelector(".jp-Slurm-loaded");
      inside()!.open = true;
      await vi.waitFor(() => {
        expect(node.querySelector(".jp-Slurm-answer")).not.toBeNull();
      });
      wide.hide();
      await vi.waitFor(() => {
        expect(node.childElementCount).toBe(0);
      });
      wide.show();
      await vi.waitFor(() => {
        expect(isOpen(node)).toBe(true);
      });
      expect(inside()?.open).toBe(true);
      node.querySelector<HTMLDetailsElement>(".jp-Slurm-free")!.open = false;
      await vi.waitFor(() => {
        expect(node.querySelector(".jp-Slurm-resources")).toBeNull();
      });
      wide.hide();
      wide.show();
      await vi.waitFor(() => {
        expect(node.querySelector(".jp-Slurm-free")).not.toBeNull();
      });
      expect(isOpen(node)).toBe(false);
    });

    it("shows it open again after the connection was lost", async () => {
      const { shown, node } = await opened();
      const set = async (state: string, isThere: boolean): Promise<void> => {
        const known = [{ ...clusters[0], connection: { state, hosts: ["login"], since: 0 } }];
        Object.assign(shown.model, { clusters: known });
        shown.configure(false, null); // draw again
        await vi.waitFor(() => {
          expect(node.querySelector(".jp-Slurm-free") !== null).toBe(isThere);
        });
      };
      await set("lost", false);
      await set("connected", true);
      expect(isOpen(node)).toBe(true);
    });
  });

  it("passes the focus to the table where the pressed button disappears", async () => {
    const older = { hasOlder: true, showOlder: vi.fn() };
    const shown = Object.assign(model([JOB]), older);
    const table = new JobsTable(shown);
    table.toggleKind("pending");
    table.toggleKind("failed");
    const node = await show(new JobsPanel(table, trans, NOTHING));
    const press = async (
      button: HTMLElement | null,
      then = (): void => undefined,
    ): Promise<void> => {
      button?.focus();
      expect(document.activeElement).toBe(button);
      button?.click();
      then();
      table.configure(false, null); // draw again
      await vi.waitFor(() => {
        expect(button?.isConnected).toBe(false);
      });
      expect(document.activeElement?.getAttribute("role")).toBe("treegrid");
    };
    await press(node.querySelector("[data-kind=failed][aria-pressed=true]"));
    const more = [...node.querySelectorAll("button")].find(
      ({ textContent }) => textContent === "Show older jobs",
    );
    await press(more ?? null, () => (older.hasOlder = shown.hasOlder = false));
    expect(older.showOlder).toHaveBeenCalledOnce();
  });

  it("says that there are no jobs", async () => {
    const node = await show(panel(model([])));
    expect(node.querySelector("[role=treegrid]")).toBeNull();
    expect(node.querySelector(".jp-Slurm-empty")?.textContent).toBe("No jobs.");
  });

  it("offers the first steps where there are no jobs", async () => {
    const firstSteps = { launch: vi.fn(), submit: vi.fn() };
    const shown = new JobsTable(model([]));
    const node = await show(new JobsPanel(shown, trans, { ...NOTHING, firstSteps }));
    const buttons = [...node.querySelectorAll<HTMLElement>(".jp-Slurm-firstSteps button")];
    expect(buttons.map(({ textContent }) => textContent)).toEqual([
      "Start a GPU notebook…",
      "Submit a script…",
    ]);
    buttons.forEach((button) => {
      button.click();
    });
    expect(firstSteps.launch).toHaveBeenCalledOnce();
    expect(firstSteps.submit).toHaveBeenCalledOnce();
    expect(node.querySelector<HTMLAnchorElement>(".jp-Slurm-firstSteps a")?.href).toMatch(
      /quickstart/,
    );
  });

  it("draws how much of its time a job has used, and names its cluster as people do", async () => {
    const half = { ...JOB, state: "RUNNING", reason: "", start_time: 30, time_limit: 60 };
    const shown = model([half]);
    const cluster = { id: "local", name: "arandu", poll: { error: null } };
    const node = await show(panel(Object.assign(shown, { clusters: [cluster] })));
    expect(node.querySelector<HTMLElement>(".jp-Slurm-used > span")?.style.width).toBe("50%");
    expect(node.querySelector<HTMLElement>(".jp-Slurm-body .jp-Slurm-id")?.title).toBe("arandu");
  });

  it("has the whole of a long name at hand, and the tasks of an array", async () => {
    const array = { ...JOB, name: "x".repeat(1000), tasks: { RUNNING: 3, PENDING: 1998 } };
    const node = await show(panel(model([array])));
    expect(node.querySelector<HTMLElement>(".jp-Slurm-body .jp-Slurm-name")?.title).toHaveLength(
      1000,
    );
    expect(node.querySelector(".jp-Slurm-body .jp-Slurm-id")?.textContent).toBe("12");
    expect(node.querySelector(".jp-Slurm-body .jp-Slurm-mark")?.textContent).toBe("2001 tasks");
    expect(node.querySelector(".jp-Slurm-body .jp-Slurm-reason")?.textContent).toContain(
      "3 running, 1998 pending",
    );
  });

  it("marks a cluster that does not answer as a problem", async () => {
    const silent = { id: "local", name: "arandu", poll: { error: { detail: HOSTILE } } };
    const shown = { ...model([JOB]), problem: null, clusters: [silent] } as unknown as IJobsModel;
    const node = await show(panel(shown));
    const notice = node.querySelector<HTMLElement>("[role=status]");
    expect(notice?.dataset["problem"]).toBe("true");
    expect(notice?.textContent).toBe(`arandu: ${HOSTILE}`);
  });

  it("lists the clusters that need a log-in, with the one thing that can be done", async () => {
    const poll = { error: null };
    const at = (id: string, state: string, message = ""): object => ({
      id,
      name: id,
      poll,
      connection: { state, hosts: ["gateway", HOSTILE], since: 0, message },
    });
    const clusters = [
      { id: "local", name: "arandu", poll },
      at("far", "connected"),
      at("near", "disconnected", HOSTILE),
      at("new", "connecting"),
      at("gone", "lost", "connection lost, connecting again"),
    ];
    const acts = { connect: vi.fn(), disconnect: vi.fn() };
    const shown = { ...model([JOB]), problem: null, clusters } as unknown as IJobsModel;
    const node = await show(panel(shown, acts));
    const rows = [...node.querySelectorAll<HTMLElement>(".jp-Slurm-clusters li")];
    expect(node.querySelector("img, b")).toBeNull();
    expect(rows.map((row) => row.querySelector("button")?.ariaLabel)).toEqual([
      "Disconnect: far",
      "Connect: near",
      "Stop: new",
      "Disconnect: gone",
    ]);
    expect(rows[0]?.textContent).toContain(`gateway → ${HOSTILE}`);
    expect(rows[1]?.textContent).toContain(`not connected${HOSTILE}`);
    expect(rows[3]?.textContent).toContain("connection lost");
    for (const row of rows) {
      row.querySelector("button")!.click();
    }
    expect(acts.connect).toHaveBeenCalledExactlyOnceWith(clusters[2]);
    expect(acts.disconnect.mock.calls.flat()).toEqual([clusters[1], clusters[3], clusters[4]]);
  });

  it("opens the panel from the status bar", async () => {
    const open = vi.fn();
    const node = await show(new StatusItem(model([JOB]), trans, open));
    const button = node.querySelector("button");
    expect(button?.textContent).toBe("Slurm: 1 pending");
    expect(button?.title).toBe(HOSTILE);
    button?.click();
    expect(open).toHaveBeenCalledOnce();
  });
});
