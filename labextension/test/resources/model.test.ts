import { nullTranslator } from "@jupyterlab/translation";
import { Signal } from "@lumino/signaling";
import { Widget } from "@lumino/widgets";
import { afterEach, describe, expect, it, vi } from "vitest";

import type { ICluster } from "../../src/common/api/objects";
import { RequestError } from "../../src/common/api/problem";
import { parseTimeLimit } from "../../src/common/format";
import { JobsPanel } from "../../src/jobs/panel";
import { JobsTable } from "../../src/jobs/table/table_model";
import {
  costText,
  freeCpusText,
  freeGpusText,
  freeText,
  limitAmount,
  limitName,
  partitionNodesText,
} from "../../src/resources/labels";
import {
  acceleratorsOf,
  costOf,
  ResourcesModel,
  type IPartition,
  type ILimit,
  type IResources,
  type IResourcesApi,
} from "../../src/resources/model";
import { initialForm, reasonTexts, refusalTexts } from "../../src/sessions/form_values";
import { LaunchPanel, parseSessionLocation } from "../../src/sessions/session_page";
import { TemplatePanel } from "../../src/sessions/template_editor";
import { clusterOf, readTemplate, templateText } from "../../src/sessions/template_files";
import { CLUSTER, here, RESOURCES, session, type IHere } from "../sessions/fixtures";

const trans = nullTranslator.load("jupyter_slurm");
const HOSTILE = '<img src=x onerror="document.title=1">';
const FORM = { ...initialForm(null), partition: "arandu", gpus: "2", time: "2:00:00", cpus: "4" };

let widget: Widget | undefined;

afterEach(() => {
  widget?.dispose();
});

async function show(shown: Widget, sign: string): Promise<HTMLElement> {
  widget = shown;
  Widget.attach(shown, document.body);
  await vi.waitFor(() => {
    expect(shown.node.querySelector(sign)).not.toBeNull();
  });
  return shown.node;
}

describe("the model of what is free", () => {
  it("asks once for all who look, keeps what was known, and says what went wrong", async () => {
    const resources = vi.fn(() => Promise.resolve(RESOURCES));
    const model = new ResourcesModel({ resources, runningUse: vi.fn(), room: vi.fn() });
    await Promise.all([model.load("local"), model.load("local"), model.load("local")]);
    expect(resources).toHaveBeenCalledExactlyOnceWith("local", { newer: false, nodes: false });
    resources.mockRejectedValueOnce(new Error("Slurm does not answer"));
    await model.load("local", { newer: true });
    expect(model.stateOf("local")).toEqual({
      resources: RESOURCES,
      problem: { detail: "Slurm does not answer" },
      isLoading: false,
    });
    expect(model.stateOf("other").resources).toBeNull();
    resources.mockResolvedValueOnce({ ...RESOURCES, nodes: [NODE] });
    await model.load("local", { nodes: true });
    await model.load("local"); // the panel goes on showing them
    expect(resources).toHaveBeenLastCalledWith("local", { newer: false, nodes: true });
  });

  it("waits for what Slurm has not said yet, and asks for the nodes that were wanted meanwhile", async () => {
    const waits = new RequestError({ detail: "not yet", details: { retry_after: 0.01 } });
    const resources = vi
      .fn<IResourcesApi["resources"]>()
      .mockRejectedValueOnce(waits)
      .mockResolvedValue(RESOURCES);
    const model = new ResourcesModel({ resources, runningUse: vi.fn(), room: vi.fn() });
    const said: unknown[] = [];
    model.changed.connect(() => said.push(model.stateOf("local").problem?.detail));
    const form = model.load("local");
    await model.load("local", { nodes: true }); // the panel is opened beside it
    await form;
    expect(said.slice(0, 3)).toEqual([undefined, "not yet", undefined]);
    expect(model.stateOf("local")).toEqual({
      resources: RESOURCES,
      problem: null,
      isLoading: false,
    });
    expect(resources.mock.calls.map(([, { nodes }]) => nodes)).toEqual([false, false, true]);
  });
});

