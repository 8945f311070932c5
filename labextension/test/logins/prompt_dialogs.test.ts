import { Dialog } from "@jupyterlab/apputils";
import { nullTranslator } from "@jupyterlab/translation";
import { Signal } from "@lumino/signaling";
import { afterEach, describe, expect, it, vi } from "vitest";

import type { IPrompt } from "../../src/common/api/objects";
import type { IJobsModel } from "../../src/common/jobs_model";
import { PromptDialogs } from "../../src/logins/prompt_dialogs";

const trans = nullTranslator.load("jupyter_slurm");
const HOSTILE =
  '<img src=x onerror="document.title=1"><b>bold</b>\nFor far, jupyter-slurm asks you:';

function prompt(id: string, more: Partial<IPrompt> = {}): IPrompt {
  const questions = [{ text: "Verification code: ", echo: false }];
  const said = { title: "", instruction: "" };
  return {
    id,
    cluster: "far",
    host: "gateway",
    kind: "keyboard-interactive",
    ...said,
    questions,
    ...more,
  };
}

/** The model as far as the dialogs know it: what waits, and who answered what. */
class Desk {
  readonly changed = new Signal<this, void>(this);
  readonly isDisposed = false;
  prompts: IPrompt[] = [];
  answers: [string, readonly string[] | null][] = [];

  async answer({ id }: IPrompt, answers: readonly string[] | null): Promise<void> {
    this.answers.push([id, answers]);
    this.settle(id);
    return Promise.resolve();
  }

  ask(...prompts: IPrompt[]): void {
    this.prompts.push(...prompts);
    this.changed.emit();
  }

  settle(settled: string): void {
    this.prompts = this.prompts.filter(({ id }) => id !== settled);
    this.changed.emit();
  }
}

describe("the dialogs of a log-in", () => {
  let desk: Desk;
  let dialogs: PromptDialogs;

  function start(...prompts: IPrompt[]): void {
    desk = new Desk();
    desk.prompts = prompts;
    dialogs = new PromptDialogs(desk as unknown as IJobsModel, trans);
  }

  async function shown(): Promise<HTMLElement> {
    return vi.waitFor(() => {
      const open = document.querySelectorAll<HTMLElement>(".jp-Slurm-promptDialog");
      expect(open).toHaveLength(1);
      expect(open[0]!.querySelector(".jp-Slurm-prompt p")).not.toBeNull();
      return open[0]!;
    });
  }

  async function none(): Promise<void> {
    await vi.waitFor(() => {
      expect(document.querySelector(".jp-Dialog")).toBeNull();
    });
  }

  async function answered(...answers: Desk["answers"]): Promise<void> {
    await none();
    await vi.waitFor(() => {
      expect(desk.answers).toEqual(answers);
    });
  }

  function press(key: string): void {
    const event = new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true });
    (document.activeElement ?? document.body).dispatchEvent(event);
  }

  afterEach(async () => {
    dialogs.dispose();
    Dialog.flush();
    await none();
  });

  it("hides what is typed, asks all at once, and sends with Enter", async () => {
    const questions = [
      { text: "Password: ", echo: false },
      { text: "Code: ", echo: true },
    ];
    start(prompt("1", { questions }));
    const fields = (await shown()).querySelectorAll("input");
    expect([...fields].map(({ type, autocomplete }) => [type, autocomplete])).toEqual([
      ["password", "off"],
      ["text", "off"],
    ]);
    await vi.waitFor(() => {
      expect(document.activeElement).toBe(fields[0]);
    });
    fields[0]!.value = "hush";
    fields[1]!.value = "123456";
    press("Enter");
    await answered(["1", ["hush", "123456"]]);
    expect([...fields].map(({ value }) => value)).toEqual(["", ""]);
  });

  it("takes what a host says as text, and says itself which host and which cluster it is", async () => {
    start(
      prompt("1", {
        title: HOSTILE,
        instruction: HOSTILE,
        questions: [{ text: HOSTILE, echo: true }],
      }),
    );
    const node = await shown();
    expect(node.querySelector("img, b")).toBeNull();
    expect(node.querySelector(".jp-Dialog-header")?.textContent).toBe("Login to far");
    expect(node.querySelector(".jp-Slurm-prompt p")?.textContent).toBe("gateway asks:");
    expect([...node.querySelectorAll(".jp-Slurm-said")].map((each) => each.textContent)).toEqual([
      HOSTILE,
      HOSTILE,
      HOSTILE,
    ]);
  });

  it.each(["Escape", "Cancel"])("declines by %s", async (way) => {
    start(prompt("1"));
    const node = await shown();
    node.querySelector("input")!.value = "half typ";
    if (way === "Escape") {
      press(way);
    } else {
      node.querySelector<HTMLButtonElement>(".jp-mod-reject")!.click();
    }
    await answered(["1", null]);
  });

  it("is not closed by a click beside it", async () => {
    start(prompt("1"));
    const node = await shown();
    node.click();
    await shown();
    expect(desk.answers).toEqual([]);
  });

  it("accepts a key by its button only", async () => {
    const key = {
      kind: "host-key",
      title: "This host is not known yet",
      instruction: "SHA256:abc",
    };
    start(prompt("1", key));
    await shown();
    press("Enter");
    await answered(["1", null]);
    desk.ask(prompt("2", key));
    const node = await shown();
    expect(node.querySelector("input")).toBeNull();
    expect(node.textContent).toContain("SHA256:abc");
    node.querySelector<HTMLButtonElement>(".jp-mod-warn")!.click();
    await answered(["1", null], ["2", ["yes"]]);
  });

  it("shows one after the other, and what was answered elsewhere no more", async () => {
    start(prompt("1"), prompt("2", { host: "login" }), prompt("3", { host: "node" }));
    await shown();
    desk.settle("2");
    desk.settle("1");
    expect((await shown()).textContent).toContain("node asks:");
    desk.settle("3");
    await none();
    expect(desk.answers).toEqual([]);
  });

  it("shows nothing of a question that was settled while another dialog was open", async () => {
    const other = new Dialog({ title: "Another" });
    void other.launch();
    start(prompt("1"));
    await vi.waitFor(() => {
      expect(document.querySelector(".jp-Dialog")).not.toBeNull();
    });
    expect(document.querySelector(".jp-Slurm-promptDialog")).toBeNull();
    desk.settle("1");
    other.reject();
    await none();
    expect(desk.answers).toEqual([]);
  });

  it("lets what is only to be read be put away without an answer", async () => {
    start(prompt("1", { questions: [], instruction: "Press 1 on your phone." }));
    expect((await shown()).textContent).toContain("gateway says:");
    press("Enter");
    await none();
    desk.ask(prompt("2"));
    await shown();
    expect(desk.answers).toEqual([]);
  });
});
