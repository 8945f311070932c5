import { Notification, type ICommandPalette } from "@jupyterlab/apputils";
import { nullTranslator } from "@jupyterlab/translation";
import { CommandRegistry } from "@lumino/commands";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { RequestError } from "../../src/common/api/problem";
import { CommandIDs } from "../../src/common/identifiers";
import type { IKernelPlace, IKernelSpec } from "../../src/kernels/model";
import {
  addMoveCommands,
  followUpActions,
  showMoveNotices,
  type IMoveActs,
} from "../../src/kernels/move_commands";
import type { IMove } from "../../src/kernels/move_model";
import { session } from "../sessions/fixtures";
import { Mover, Notebook, variable } from "./move_fixtures";

const trans = nullTranslator.load("jupyter_slurm");
const HOSTILE = '<img src=x onerror="document.title=1">';
const OURS = { kernel_provisioner: { provisioner_name: "jupyter-slurm" } };

let mover: Mover;

beforeEach(() => {
  mover = new Mover();
});
afterEach(() => {
  mover.dispose();
  Notification.dismiss();
});

describe("the notebooks that move", () => {
  it("are followed until they are there, and a late answer changes nothing then", async () => {
    const told: string[] = [];
    mover.model.progress.connect((_, { state, text }) => told.push(`${state}: ${text}`));
    await mover.model.begin({
      notebook: "a.ipynb",
      kernel: "slurm-b",
      in: ["x"],
      keep: true,
    });
    const move = mover.model.activeMove("a.ipynb")!;
    expect([move.kernel, mover.model.activeMove("b.ipynb")]).toEqual(["slurm-b", null]);
    mover.become(move); // which is no news
    const late = vi.spyOn(mover, "move").mockResolvedValueOnce({ ...move, text: "Earlier." });
    mover.become({ ...move, state: "moving", text: "It is there." });
    await mover.model.giveUp(move);
    expect(mover.model.activeMove("a.ipynb")).toBeNull();
    await vi.waitFor(() => {
      expect(late).toHaveBeenCalled();
    });
    expect(mover.model.activeMove("a.ipynb")).toBeNull();
    expect(told).toEqual(["waiting: Pending.", "cancelled: Given up."]);
  });

  it("are found where somebody else has begun them, and not asked for at once again", async () => {
    const listed = vi.spyOn(mover, "moves");
    const done = mover.going("old.ipynb", { state: "done" });
    const move = mover.going("a.ipynb");
    await mover.model.discover();
    await mover.model.discover();
    expect(listed).toHaveBeenCalledTimes(1);
    expect([mover.model.activeMove("a.ipynb"), mover.model.activeMove(done.notebook)]).toEqual([
      move,
      null,
    ]);
    mover.failure = new TypeError("Failed to fetch"); // which says nothing of the move
    mover.tick();
    await vi.waitFor(() => {
      expect(mover.model.activeMove("a.ipynb")).not.toBeNull();
    });
    mover.later();
    await mover.model.discover();
    mover.failure = null;
    const ended: IMove[] = [];
    mover.model.progress.connect((_, each) => ended.push(each));
    mover.forget(move); // the server has begun anew
    await vi.waitFor(() => {
      mover.tick();
      expect(ended.map(({ state }) => state)).toEqual(["failed"]);
    });
    expect(ended[0]?.text).toBe("There is no such move.");
  });
});

