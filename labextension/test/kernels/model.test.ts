import { nullTranslator } from "@jupyterlab/translation";
import { CommandRegistry } from "@lumino/commands";
import { Signal } from "@lumino/signaling";
import { Widget } from "@lumino/widgets";
import { afterEach, describe, expect, it, vi } from "vitest";

import type { IJob } from "../../src/common/api/objects";
import { RequestError } from "../../src/common/api/problem";
import { CommandIDs } from "../../src/common/identifiers";
import type { IJobsModel } from "../../src/common/jobs_model";
import {
  addKernel,
  addKernelCommands,
  suggestedName,
  type IKernelActs,
} from "../../src/kernels/commands";
import { KernelWatch } from "../../src/kernels/kernel_watch";
import { kernelRequest, type IKernelPlace } from "../../src/kernels/model";
import { KernelItem } from "../../src/kernels/status_item";
import { describeNotices } from "../../src/notices/labels";
import { initialForm } from "../../src/sessions/form_values";
import { CLUSTER, session } from "../sessions/fixtures";
import { Mover, Notebook } from "./move_fixtures";

const trans = nullTranslator.load("jupyter_slurm");
const HOSTILE = '<img src=x onerror="document.title=1">';
const OURS = { kernel_provisioner: { provisioner_name: "jupyter-slurm" } };

function allocation(state: string, more: Partial<IJob> = {}): IJob {
  const kernel = { display_name: "Python on arandu, 1 GPU" };
  const job: IJob = { ...session("ready"), session: null, kind: "allocation", kernel, state };
  return { ...job, label: "kernel-1a2b3c4d", nodes: "dgx01", start_time: 100, ...more };
}

describe("the kernel that a form asks for", () => {
  it("has the options of a session, and words for the rest", () => {
    const form = { ...initialForm(null), gpuType: "a100", env: "torch", name: "Mine" };
    const options = ["--nodes=1", "--cpus-per-task=4", "--mem=16G", "--time=4:00:00"];
    const words = ["--gpus=a100:1", "env=torch", "name=Mine", "idle=1440"];
    expect(kernelRequest(CLUSTER, form)).toEqual({
      cluster: "local",
      words: [...options, ...words],
    });
  });

  it("has the cluster in its name where another one has the same name", () => {
    const form = { ...initialForm(null), partition: "devwork", time: "1:00:00" };
    expect(suggestedName(trans, CLUSTER, form)).toBe("devwork · 1 GPU · 1 h");
    const twin = { ...CLUSTER, label: "arandu (one)" };
    expect(suggestedName(trans, twin, form)).toBe("arandu (one) · devwork · 1 GPU · 1 h");
  });
});

describe("the notice of a time limit", () => {
  it("says what is lost with a kernel", () => {
    const job = allocation("RUNNING", { time_limit: 400 });
    const notice = { key: "", kind: "near-limit", job, prompt: null } as const;
    expect(describeNotices(trans, [notice], 200)[0]).toMatchObject({
      text:
        "Python on arandu, 1 GPU reaches its time limit in 5 minutes. " +
        "The memory of the kernel is lost then. Save your work before.",
      isNearEnd: true,
    });
  });
});

