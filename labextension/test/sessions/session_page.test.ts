import { Notification, type ICommandPalette } from "@jupyterlab/apputils";
import type { ILauncher } from "@jupyterlab/launcher";
import { nullTranslator } from "@jupyterlab/translation";
import { CommandRegistry } from "@lumino/commands";
import { Signal } from "@lumino/signaling";
import { Widget } from "@lumino/widgets";
import { afterEach, describe, expect, it, vi } from "vitest";

import type { ICluster } from "../../src/common/api/objects";
import { RequestError } from "../../src/common/api/problem";
import { CommandIDs } from "../../src/common/identifiers";
import type { IJobsModel } from "../../src/common/jobs_model";
import { JobsPanel } from "../../src/jobs/panel";
import { JobsTable } from "../../src/jobs/table/table_model";
import { addLaunchCommands } from "../../src/sessions/commands";
import { LaunchPanel, parseSessionLocation } from "../../src/sessions/session_page";
import { CLUSTER, here, session, type IHere } from "./fixtures";

const trans = nullTranslator.load("jupyter_slurm");
const KEY = "20261122-050000-0011223344556677";
const HOSTILE = '<img src=x onerror="document.title=1"><b>bold</b>';

let widget: Widget | undefined;
let node: HTMLElement;

afterEach(() => {
  widget?.dispose();
});

async function show(shown: Widget): Promise<void> {
  widget = shown;
  node = shown.node;
  Widget.attach(shown, document.body);
  await vi.waitFor(() => {
    expect(node.childElementCount).toBeGreaterThan(0);
  });
}

function field(name: string): HTMLInputElement | HTMLSelectElement {
  return node.querySelector(`[data-field=${name}] input, [data-field=${name}] select`)!;
}

/** Type as a person does: React listens to what the browser sets. */
function type(name: string, value: string): void {
  const input = field(name);
  Object.getOwnPropertyDescriptor(Object.getPrototypeOf(input), "value")!.set!.call(input, value);
  input.dispatchEvent(
    new Event(input.tagName === "SELECT" ? "change" : "input", { bubbles: true }),
  );
}

function button(name: string): HTMLButtonElement {
  return [...node.querySelectorAll("button")].find(({ textContent }) => textContent === name)!;
}