const NODE = {
  name: "c4aiscw3",
  state: "IDLE",
  flags: ["DRAIN"],
  is_up: false,
  partitions: ["devwork"],
  cpus: 16,
  cpus_used: 0,
  memory: 65_536,
  memory_used: 512,
  load: 1.25,
  gpus: [{ type: "", total: 1, used: 0 }],
  features: [],
  reason: HOSTILE,
};

describe("what is free, in the panel", () => {
  it("is asked for when it is opened, and shown as text", async () => {
    const desk = here(CLUSTER);
    desk.resources.mockResolvedValue({ ...RESOURCES, nodes: [NODE] });
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
      jobs: [session("ready", { tasks: { RUNNING: 2 } }), session("ready", { cluster: "far" })],
    };
    const panel = new JobsPanel(new JobsTable(jobs), trans, acts, { sessions });
    const node = await show(panel, "details.jp-Slurm-free");
    expect(desk.resources).not.toHaveBeenCalled();
    node.querySelector<HTMLDetailsElement>("details.jp-Slurm-free")!.open = true;
    await vi.waitFor(() => {
      expect(node.querySelector("[data-gpu=a100]")?.textContent).toBe("a1006 of 8 free");
    });
    const widths = [...node.querySelectorAll<HTMLElement>("[data-gpu=a100] [data-part]")];
    expect(widths.map(({ style }) => style.width)).toEqual(["25%", "75%"]);
    expect(node.querySelector("[aria-label=Partitions] tbody")?.textContent).toBe(
      "arandu6 of 8 a100126 of 1281 mixedat most 2:00:00" +
        "devwork default3 of 4 GPUs48 of 643 idle, 1 drainno time limit",
    );
    expect(node.textContent).toContain(
      "You use: 2 CPUs, 32 GiB, 2 GPUs in 1 job (2 counting array tasks)",
    ); // an array
    node.querySelector<HTMLDetailsElement>("details:not([class])")!.open = true;
    await vi.waitFor(() => {
      expect(node.querySelector("[aria-label=Nodes]")).not.toBeNull();
    });
    const row = node.querySelector("[aria-label=Nodes] tbody tr");
    expect(row?.textContent).toBe(
      `c4aiscw3idle+drain${HOSTILE}0 of 1 GPUs0 of 16512 MiB of 64 GiB1.3`,
    );
    expect(node.querySelector("img")).toBeNull();
    const again = node.querySelector<HTMLButtonElement>(".jp-Slurm-age button")!;
    desk.resources.mockResolvedValue({ ...RESOURCES, unknown_since: 1, said: "No answer." });
    again.click();
    await vi.waitFor(() => {
      expect(node.querySelector(".jp-Slurm-age")?.textContent).toMatch(
        /Not updated since.*No answer/,
      );
    });
    expect(desk.resources).toHaveBeenLastCalledWith("local", { newer: true, nodes: true });
  });
});

