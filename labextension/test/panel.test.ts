import { nullTranslator } from "@jupyterlab/translation";
import { Signal } from "@lumino/signaling";
import { Widget } from "@lumino/widgets";
import { afterEach, describe, expect, it, vi } from "vitest";

import { JobsPanel } from "../src/components/panel";
import { StatusItem } from "../src/components/status";
import type { IJob, IJobsModel } from "../src/tokens";

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

const NOTHING = { cancel: vi.fn(), connect: vi.fn(), disconnect: vi.fn() };

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
    isCancelling: () => false,
  } as unknown as IJobsModel;
}

describe("what is shown", () => {
  let widget: Widget | undefined;

  async function show(shown: Widget): Promise<HTMLElement> {
    widget = shown;
    Widget.attach(shown, document.body);
    await vi.waitFor(() => {
      expect(shown.node.childElementCount).toBeGreaterThan(0);
    });
    return shown.node;
  }

  afterEach(() => {
    widget?.dispose();
  });

  it("takes text from outside as text", async () => {
    const node = await show(new JobsPanel(model([JOB]), trans, NOTHING));
    expect(node.querySelector("img, b")).toBeNull();
    expect(node.querySelector(".jp-Slurm-name")?.textContent).toBe(HOSTILE);
    expect(node.querySelector(".jp-Slurm-nodes")?.textContent).toBe(HOSTILE);
    expect(node.querySelector("[role=status]")?.textContent).toBe(HOSTILE);
  });

  it("offers to cancel what goes on, and nothing for what has ended", async () => {
    const cancel = vi.fn();
    const ended = { ...JOB, id: "11", state: "FAILED" };
    const ending = { ...JOB, id: "10", state: "COMPLETING" };
    const node = await show(
      new JobsPanel(model([JOB, ending, ended]), trans, { ...NOTHING, cancel }),
    );
    const buttons = node.querySelectorAll<HTMLButtonElement>("tbody button");
    expect(buttons).toHaveLength(1);
    buttons[0]!.click();
    expect(cancel).toHaveBeenCalledExactlyOnceWith(JOB);
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
    const node = await show(new JobsPanel(model(jobs), trans, NOTHING));
    const rows = [...node.querySelectorAll<HTMLElement>("tbody tr")];
    const shown = rows.map((row) => [
      row.dataset["kind"],
      row.querySelector(".jp-Slurm-badge")?.textContent,
      row.querySelector(".jp-Slurm-reason")?.textContent,
    ]);
    expect(shown).toEqual([
      ["done", "given back", "Used 1:00 of 1:00:00."],
      ["done", "given back", "Used 1:00.Its kernel was killed, and nobody came back for it."],
      ["running", "being given back", ""],
      ["failed", "TIMEOUT", "too long"],
      ["cancelled", "CANCELLED", ""],
    ]);
  });

  it("draws the first of very many jobs and says where the others are", async () => {
    const many = Array.from({ length: 1203 }, (_, id) => ({ ...JOB, id: String(id) }));
    const node = await show(new JobsPanel(model(many), trans, NOTHING));
    expect(node.querySelectorAll("tbody tr")).toHaveLength(1000);
    expect(node.textContent).toContain("Older ones: jupyter slurm jobs --all");
  });

  it("hides what is over and shows it again", async () => {
    const ended = { ...JOB, id: "11", state: "FAILED" };
    const shown = { ...model([JOB, ended]), older: true } as unknown as IJobsModel;
    const node = await show(new JobsPanel(shown, trans, NOTHING));
    const button = node.querySelector<HTMLButtonElement>("header button")!;
    for (const [label, rows] of [
      ["Hide finished", 2],
      ["Show finished (1)", 1],
      ["Hide finished", 2],
    ]) {
      await vi.waitFor(() => {
        expect([button.textContent, node.querySelectorAll("tbody tr").length]).toEqual([
          label,
          rows,
        ]);
      });
      expect(node.textContent.includes("Older ones")).toBe(rows === 2);
      button.click();
    }
  });

  it("says that there are no jobs", async () => {
    const node = await show(new JobsPanel(model([]), trans, NOTHING));
    expect(node.querySelector("table")).toBeNull();
    expect(node.querySelector(".jp-Slurm-empty")?.textContent).toBe("No jobs.");
  });

  it("has the whole of a long name at hand, and the tasks of an array", async () => {
    const array = { ...JOB, name: "x".repeat(1000), tasks: { RUNNING: 3, PENDING: 1998 } };
    const node = await show(new JobsPanel(model([array]), trans, NOTHING));
    expect(node.querySelector<HTMLElement>(".jp-Slurm-name > div")?.title).toHaveLength(1000);
    expect(node.querySelector(".jp-Slurm-id")?.textContent).toBe("122001 tasks");
  });

  it("marks a cluster that does not answer as a problem", async () => {
    const silent = { id: "local", name: "arandu", poll: { error: { detail: HOSTILE } } };
    const shown = { ...model([JOB]), problem: null, clusters: [silent] } as unknown as IJobsModel;
    const node = await show(new JobsPanel(shown, trans, NOTHING));
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
    const acts = { ...NOTHING, connect: vi.fn(), disconnect: vi.fn() };
    const shown = { ...model([JOB]), problem: null, clusters } as unknown as IJobsModel;
    const node = await show(new JobsPanel(shown, trans, acts));
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
