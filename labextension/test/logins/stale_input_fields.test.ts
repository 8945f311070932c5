import { Signal } from "@lumino/signaling";
import { afterEach, describe, expect, it, vi } from "vitest";

import type { IPrompt } from "../../src/common/api/objects";
import type { IJobsModel } from "../../src/common/jobs_model";
import { StaleInputFields } from "../../src/logins/stale_input_fields";

function prompt(id: string, ...texts: string[]): IPrompt {
  const questions = texts.map((text) => ({ text, echo: false }));
  const said = { title: "", instruction: "" };
  return { id, cluster: "far", host: "gateway", kind: "password", ...said, questions };
}

class Desk {
  readonly settled = new Signal<this, IPrompt>(this);
  readonly isDisposed = false;
  prompts: IPrompt[] = [];

  settle(prompt: IPrompt, ...still: IPrompt[]): void {
    this.prompts = still;
    this.settled.emit(prompt);
  }
}

/** A field as JupyterLab makes it; what is sent is noted. */
function field(text: string): { input: HTMLInputElement; sent: string[] } {
  const sent: string[] = [];
  const box = document.createElement("div");
  box.className = "jp-Stdin";
  const said = document.createElement("pre");
  said.className = "jp-Stdin-prompt";
  said.textContent = text;
  const input = document.createElement("input");
  input.className = "jp-Stdin-input";
  input.addEventListener("keydown", ({ key }) => {
    if (key === "Enter") {
      sent.push(input.value);
      box.remove();
    }
  });
  box.append(said, input);
  document.body.append(box);
  return { input, sent };
}

describe("fields that nobody waits for", () => {
  afterEach(() => {
    document.body.replaceChildren();
  });

  it("go away when their prompt is settled, and nothing that was typed is sent", () => {
    const desk = new Desk();
    const leftovers = new StaleInputFields(desk as unknown as IJobsModel);
    const code = field("  Verification code: ");
    const other = field("Your name? ");
    code.input.value = "half a sec";
    desk.settle(prompt("0", "Password: "));
    expect(code.sent).toEqual([]);
    desk.settle(prompt("1", "Verification code: "));
    expect(code.sent).toEqual([""]);
    expect(other.sent).toEqual([]);
    leftovers.dispose();
  });

  it("go away as well when the kernel asks after the answer, but not what is asked anew", () => {
    vi.useFakeTimers();
    const desk = new Desk();
    const leftovers = new StaleInputFields(desk as unknown as IJobsModel);
    desk.settle(prompt("1", "Password: "));
    const late = field("Password: ");
    vi.advanceTimersByTime(600);
    expect(late.sent).toEqual([""]);
    const again = field("Password: ");
    desk.prompts = [prompt("2", "Password: ")];
    vi.advanceTimersByTime(5000);
    expect(again.sent).toEqual([]);
    leftovers.dispose();
    expect(vi.getTimerCount()).toBe(0);
    vi.useRealTimers();
  });

  it("stay as long as another prompt asks the same", () => {
    const desk = new Desk();
    const leftovers = new StaleInputFields(desk as unknown as IJobsModel);
    const code = field("  Password: ");
    desk.settle(prompt("1", "Password: "), prompt("2", "Password:"));
    expect(code.sent).toEqual([]);
    desk.settle(prompt("2", "Password:"));
    expect(code.sent).toEqual([""]);
    leftovers.dispose();
    const later = field("Password: ");
    desk.settle(prompt("3", "Password:"));
    expect(later.sent).toEqual([]);
  });
});