describe("what is free, in the form", () => {
  async function open(desk: IHere, known: IResources): Promise<HTMLElement> {
    desk.resources.mockResolvedValue(known);
    const acts = { connect: vi.fn(), stop: vi.fn() };
    const panel = new LaunchPanel(
      desk.model,
      trans,
      acts,
      parseSessionLocation({ cluster: "local" }),
    );
    const node = await show(panel, "[data-field=partition] option:nth-child(2)");
    await vi.waitFor(() => {
      expect(node.querySelector(".jp-Slurm-age")?.textContent).toContain("Checked");
    });
    return node;
  }

  it("is asked for anew when the controller answers again", async () => {
    const desk = here({ ...CLUSTER, poll: { error: "no answer" } });
    const acts = { connect: vi.fn(), stop: vi.fn() };
    const panel = new LaunchPanel(
      desk.model,
      trans,
      acts,
      parseSessionLocation({ cluster: "local" }),
    );
    const node = await show(panel, ".jp-Slurm-age [data-problem=true]");
    expect(desk.resources).toHaveBeenCalledExactlyOnceWith("local", { newer: false, nodes: false });
    desk.resources.mockResolvedValue(RESOURCES);
    (desk.model.jobs.clusters as ICluster[])[0] = CLUSTER;
    desk.tell();
    await vi.waitFor(() => {
      expect(node.querySelector(".jp-Slurm-age")?.textContent).toContain("Checked");
    });
    expect(desk.resources).toHaveBeenLastCalledWith("local", { newer: true, nodes: false });
  });

  it("stands at each partition and type, with limits and cost", async () => {
    const desk = here(CLUSTER);
    desk.saved.set("local", { ...FORM, gpus: "7", account: "c4ai" });
    const node = await open(desk, RESOURCES);
    const texts = (field: string): (string | null)[] =>
      [...node.querySelectorAll(`[data-field=${field}] option`)].map((one) => one.textContent);
    expect(texts("partition")).toEqual([
      "default (devwork, 3 of 4 GPUs free, no time limit)", // it has no twin with its name
      "arandu (6 of 8 a100 free, at most 2:00:00)",
    ]);
    expect(texts("gpuType")).toEqual(["any", "a100 (6 of 8 free)"]);
    const said = (field: string): string | null | undefined =>
      node.querySelector(`[data-field=${field}] .jp-Slurm-aside`)?.textContent;
    expect(said("gpus")).toBe("6 of 8 a100 free now.");
    expect(said("cpus")).toMatch(/^\d+ of \d+ free now\. Default: 1$/);
    expect(said("partition")).toMatch(/^Nodes: \d+ /);
    expect(said("account")).toBe("You, account c4ai: GPUs, 2 of 4.");
    const problem = {
      option: "gpus",
      scope: "partition",
      limit: "8",
      text: "--gpus=7 is too many",
    };
    desk.api.preview.mockResolvedValue({
      problems: [problem],
      estimate: { start: null, said: "in an hour" },
    });
    [...node.querySelectorAll("button")]
      .find((one) => one.textContent === "When would it start?")!
      .click();
    await vi.waitFor(() => {
      expect(node.querySelector(".jp-Slurm-outlook")?.textContent).toBe(
        "in an hour Cost of the whole time limit: 60 credits.",
      );
    });
    const at = node.querySelector("[data-field=gpus] .jp-Slurm-problem")!;
    expect(at.textContent).toBe("This partition has 8 GPUs in all.");
    const input = node.querySelector("[data-field=gpus] input")!;
    expect(input.getAttribute("aria-describedby")).toBe(at.id);
  });
});

describe("what speaks against a form", () => {
  it("stands at its field in the words of the form, without those of the command line", () => {
    const text = "--time=9:00:00 is more than partition arandu allows";
    const problems = [
      ["gpus", "partition", "8", "This partition has 8 GPUs in all."],
      ["cpus-per-task", "node", "16", "A node of this partition has at most 16 CPUs."],
      ["mem", "node", "64G", "A job can have at most 64G on a node of this partition."],
      ["time", "partition", "02:00:00", "This partition allows at most 2 h."],
      ["qos", "", "", text], // names are in the sentence of the agent
      ["dir", "missing", "", "This folder does not exist on the cluster."],
      ["env", "unknown", "", "There is no environment with this name."],
      ["", "", "", text],
    ] as const;
    const asked = problems.map(([option, scope, limit]) => ({ option, scope, limit, text }));
    const { at, others } = reasonTexts(trans, asked, FORM);
    expect(Object.values(at)).toEqual(problems.slice(0, -1).map(([, , , told]) => told));
    expect(Object.keys(at)).toEqual(["gpus", "cpus", "memory", "time", "qos", "dir", "env"]);
    expect(others).toEqual([text]);
  });

  it("stands there also where the server or Slurm refused it", () => {
    const type = "urn:jupyter-slurm:error:submit-refused";
    const hint = "`%%sbatch?` shows the options and examples.";
    const told = (details: object): unknown =>
      refusalTexts(trans, { type, detail: "sbatch refused the job: no", hint, details }, FORM);
    expect(told({ option: "time", said: "Invalid --time specification" })).toEqual({
      at: { time: "Slurm does not accept this time." },
      others: [],
      other: "",
    });
    const gpus = { option: "gpus", scope: "node", limit: "8", text: "" };
    expect(told({ said: "Too much", problems: [gpus] })).toEqual({
      at: { gpus: "A node of this partition has at most 8 GPUs." },
      other: "Slurm refused the job: Too much",
    });
    expect(told({})).toEqual({ at: {}, other: "sbatch refused the job: no" });
  });
});