describe("the page of a session", () => {
  const acts = { connect: vi.fn(), stop: vi.fn() };

  async function open(desk: IHere, args: { session?: string } = {}): Promise<LaunchPanel> {
    const panel = new LaunchPanel(
      desk.model,
      trans,
      acts,
      parseSessionLocation({ cluster: "local", ...args }),
    );
    await show(panel);
    return panel;
  }

  async function fill(desk: IHere): Promise<LaunchPanel> {
    const panel = await open(desk);
    await vi.waitFor(() => {
      expect((field("gpuType") as HTMLSelectElement).disabled).toBe(false);
    }, 20_000); // the first form of a busy machine
    return panel;
  }

  it("offers what the cluster has, each field with its label", async () => {
    const desk = here(CLUSTER);
    await fill(desk);
    const labels = [...node.querySelectorAll("label")];
    expect(labels.every(({ htmlFor }) => document.getElementById(htmlFor))).toBe(true);
    const options = [...field("partition").querySelectorAll("option")];
    expect(options.map(({ textContent }) => textContent)).toEqual([
      "default (devwork, 4 nodes)",
      "arandu (1 node, 8 a100 a node)",
    ]);
    const choosable = (name: string): boolean => !field(name).disabled;
    expect([choosable("account"), choosable("qos")]).toEqual([true, false]); // there is no QOS to choose
    await vi.waitFor(() => {
      expect(desk.api.names).toHaveBeenCalledWith("local", "gpu-of-node", "devwork", 8);
    });
  });

  it("returns with what was typed until that is launched or reset, whatever the form was before", async () => {
    const desk = here(CLUSTER);
    const again = async (): Promise<void> => {
      widget?.dispose();
      await fill(desk);
    };
    await fill(desk);
    expect(button("Reset").getAttribute("aria-disabled")).toBe("true");
    type("memory", "7G");
    type("name", "training");
    await again();
    expect([field("memory").value, field("name").value]).toEqual(["7G", "training"]);
    button("Reset").click();
    await vi.waitFor(() => {
      expect([field("memory").value, field("name").value]).toEqual(["16G", ""]);
    });
    await again();
    expect(field("memory").value).toBe("16G");
    type("name", "training");
    button("Launch").click();
    await vi.waitFor(() => {
      expect(desk.api.launch).toHaveBeenCalledOnce();
    });
    await again();
    expect(field("name").value).toBe(""); // that of a session, which runs
  });

  it("offers it also where the controller was too slow to say it at first", async () => {
    const desk = here(CLUSTER);
    const names = desk.api.names.getMockImplementation()!;
    let isSlow = true;
    desk.api.names.mockImplementation((...asked: unknown[]) =>
      isSlow ? Promise.resolve([]) : (names(...asked) as unknown),
    );
    await open(desk);
    await vi.waitFor(() => {
      expect(desk.api.names).toHaveBeenCalled();
    });
    isSlow = false;
    await vi.waitFor(
      () => {
        expect(field("partition").textContent).toContain("arandu (1 node, 8 a100 a node)");
      },
      { timeout: 10_000 },
    );
  });

  it("keeps what is typed, and the field that has the focus, when the cluster answers late", async () => {
    const desk = here(CLUSTER);
    const names = desk.api.names.getMockImplementation()!;
    let answer = (): void => undefined;
    const isLate = new Promise<void>((resolve) => {
      answer = resolve;
    });
    desk.api.names.mockImplementation(async (...asked: unknown[]) => {
      await isLate;
      const found = (await names(...asked)) as unknown[];
      return asked[1] === "time-limit" ? [{ name: "1:00:00", about: "" }] : found;
    });
    await open(desk);
    const early = [...node.querySelectorAll<HTMLInputElement>("[data-field] input")];
    type("memory", "7G");
    const limit = field("time");
    limit.focus();
    type("time", "so");
    answer();
    await vi.waitFor(() => {
      expect(field("partition").textContent).toContain("arandu (1 node, 8 a100 a node)");
    });
    expect(document.activeElement).toBe(limit);
    type("time", "soon");
    expect([...node.querySelectorAll("[data-field] input")]).toEqual(early);
    expect([field("memory").value, field("time").value]).toEqual(["7G", "soon"]);
  });

  it("lists environments and folders, and goes into a folder by the keyboard", async () => {
    const desk = here(CLUSTER);
    const names = desk.api.names.getMockImplementation()!;
    desk.api.names.mockImplementation((...asked: unknown[]) => {
      const [, kind, , , start] = asked as [string, string, string, number, string];
      const found: Record<string, string[]> = {
        environment: ["~/venvs/torch"],
        folder: start === "~/data/" ? ["~/data/old/"] : ["~/data/", "~/code/"],
      };
      return found[kind] === undefined
        ? (names(...asked) as unknown)
        : Promise.resolve(found[kind].map((name) => ({ name, about: "last used" })));
    });
    await fill(desk);
    const press = (name: string, key: string): boolean =>
      field(name).dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    const shown = (): string[] =>
      [...node.querySelectorAll("[role=option] > span:first-child")].map((o) => o.textContent);
    for (const [name, first] of [
      ["env", "~/venvs/torch"],
      ["dir", "~/data/"],
    ] as const) {
      field(name).focus();
      press(name, "ArrowDown");
      await vi.waitFor(() => {
        expect(shown()).toContain(first);
      });
      expect(field(name).getAttribute("aria-expanded")).toBe("true");
      await vi.waitFor(() => {
        const active = field(name).getAttribute("aria-activedescendant")!;
        expect(document.getElementById(active)!.textContent).toBe(`${first}last used`);
      });
      press(name, "Enter");
      await vi.waitFor(() => {
        expect(field(name).value).toBe(first);
      });
    }
    await vi.waitFor(() => {
      expect(shown()).toEqual(["~/data/old/"]);
    });
    press("dir", "Escape");
    await vi.waitFor(() => {
      expect(shown()).toEqual([]);
    });
    node.querySelector("form")!.requestSubmit();
    await vi.waitFor(() => {
      const launched: unknown = desk.api.launch.mock.calls[0]?.[1];
      expect(launched).toMatchObject({ dir: "~/data", env: "~/venvs/torch" });
    });
  });

  it("says in place what is wrong, and launches nothing", async () => {
    const desk = here(CLUSTER);
    await fill(desk);
    type("gpus", "many");
    await vi.waitFor(() => {
      expect(node.querySelector("[role=alert]")?.textContent).toContain("Enter a number");
    });
    const wrong = field("gpus");
    expect(wrong.getAttribute("aria-invalid")).toBe("true");
    expect(wrong.getAttribute("aria-describedby")).toBe(node.querySelector("[role=alert]")?.id);
    node.querySelector("form")!.requestSubmit();
    expect(document.activeElement).toBe(wrong);
    expect(desk.api.launch).not.toHaveBeenCalled();
  });

  it("says what speaks against it while it is filled in, as text", async () => {
    const desk = here(CLUSTER);
    desk.api.preview.mockResolvedValue({ doubts: [HOSTILE], warnings: ["No such folder."] });
    await fill(desk);
    await vi.waitFor(() => {
      const said = [...node.querySelectorAll("[role=status] p")].map((p) => p.textContent);
      expect(said).toEqual([HOSTILE, "No such folder."]);
    }, 10_000); // it waits for a pause in the typing
    expect(node.querySelector("img")).toBeNull();
    desk.api.preview.mockResolvedValue({ estimate: { start: null, said: "in an hour" } });
    button("When would it start?").click();
    await vi.waitFor(() => {
      expect(node.querySelector(".jp-Slurm-outlook")?.textContent).toBe("in an hour");
    });
    expect(desk.api.preview.mock.lastCall?.[2]).toBe(true);
  });

  it("holds a launch back once for a reason of the agent, at its field, and leaves the second to Slurm", async () => {
    const desk = here(CLUSTER);
    await fill(desk);
    desk.api.preview.mockResolvedValue({
      doubts: ["--gpus=12 is more than all nodes have"],
      problems: [{ option: "gpus", scope: "partition", limit: "8", text: "--gpus=12 is more" }],
    });
    type("gpus", "12");
    node.querySelector("form")!.requestSubmit(); // before the pause in the typing
    await vi.waitFor(() => {
      expect(button("Launch anyway")).toBeTruthy();
    });
    expect(document.activeElement).toBe(field("gpus"));
    expect(node.querySelector("[role=alert]")?.textContent).toBe(
      "This partition has 8 GPUs in all.",
    );
    expect(node.textContent).not.toContain("--gpus");
    expect(desk.api.launch).not.toHaveBeenCalled();
    node.querySelector("form")!.requestSubmit();
    await vi.waitFor(() => {
      expect(desk.api.launch).toHaveBeenCalledOnce();
    });
  });

  it("shows a refusal, and launches again only what was not launched", async () => {
    const desk = here(CLUSTER);
    const panel = await fill(desk);
    const refused = {
      type: "urn:jupyter-slurm:error:submit-refused",
      detail: "Too much.",
      hint: "--less",
    };
    const keyOf = (call: number): unknown =>
      (desk.api.launch.mock.calls[call]?.[1] as { key: string } | undefined)?.key;
    for (const [error, text] of [
      [new TypeError("Failed to fetch"), "Only one session will be started"],
      [new RequestError(refused), "Too much."], // its hint is for the command line
    ] as const) {
      desk.api.launch.mockRejectedValueOnce(error);
      node.querySelector("form")!.requestSubmit();
      await vi.waitFor(() => {
        expect(node.querySelector("p[role=alert]")?.textContent).toContain(text);
      });
    }
    node.querySelector("form")!.requestSubmit();
    await vi.waitFor(() => {
      expect(node.querySelector(".jp-Slurm-session h2")?.textContent).toBe("training");
    });
    expect(keyOf(0)).toBe(keyOf(1)); // whether the first one arrived was not known
    expect(keyOf(2)).not.toBe(keyOf(1));
    expect(panel.place.session).toBe(KEY);
  });

  it("keeps the key and the problem of a launch without an answer while the cluster needs a login", async () => {
    const desk = here({ ...CLUSTER });
    await fill(desk);
    desk.api.launch.mockRejectedValueOnce(new TypeError("Failed to fetch"));
    node.querySelector("form")!.requestSubmit();
    const problem = (): string | undefined =>
      node.querySelector("p[role=alert]")?.textContent ?? undefined;
    await vi.waitFor(() => {
      expect(problem()).toContain("Only one session will be started");
    });
    const connection = { hosts: [], since: 0, message: "" };
    for (const state of ["disconnected", "connecting"] as const) {
      Object.assign(desk.model.jobs.clusters[0]!, { connection: { ...connection, state } });
      desk.tell();
      await vi.waitFor(() => {
        expect(node.querySelector("form")?.closest("[hidden]")).not.toBeNull();
        const names = [...node.querySelectorAll("button")].map(({ textContent }) => textContent);
        expect(names.includes("Connect")).toBe(state === "disconnected");
      });
    }
    Object.assign(desk.model.jobs.clusters[0]!, { connection: null });
    desk.tell();
    await vi.waitFor(() => {
      expect(node.querySelector("form")?.closest("[hidden]")).toBeNull();
    });
    expect(problem()).toContain("Only one session will be started");
    node.querySelector("form")!.requestSubmit();
    await vi.waitFor(() => {
      expect(desk.api.launch).toHaveBeenCalledTimes(2);
    });
    const keys = desk.api.launch.mock.calls.map(([, form]) => (form as { key: string }).key);
    expect(keys[1]).toBe(keys[0]);
  });

  it("stays as it is if it is closed during a launch", async () => {
    const desk = here(CLUSTER);
    const panel = await fill(desk);
    let launch: (job: unknown) => void = () => undefined;
    desk.api.launch.mockReturnValueOnce(
      new Promise((resolve) => {
        launch = resolve;
      }),
    );
    button("Launch").click();
    await vi.waitFor(() => {
      expect(desk.api.launch).toHaveBeenCalledOnce();
    });
    panel.dispose();
    launch(session("starting"));
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect([panel.place.session, panel.node.childElementCount]).toEqual([null, 0]);
  });

  it("shows one that is there already, step by step, and opens it through this server", async () => {
    const desk = here(CLUSTER);
    await open(desk, { session: KEY });
    await vi.waitFor(() => {
      expect(node.querySelector("a")?.href).toBe(`http://here/jupyter-slurm/${KEY}/`);
    });
    expect(node.querySelector("a")?.rel).toBe("noopener");
    let fail = (): void => undefined;
    const answer = new Promise((_, reject) => {
      fail = () => {
        reject(new TypeError("network"));
      };
    });
    desk.api.stop.mockReturnValueOnce(answer);
    const stopping = desk.model.stop(session("ready"));
    await vi.waitFor(() => {
      expect(node.querySelector(".jp-Slurm-badge")?.textContent).toBe("Stopping…");
    });
    expect(node.querySelector("a")?.hasAttribute("href")).toBe(false); // nothing to open
    fail();
    await stopping;
    desk.tell(session("starting", { label: HOSTILE, nodes: HOSTILE }, HOSTILE));
    await vi.waitFor(() => {
      expect(node.querySelector("h2")?.textContent).toBe(HOSTILE);
    });
    expect(node.querySelector("img, a")).toBeNull();
    expect(node.querySelectorAll("[data-reached=true]")).toHaveLength(2);
    button("Stop").click();
    expect(acts.stop).toHaveBeenCalledOnce();
    desk.api.log.mockResolvedValue("\u001b[31mno module named jupyter");
    desk.tell(session("ended", { error: { detail: "There is no Jupyter." } }));
    await vi.waitFor(() => {
      expect(node.querySelector("pre")?.textContent).toBe("no module named jupyter");
    });
    expect(node.textContent).toContain("There is no Jupyter.");
    const end = node.querySelector<HTMLElement>(".jp-Slurm-steps li:last-child");
    expect([end?.textContent, end?.dataset["kind"]]).toEqual(["Ended", "failed"]); // not green
    button("Launch another").click();
    await vi.waitFor(() => {
      expect(node.querySelector("form")).not.toBeNull();
    });
  });

  it("connects to one that is not reached, and to a cluster that needs a log-in", async () => {
    const desk = here(CLUSTER);
    desk.tell(session("unreachable", {}, "no way leads there"));
    await open(desk, { session: KEY });
    expect(node.textContent).toContain("no way leads there");
    button("Connect").click();
    expect(desk.api.reach).toHaveBeenCalledWith("local", KEY);
    widget?.dispose();

    const connection = { state: "disconnected", hosts: [], since: 0, message: "" } as const;
    const far: ICluster = { ...CLUSTER, connection };
    await open(here(far));
    expect(node.querySelector("form")).toBeNull(); // its checks would fail
    button("Connect").click();
    expect(acts.connect).toHaveBeenCalledExactlyOnceWith(far);
  });

  it("says that nothing is known of a session that is gone", async () => {
    const desk = here(CLUSTER);
    desk.api.session.mockRejectedValue(new RequestError({ status: 404 }));
    await open(desk, { session: KEY });
    await vi.waitFor(() => {
      expect(node.textContent).toContain("This session is no longer known");
    });
  });
});