describe("the item of the status bar", () => {
  const told = { jobs: [] as IJob[], clusters: [CLUSTER], now: 200 };
  const changed = new Signal<object, void>(told);
  const jobs = Object.assign(told, { changed }) as unknown as IJobsModel;
  const kernelPlace = vi.fn<(id: string) => Promise<IKernelPlace | null>>();
  const acts = { open: vi.fn(), giveUp: vi.fn(), shownAs: (name: string) => name.toUpperCase() };
  let mover: Mover;
  let watch: KernelWatch;
  let item: Widget;

  async function shows(text: string, standing?: string): Promise<HTMLButtonElement | null> {
    await vi.waitFor(() => {
      expect(item.node.textContent).toBe(text);
    });
    const button = item.node.querySelector("button");
    expect(button?.dataset["standing"]).toBe(standing);
    return button;
  }

  function tell(job: IJob): void {
    told.jobs = [job];
    changed.emit();
  }

  function begin(): Notebook {
    told.jobs = [];
    kernelPlace.mockReset();
    mover = new Mover();
    watch = new KernelWatch({ kernelPlace }, jobs, (name) => name.startsWith("slurm"), mover.model);
    item = new KernelItem(watch, jobs, trans, acts);
    Widget.attach(item, document.body);
    const notebook = new Notebook();
    watch.follow(notebook.context);
    return notebook;
  }

  afterEach(() => {
    item.dispose();
    watch.dispose();
    mover.dispose();
  });

  it("tells how the allocation of the kernel in front stands", async () => {
    const notebook = begin();
    kernelPlace.mockResolvedValue({ cluster: "local", allocation: null });
    notebook.choose("1", "slurm-a");
    await shows("Kernel on arandu: starting", "starting");

    const { key } = allocation("PENDING");
    kernelPlace.mockResolvedValue({ cluster: "local", allocation: key });
    watch.poll();
    tell(allocation("PENDING", { reason_text: HOSTILE, start_time: null }));
    expect((await shows("Kernel on arandu: pending", "pending"))?.title).toContain(HOSTILE);
    tell(allocation("RUNNING", { nodes: HOSTILE }));
    await shows(`Kernel on ${HOSTILE}`, "running");
    expect(item.node.querySelector("img")).toBeNull();
    tell(allocation("RUNNING", { time_limit: 7200 }));
    await shows("Kernel on dgx01: 1:58:20 left", "running");
    tell(allocation("RUNNING", { time_limit: 120 }));
    const button = await shows("Kernel on dgx01: 0:20 left", "near");
    expect(button?.title).toContain("is lost then");
    button?.click();
    expect(acts.open).toHaveBeenCalledWith(told.jobs[0]);

    const asked = kernelPlace.mock.calls.length;
    watch.poll(); // what is known is not asked for again
    expect(kernelPlace).toHaveBeenCalledTimes(asked);
    tell(allocation("TIMEOUT"));
    await shows("Kernel on arandu: its allocation has ended", "ended");
    kernelPlace.mockResolvedValue({ cluster: "local", allocation: "another" });
    notebook.statusChanged.emit("restarting");
    await shows("Kernel on arandu: starting", "starting");
  });

  it("is empty for a kernel of another kind, and where nothing is known", async () => {
    const notebook = begin();
    kernelPlace.mockResolvedValue({ cluster: "local", allocation: null });
    notebook.choose("1", "slurm-a");
    await shows("Kernel on arandu: starting", "starting");
    notebook.choose("2", "python3");
    await shows("");
    expect(kernelPlace).toHaveBeenCalledTimes(1);
    kernelPlace.mockRejectedValue(new RequestError({ status: 404 }));
    notebook.choose("3", "slurm-a");
    await vi.waitFor(() => {
      expect(kernelPlace).toHaveBeenCalledTimes(2);
    });
    expect(watch.kernelState).toBeNull();
  });

  it("tells how far the notebook in front is on its way to another one, also what a cell has asked for", async () => {
    const notebook = begin();
    notebook.choose("1", "python3");
    await shows("");
    mover.later(); // it was looked for just now
    const move = mover.going("work/a.ipynb", { text: HOSTILE });
    notebook.statusChanged.emit("idle");
    const button = await shows("Waiting for SLURM-A");
    expect(button?.title).toContain(HOSTILE);
    button?.click();
    expect(acts.giveUp).toHaveBeenCalledWith(move);
    mover.become({ ...move, state: "moving" });
    await shows("Moving to SLURM-A");
    const other = new Notebook("other.ipynb");
    other.choose("2", "python3");
    watch.follow(other.context);
    await shows("");
    watch.follow(notebook.context);
    await shows("Moving to SLURM-A");
    mover.become({ ...move, state: "done" });
    await shows("");
  });

  it("does not take a late answer for that of the kernel in front", async () => {
    const notebook = begin();
    let answer: (place: IKernelPlace) => void = () => undefined;
    kernelPlace.mockReturnValueOnce(
      new Promise((resolve) => {
        answer = resolve;
      }),
    );
    kernelPlace.mockResolvedValueOnce({ cluster: "second", allocation: null });
    notebook.choose("1", "slurm-a");
    notebook.choose("2", "slurm-b");
    await shows("Kernel on second: starting", "starting");
    answer({ cluster: "first", allocation: null });
    await Promise.resolve();
    expect(watch.kernelState?.cluster).toBe("second");
  });
});

describe("the kernels that can be chosen", () => {
  const named = { name: "slurm-a", display_name: HOSTILE };

  function acts(): IKernelActs & { readonly removed: ReturnType<typeof vi.fn> } {
    const removed = vi.fn(() => Promise.resolve());
    const api = {
      addKernel: vi.fn(() => Promise.reject(new RequestError({ detail: HOSTILE }))),
      kernelSpecs: () => Promise.resolve([named]),
      removeKernel: removed,
    };
    const known = { default: "", kernelspecs: { "slurm-a": { ...named, metadata: OURS } } };
    const specs = { specs: known, refreshSpecs: vi.fn(() => Promise.resolve()) };
    const specsChanged = new Signal<object, unknown>(specs);
    const all = { api, specs: { ...specs, specsChanged }, commands: new CommandRegistry() };
    return { ...(all as unknown as IKernelActs), trans, removed };
  }

  async function dialog(): Promise<HTMLElement> {
    return vi.waitFor(() => document.querySelector<HTMLElement>(".jp-Dialog")!);
  }

  it("are told why one was not added, as text", async () => {
    const adding = addKernel(acts(), CLUSTER, initialForm(null));
    const name = (): HTMLInputElement | null => document.querySelector(".jp-Dialog input");
    await vi.waitFor(() => {
      expect(name()?.value).toBe("arandu · 1 GPU · 4 h");
    });
    document.querySelector<HTMLElement>(".jp-Dialog .jp-mod-accept")!.click();
    await vi.waitFor(async () => {
      expect((await dialog()).textContent).toContain(HOSTILE);
    });
    expect((await dialog()).querySelector("img")).toBeNull();
    (await dialog()).querySelector<HTMLElement>(".jp-Dialog-button")!.click();
    await adding;
  });

  it("lose one after the person said so", async () => {
    const desk = acts();
    addKernelCommands(desk, null);
    expect(desk.commands.isEnabled(CommandIDs.removeKernel)).toBe(true);
    for (const [button, times] of [
      [".jp-mod-reject", 0],
      [".jp-mod-warn", 1],
    ] as const) {
      const removing = desk.commands.execute(CommandIDs.removeKernel);
      await vi.waitFor(async () => {
        expect((await dialog()).textContent).toContain(`Remove the kernel “${HOSTILE}”?`);
      });
      (await dialog()).querySelector<HTMLElement>(button)!.click();
      await removing;
      expect(desk.removed).toHaveBeenCalledTimes(times);
    }
    expect(desk.removed).toHaveBeenCalledWith("slurm-a");
    expect(desk.specs.refreshSpecs).toHaveBeenCalledOnce();
  });
});