describe("a cost", () => {
  it.each([
    [{}, 20],
    [{ time: "1-0" }, 240],
    [{ time: "30" }, 5],
    [{ time: "1 hour 30 min" }, 15],
    [{ time: "UNLIMITED" }, null],
    [{ gpus: "0" }, 4],
    [{ partition: "devwork" }, null], // of its GPUs the profile says nothing
    [{ partition: "devwork", gpus: "0", time: "" }, 2], // an hour by default
    [{ partition: "gone", gpuType: "a100" }, 20],
    [{ gpuType: "constructor" }, null],
  ])("of %o is %s", (changed, cost) => {
    expect(costOf(RESOURCES, { ...FORM, ...changed })).toBe(cost);
  });

  it("counts more than once where the site says so", () => {
    const cost = { ...RESOURCES.cost!, partitions: { arandu: 1.5 } };
    expect(costOf({ ...RESOURCES, cost }, FORM)).toBe(30);
    expect(costOf({ ...RESOURCES, cost }, { ...FORM, partition: "gone", gpuType: "a100" })).toBe(
      20,
    );
  });

  it("is not told where the profile says nothing", () => {
    expect(costText(trans, { ...RESOURCES, cost: null }, FORM)).toBe("");
    expect(costText(trans, null, FORM)).toBe("");
    for (const text of [freeGpusText, freeCpusText, partitionNodesText]) {
      expect(text(trans, null, FORM)).toBeUndefined();
      expect(text(trans, RESOURCES, { ...FORM, partition: "gone" })).toBeUndefined();
    }
  });

  it("says what is free as soon as a node has completed an ended job", () => {
    const [arandu] = RESOURCES.partitions as [IPartition];
    const gpus = [{ type: "a100", total: 8, used: 0, free: 0, most: 8, soon: 8 }];
    const resources = { ...RESOURCES, partitions: [{ ...arandu, gpus, is_default: true }] };
    expect(freeText(trans, gpus)).toBe("0 of 8 a100 (8 more soon: node completing)");
    expect(freeGpusText(trans, resources, { ...FORM, partition: "" })).toBe(
      "0 of 8 a100 (8 more soon: node completing) free now.",
    );
  });

  it("counts other generic resources apart from GPUs", () => {
    const [arandu, devwork] = RESOURCES.partitions as [IPartition, IPartition];
    const gres = [{ name: "npu", type: "910b", total: 8, used: 3, free: 5, most: 8 }];
    const resources = { ...RESOURCES, partitions: [arandu, { ...devwork, gres }] };
    const form = { ...FORM, partition: "", gpus: "6", gpuType: "gres/npu:910b" };
    expect(freeText(trans, acceleratorsOf({ ...devwork, gres }))).toBe(
      "3 of 4 GPUs, 5 of 8 npu:910b",
    );
    expect(freeGpusText(trans, resources, form)).toBe("5 of 8 npu:910b free now.");
    expect(freeGpusText(trans, resources, { ...form, gpuType: "" })).toBe("3 of 4 GPUs free now.");
  });

  it.each([
    ["90", 5400],
    ["1:30", 90],
    ["1:30:00", 5400],
    ["2-1", 176_400],
    ["2-1:30", 178_200],
    ["2-1:30:10", 178_210],
    ["soon", null],
    ["1:2:3:4", null],
  ])("reads a time limit of %s as Slurm does", (text, seconds) => {
    expect(parseTimeLimit(text)).toBe(seconds);
  });
});