describe("the list of sessions", () => {
  it("stands above the jobs, with those that go on", async () => {
    const desk = here(CLUSTER);
    const [stop, go] = [vi.fn(), vi.fn()];
    const nothing = {
      act: vi.fn(),
      open: vi.fn(),
      write: vi.fn(),
      connect: vi.fn(),
      disconnect: vi.fn(),
    };
    const jobs = {
      ...desk.model.jobs,
      clusters: [],
      failures: [],
      runningActs: [],
      acting: () => null,
    };
    desk.tell(session("ready", { nodes: "dgx01" }), session("ended", { key: "2", id: "13" }));
    await show(
      new JobsPanel(new JobsTable(jobs), trans, nothing, {
        sessions: { model: desk.model, stop, show: go },
      }),
    );
    const rows = node.querySelectorAll(".jp-Slurm-sessions li");
    expect([...rows].map(({ textContent }) => textContent)).toEqual([
      "trainingready · dgx01OpenStop",
    ]);
    button("Stop").click();
    button("training").click();
    expect([stop.mock.calls.length, go.mock.calls.length]).toEqual([1, 1]);
  });
});

describe("the cards", () => {
  it("are there for each cluster once, also for those that come later or get a name", async () => {
    const commands = new CommandRegistry();
    const shown: string[] = [];
    const add = vi.fn(({ args }: { args: { cluster: string } }) => {
      const label = commands.label(CommandIDs.launch, args);
      shown.push(label);
      return { isDisposed: false, dispose: () => shown.splice(shown.indexOf(label), 1) };
    });
    const opened = vi.fn(() => Promise.resolve());
    const clusters: ICluster[] = [{ ...CLUSTER, name: "local" }];
    const model = { clusters, changed: new Signal<object, void>(clusters) };
    addLaunchCommands(
      commands,
      { addItem: add } as unknown as ICommandPalette,
      { add } as unknown as ILauncher,
      model as unknown as IJobsModel,
      trans,
      opened,
    );
    expect(shown).toHaveLength(2); // they may be known before this is begun
    model.changed.emit();
    clusters[0] = CLUSTER;
    model.changed.emit();
    const connection = { state: "connected", hosts: [], since: 0, message: "" } as const;
    clusters.push({ ...CLUSTER, id: "far", connection });
    model.changed.emit();
    model.changed.emit();
    expect(shown).toEqual([
      "GPU notebook on arandu",
      "Slurm: New GPU Notebook on arandu",
      "GPU notebook on far",
      "Slurm: New GPU Notebook on far",
    ]);
    clusters.push({ id: "unipi", name: "unipi", gpus: false, poll: { error: null } });
    clusters.push({ id: "new", name: "new", poll: { error: null } });
    model.changed.emit();
    clusters[3] = { ...CLUSTER, id: "new", name: "new" }; // its controller has answered
    model.changed.emit();
    expect(shown.slice(4)).toEqual([
      "Jupyter on unipi",
      "Slurm: New Jupyter on unipi",
      "GPU notebook on new",
      "Slurm: New GPU Notebook on new",
    ]);
    await commands.execute(CommandIDs.launch, { cluster: "far" });
    expect(opened).toHaveBeenCalledExactlyOnceWith(
      expect.objectContaining({ cluster: "far", session: null }),
    );
  });

  it("have a command that waits for the clusters, and says so", async () => {
    const commands = new CommandRegistry();
    const jobs = { clusters: [] as ICluster[], connection: "connecting", problem: null };
    const model = Object.assign(jobs, { changed: new Signal<object, void>(jobs) });
    const opened = vi.fn(() => Promise.resolve());
    addLaunchCommands(commands, null, null, model as unknown as IJobsModel, trans, opened);
    expect(commands.isEnabled(CommandIDs.launch)).toBe(true);
    const launched = commands.execute(CommandIDs.launch);
    const notices = (): string[] => Notification.manager.notifications.map((one) => one.message);
    await vi.waitFor(() => {
      expect(notices()).toEqual(["Loading the clusters…"]);
    });
    expect(opened).not.toHaveBeenCalled();
    jobs.clusters = [CLUSTER];
    model.changed.emit();
    await launched;
    expect(opened).toHaveBeenCalledExactlyOnceWith(expect.objectContaining({ cluster: "local" }));
    expect(notices()).toEqual([]);
    jobs.clusters = [];
    jobs.connection = "live";
    const refused = commands.execute(CommandIDs.launch);
    await vi.waitFor(() => {
      expect(document.querySelector(".jp-Dialog")?.textContent).toContain("No cluster is known.");
    });
    document.querySelector<HTMLElement>(".jp-Dialog .jp-Dialog-button")?.click();
    await refused;
    expect(opened).toHaveBeenCalledOnce();
  });
});