describe("the commands that move a notebook", () => {
  let notebook: Notebook;
  let commands: CommandRegistry;
  let kernels: IKernelSpec[];
  const kernelPlace = vi.fn<(id: string) => Promise<IKernelPlace | null>>();
  const refreshRunning = vi.fn(() => Promise.resolve());
  const refreshSpecs = vi.fn(() => Promise.resolve());
  const launch = vi.fn();

  beforeEach(() => {
    notebook = new Notebook();
    notebook.choose("1", "python3");
    commands = new CommandRegistry();
    commands.addCommand(CommandIDs.launch, { execute: launch });
    kernels = [
      { name: "slurm-a", display_name: HOSTILE },
      { name: "slurm-b", display_name: "B" },
    ];
    kernelPlace.mockReset();
    refreshRunning.mockClear();
    refreshSpecs.mockClear();
    const known = { python3: {}, "slurm-a": { metadata: OURS, display_name: HOSTILE } };
    const acts = {
      api: { kernelPlace, kernelSpecs: () => Promise.resolve(kernels) },
      moves: mover.model,
      specs: { specs: { kernelspecs: known }, refreshSpecs },
      sessions: { refreshRunning, running: () => [notebook.session].values() },
      commands,
      trans,
      front: () => notebook.context,
    } as unknown as IMoveActs;
    addMoveCommands(acts, { addItem: vi.fn() } as unknown as ICommandPalette);
    showMoveNotices(acts);
  });

  async function dialog(text: string): Promise<HTMLElement> {
    return vi.waitFor(() => {
      const found = [...document.querySelectorAll<HTMLElement>(".jp-Dialog")].at(-1);
      expect(found?.textContent ?? "").toContain(text);
      return found!;
    });
  }

  function press(found: HTMLElement, button = ".jp-mod-accept"): void {
    found.querySelector<HTMLElement>(`.jp-Dialog-button${button}`)!.click();
  }

  /** Return the selected variables, after a click on some. */
  async function tick(found: HTMLElement, ...names: string[]): Promise<string[]> {
    await vi.waitFor(() => {
      expect(found.querySelector("input[type=checkbox]")).not.toBeNull();
    });
    const all = [...found.querySelectorAll<HTMLInputElement>("input[type=checkbox]")];
    const boxes = all.filter(({ name }) => name !== "keep-allocations");
    boxes
      .filter(({ name }) => names.includes(name))
      .forEach((box) => {
        box.click();
      });
    return boxes.filter(({ checked }) => checked).map(({ name }) => name);
  }

  function notices(): string[] {
    return Notification.manager.notifications.map(({ type, message }) => `${type}: ${message}`);
  }

  it("ask where to and what comes along, and tell how far it is until it is there", async () => {
    const moving = commands.execute(CommandIDs.move);
    const found = await dialog("Variables to send");
    expect([...found.querySelectorAll("option")].map(({ text }) => text)).toEqual([HOSTILE, "B"]);
    expect(found.querySelector("img")).toBeNull();
    expect(await tick(found)).toEqual(["x", "modelo"]);
    expect(found.textContent).toContain("2 variables selected, 4 KiB");
    found.querySelector("select")!.value = "slurm-b";
    press(found);
    await moving;
    expect(mover.asked).toEqual([
      { notebook: "work/a.ipynb", kernel: "slurm-b", in: ["x", "modelo"], keep: true },
    ]);
    expect(notices()).toEqual(["in-progress: a.ipynb: Pending."]);
    expect(refreshSpecs).toHaveBeenCalledOnce(); // JupyterLab does not know that one yet
    const move = mover.model.activeMove("work/a.ipynb")!;
    await vi.waitFor(() => {
      mover.become({ ...move, state: "moving", text: "It is there." });
      expect(notices()).toEqual(["in-progress: a.ipynb: It is there."]);
    });
    expect(refreshRunning).not.toHaveBeenCalled();
    await vi.waitFor(() => {
      mover.become({ ...move, state: "done", text: "It runs on B now." });
      expect(notices()).toEqual(["success: a.ipynb: It runs on B now."]);
    });
    expect(refreshRunning).toHaveBeenCalledOnce(); // by which the notebook learns of it
  });

  it("tell why it was refused, and why it failed", async () => {
    mover.failure = new RequestError({ detail: HOSTILE, hint: "Go on without it." });
    const moving = commands.execute(CommandIDs.move);
    const refused = await dialog("Variables to send");
    press(refused);
    await vi.waitFor(() => {
      expect(refused.querySelector("[role=alert]")?.textContent).toContain(HOSTILE);
    });
    expect(refused.querySelector("img")).toBeNull();
    press(refused, ":not(.jp-mod-accept)");
    await moving;
    mover.failure = null;
    const move = mover.going("work/a.ipynb");
    await mover.model.discover();
    await vi.waitFor(() => {
      mover.become({ ...move, state: "failed", text: "sbatch refused it." });
      expect(notices()).toEqual(["error: a.ipynb: sbatch refused it."]);
    });
  });

  it("name what was named before, and tell of the last attempt alone, all of it", async () => {
    for (const text of ["Not moved: lock cannot be sent.", "long ".repeat(40)]) {
      mover.later();
      const moving = commands.execute(CommandIDs.move);
      const found = await dialog("Variables to send");
      const isFirst = mover.asked.length === 0;
      expect(await tick(found)).toEqual(isFirst ? ["x", "modelo"] : ["x"]);
      await tick(found, ...(isFirst ? ["modelo"] : []));
      press(found);
      await moving;
      const move = mover.model.activeMove("work/a.ipynb")!;
      expect(notices()).toEqual(["in-progress: a.ipynb: Pending."]);
      await vi.waitFor(() => {
        mover.become({ ...move, state: "failed", text });
        expect(notices()).toEqual([`error: a.ipynb: ${text}`]);
      });
      expect(Notification.manager.notifications[0]!.options.actions).toHaveLength(
        text.length > 140 ? 1 : 0,
      );
    }
    const [reads] = Notification.manager.notifications[0]!.options.actions!;
    reads!.callback(new MouseEvent("click"));
    press(await dialog("long long"), "");
  });

  it("list what can be sent, what is large, what cannot be sent, and what ends with the kernel", async () => {
    const known = mover.survey!;
    mover.survey = null;
    vi.useFakeTimers({ toFake: ["setTimeout"], shouldAdvanceTime: true });
    const moving = commands.execute(CommandIDs.move);
    const found = await dialog("A cell is running.");
    mover.survey = {
      ...known,
      variables: [
        variable("x"),
        variable("big", { type: HOSTILE, size: 2 ** 30 }),
        variable("lock", { size: null, why: "cannot pickle it" }),
      ],
      left: 3,
      allocations: ["gpu"],
    };
    await vi.advanceTimersByTimeAsync(2_000);
    vi.useRealTimers();
    expect(await tick(found)).toEqual(["x"]);
    for (const text of ["1.0 GiB", "cannot pickle it", "3 more are not listed."]) {
      expect(found.textContent).toContain(text);
    }
    expect(found.textContent).toContain("Keep the allocation gpu");
    expect(found.textContent).toContain("The next kernel of the notebook can use it.");
    found.querySelector<HTMLInputElement>("[name=keep-allocations]")!.click();
    expect(found.textContent).toContain("releases its allocation gpu.");
    expect(found.querySelector("img")).toBeNull();
    expect(found.querySelector<HTMLInputElement>("[name=lock]")!.disabled).toBe(true);
    expect(await tick(found, "big")).toEqual(["x", "big"]);
    press(found);
    await moving;
    expect(mover.asked.at(-1)).toMatchObject({ in: ["x", "big"], keep: false });
  });

  it("have it stay by the notice, or where they are called again", async () => {
    const first = mover.going("work/a.ipynb");
    await mover.model.discover();
    const [stay] = Notification.manager.notifications[0]!.options.actions!;
    stay!.callback(new MouseEvent("click"));
    await vi.waitFor(() => {
      expect(notices()).toEqual(["info: a.ipynb: Given up."]);
    });
    mover.later();
    const second = mover.going("work/a.ipynb", { text: HOSTILE });
    await mover.model.discover();
    const asking = commands.execute(CommandIDs.move);
    const question = await dialog("Keep the present kernel of the notebook?");
    expect(question.textContent).toContain(HOSTILE);
    press(question, ".jp-mod-warn");
    await asking;
    expect(mover.givenUp).toEqual([first.id, second.id]);
  });

  it("open the form that adds a kernel where there is none", async () => {
    kernels = [];
    const moving = commands.execute(CommandIDs.move);
    press(await dialog("There is no GPU kernel yet."));
    await moving;
    expect(launch).toHaveBeenCalledOnce();
    notebook.session = { ...notebook.session, type: "console" };
    expect(commands.isEnabled(CommandIDs.move)).toBe(false);
  });

  it("ask for another allocation of the kernel in front, or of the one that has an allocation", async () => {
    expect(commands.isEnabled(CommandIDs.followUp)).toBe(false);
    const args = { cluster: "local", allocation: "key" };
    const none = commands.execute(CommandIDs.followUp, args);
    press(await dialog("No open notebook has a kernel in this allocation."), "");
    await none;
    notebook.choose("2", "slurm-a");
    expect(commands.isEnabled(CommandIDs.followUp)).toBe(true);
    kernelPlace.mockResolvedValue(args);
    const job = { ...session("ready"), key: "key" };
    const [notice] = followUpActions(trans, commands, { isNearEnd: true, job });
    const asks = [
      () => void commands.execute(CommandIDs.followUp),
      () => {
        notice!.callback(new MouseEvent("click"));
      },
    ];
    expect(followUpActions(trans, commands, { isNearEnd: false, job })).toEqual([]);
    for (const ask of asks) {
      ask();
      const found = await dialog("Variables to send");
      expect(found.querySelector("select")).toBeNull();
      await tick(found, ...(mover.asked.length === 0 ? ["modelo"] : []));
      press(found);
      await vi.waitFor(() => {
        expect(mover.model.activeMove("work/a.ipynb")).not.toBeNull();
      });
      expect(mover.asked.at(-1)).toEqual({ notebook: "work/a.ipynb", in: ["x"], keep: true });
      await mover.model.giveUp(mover.model.activeMove("work/a.ipynb")!);
    }
    expect(kernelPlace).toHaveBeenCalledExactlyOnceWith("2");
  });
});
