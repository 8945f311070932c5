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
  name: HOSTILE,
  label: null,
  state_since: null,
  known: true,
};

function model(jobs: IJob[]): IJobsModel {
  const owner = {};
  return {
    changed: new Signal(owner),
    connection: "live",
    problem: { detail: HOSTILE },
    clusters: [],
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
    const node = await show(new JobsPanel(model([JOB]), trans, () => undefined));
    expect(node.querySelector("img, b")).toBeNull();
    expect(node.querySelector(".jp-Slurm-name")?.textContent).toBe(HOSTILE);
    expect(node.querySelector("[role=status]")?.textContent).toBe(HOSTILE);
  });

  it("offers to cancel what goes on, and nothing for what has ended", async () => {
    const cancel = vi.fn();
    const ended = { ...JOB, id: "11", state: "FAILED" };
    const node = await show(new JobsPanel(model([JOB, ended]), trans, cancel));
    const buttons = node.querySelectorAll<HTMLButtonElement>("tbody button");
    expect(buttons).toHaveLength(1);
    buttons[0]!.click();
    expect(cancel).toHaveBeenCalledExactlyOnceWith(JOB);
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