describe("a limit", () => {
  it.each<[Partial<ILimit>, string]>([
    [{}, "You, account c4ai: GPUs, 2 of 4"],
    [
      { scope: "qos", name: "urgent", resource: "mem", most: 2 ** 35, used: 0 },
      "QOS urgent: memory, 0 MiB of 32 GiB",
    ],
    [
      { scope: "account", kind: "minutes", resource: "cpu", partition: "p" },
      "Account c4ai (p): minutes of CPUs, 2 of 4",
    ],
    [{ kind: "job", used: null }, "You, account c4ai: GPUs of a job, at most 4"],
    [
      { scope: "qos-user", kind: "jobs", resource: "" },
      "You, QOS c4ai: running jobs and array tasks, 2 of 4",
    ],
    [
      { scope: "new", kind: "newer", resource: "gres/gpu:a100" },
      "c4ai: gres/gpu:a100 newer, 2 of 4",
    ],
  ])("%o is told in words", (changed, told) => {
    const limit = { ...RESOURCES.limits![0]!, ...changed };
    expect(`${limitName(trans, limit)}, ${limitAmount(trans, limit)}`).toBe(told);
  });
});

describe("a template", () => {
  it("is what stands in the form, but its name, and opens as that", () => {
    const text = templateText(CLUSTER, { ...FORM, name: "training", memory: "" });
    expect(text).not.toContain("training");
    const read = readTemplate(text)!;
    expect(read.cluster).toBe("arandu");
    expect(read.form).toEqual({ ...FORM, name: "", memory: "" });
  });

  it.each([
    "",
    "{",
    "[]",
    "null",
    '{"slurm_launch": 2, "form": {}}',
    '{"slurm_launch": 1, "form": 1}',
  ])("is not %s", (text) => {
    expect(readTemplate(text)).toBeNull();
  });

  it("takes nothing from a file but texts of fields that there are", () => {
    const form = { gpus: 1, evil: "x", cpus: [4], __proto__: { time: "9" } };
    const read = readTemplate(JSON.stringify({ slurm_launch: 1, cluster: 5, form }))!;
    expect(read.form).toEqual({
      ...initialForm(null),
      gpus: "1",
      cpus: "",
      memory: "",
      time: "",
      idle: "",
    });
    expect(read.cluster).toBe("");
  });

  it("goes to the cluster that it names, else to the only one", () => {
    const other = { ...CLUSTER, id: "other", name: "other" };
    const named = { cluster: "arandu", form: FORM };
    expect(clusterOf(named, [other, CLUSTER])).toBe(CLUSTER);
    expect(clusterOf({ ...named, cluster: "gone" }, [CLUSTER])).toBe(CLUSTER);
    expect(clusterOf({ ...named, cluster: "gone" }, [other, CLUSTER])).toBeUndefined();
  });

  it("opens as the form, on the cluster that the person says where it names none of them", async () => {
    const desk = here(CLUSTER, { ...CLUSTER, id: "other", name: "other" });
    const file = { text: JSON.stringify({ slurm_launch: 1, cluster: HOSTILE, form: FORM }) };
    const contentChanged = new Signal<object, void>(file);
    const document = { toString: () => file.text, contentChanged };
    const context = { ready: Promise.resolve(), isReady: true, model: document };
    const acts = { connect: vi.fn(), stop: vi.fn(), save: vi.fn() };
    const around = { model: desk.model, trans, acts, show: vi.fn() };
    const node = await show(new TemplatePanel(context as never, around), "button");
    expect(node.textContent).toContain(`made for ${HOSTILE}. Select a cluster:`);
    expect(node.querySelector("img")).toBeNull();
    node.querySelector("button")?.click();
    await vi.waitFor(() => {
      expect(node.querySelector<HTMLInputElement>("[data-field=time] input")?.value).toBe(
        "2:00:00",
      );
    });
    expect(node.querySelector("form")?.getAttribute("aria-label")).toBe("GPU notebook on arandu");
    file.text = "[]";
    contentChanged.emit();
    await vi.waitFor(() => {
      expect(node.querySelector("[role=alert]")?.textContent).toContain("not a session template");
    });
  });
});
