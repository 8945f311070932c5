import { Widget } from "@lumino/widgets";
import { afterEach, describe, expect, it, vi } from "vitest";

import { formatTime } from "../../src/common/format";
import { jobTime } from "../../src/common/labels";
import { JobPanel } from "../../src/job_page/page";
import { FAILED, here, HOSTILE, JOB, trans, type IHere } from "./fixtures";

describe("what the page shows", () => {
  const acts = {
    cancel: vi.fn(),
    act: vi.fn(),
    resubmit: vi.fn(),
    session: null,
    open: vi.fn(),
    link: vi.fn(),
  };
  let panel: JobPanel | undefined;

  async function show(made: IHere): Promise<HTMLElement> {
    panel = new JobPanel(made.page, trans, acts, "page");
    Widget.attach(panel, document.body);
    made.page.setVisible(true);
    await vi.waitFor(() => {
      expect(panel?.node.querySelector("[role=tablist]")).not.toBeNull();
    });
    return panel.node;
  }

  const tab = (node: HTMLElement, name: string): void => {
    [...node.querySelectorAll<HTMLElement>("[role=tab]")]
      .find(({ textContent }) => textContent === name)
      ?.click();
  };

  afterEach(() => {
    panel?.dispose();
  });

  it("takes text from outside as text, in the log too", async () => {
    const made = here(FAILED);
    made.files.stderr = `\u001b[31m${HOSTILE}\u001b[0m\n`;
    const node = await show(made);
    await vi.waitFor(() => {
      expect(node.querySelector(".jp-Slurm-line")?.textContent).toBe(HOSTILE);
    });
    expect(node.querySelector("h2")?.textContent).toBe(HOSTILE);
    expect(node.querySelector(".jp-Slurm-line span")?.className).toBe("jp-Slurm-ansi-red");
    tab(node, "Script");
    await vi.waitFor(() => {
      expect(node.querySelector("pre")?.textContent).toBe(`script ${HOSTILE}`);
    });
    expect(node.querySelector("img, b")).toBeNull();
  });

  it("says once what a job waits for, after Slurm's estimate, with the job that ends next", async () => {
    const later = Date.now() / 1000 + 86_400 * 400;
    const made = here({
      ...JOB,
      state: "PENDING",
      start_time: null,
      reason: "Resources",
      reason_text: "Waits for 8 GPUs; 6 of 8 are free.",
      estimated_start: later,
      next_end: { id: "9", name: "long-train", own: true, time: later },
    });
    const node = await show(made);
    const head = [...node.querySelectorAll(".jp-Slurm-jobHead > p")].map(
      ({ textContent }) => textContent,
    );
    expect(head[1]).toContain("Earliest start");
    expect(head[2]).toMatch(/6 of 8 are free. Next expected to end: long-train \(yours\), by /);
    expect(node.textContent.match(/Waits for 8 GPUs/g)).toHaveLength(1);
    const waiting = [...node.querySelectorAll(".jp-Slurm-timeline li")].at(-1)!;
    expect(waiting.textContent).toBe(`Waiting${formatTime(100)}`);
    // Other numbers are no other state.
    made.hear("job", { ...made.page.job!, reason_text: "Waits for 8 GPUs; 7 of 8 are free." });
    await vi.waitFor(() => {
      expect(node.textContent).toContain("7 of 8");
    });
    expect(node.querySelectorAll(".jp-Slurm-timeline li")).toHaveLength(2);
  });

  it("has no stream while its tab is hidden, nor while another page is above it", async () => {
    const { page, streams } = here();
    panel = new JobPanel(page, trans, acts, "page");
    Widget.attach(panel, document.body);
    const open = async (count: number): Promise<void> => {
      await vi.waitFor(() => {
        expect([streams.length, streams.at(-1)?.aborted]).toEqual([count, false]);
      });
    };
    const hidden = vi.spyOn(document, "hidden", "get");
    try {
      await open(1);
      for (const isHidden of [true, false]) {
        hidden.mockReturnValue(isHidden);
        document.dispatchEvent(new Event("visibilitychange"));
        expect(streams[0]?.aborted).toBe(true);
      }
      await open(2);
      panel.hide();
      expect(streams[1]?.aborted).toBe(true);
      panel.show();
      await open(3);
    } finally {
      hidden.mockRestore();
    }
  });

  it("finds a line, and goes on from one to the next", async () => {
    const made = here();
    made.files.stdout = `${"error ".repeat(300)}\nError one\nfine\nERROR two\n`;
    const node = await show(made);
    const box = node.querySelector<HTMLInputElement>("input[type=search]")!;
    await vi.waitFor(() => {
      expect(node.querySelectorAll(".jp-Slurm-line")).toHaveLength(4);
    });
    // As a browser does it: React does not notice what a script sets.
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value")?.set?.call(box, "error");
    box.dispatchEvent(new Event("input", { bubbles: true }));
    const found = (): string | undefined =>
      node.querySelector("[data-found]")?.textContent ?? undefined;
    await vi.waitFor(() => {
      expect(found()).toBe("ERROR two");
    });
    const marks = [...node.querySelectorAll("mark")].map(({ textContent }) => textContent);
    expect(marks.slice(-2)).toEqual(["Error", "ERROR"]);
    expect(marks.length).toBeLessThan(200); // of a line that is full of it, no more than can be drawn
    expect(node.querySelector(".jp-Slurm-line")?.textContent).toHaveLength(1800);
    const enter = (shiftKey: boolean): void => {
      box.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true, shiftKey }));
    };
    enter(false);
    await vi.waitFor(() => {
      expect(found()).toBe("Error one");
    });
    enter(false);
    await vi.waitFor(() => {
      expect(found()).toMatch(/^error error/);
    });
    enter(false);
    await vi.waitFor(() => {
      expect(node.querySelector("[role=search]")?.textContent).toContain("Not found above.");
    });
    enter(true);
    await vi.waitFor(() => {
      expect(found()).toBe("Error one");
    });
  });

  it("ends a search in earlier output that cannot be read, or that is gone", async () => {
    const made = here();
    made.files.stdout = `${"x".repeat(99)}\n`.repeat(4000);
    const node = await show(made);
    const box = node.querySelector<HTMLInputElement>("input[type=search]")!;
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value")?.set?.call(box, "absent");
    box.dispatchEvent(new Event("input", { bubbles: true }));
    const message = (): string => node.querySelector("[role=search] [role=status]")!.textContent;
    await vi.waitFor(() => {
      expect(message()).toContain("Press Enter to search earlier output.");
    });
    const earlier = vi.spyOn(made.page.logs.stdout, "earlier");
    const enter = async (text: string): Promise<void> => {
      box.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
      await vi.waitFor(() => {
        expect(message()).toContain(text);
      });
    };
    earlier.mockRejectedValueOnce(new TypeError("network"));
    await enter("check the network. Press Enter to search again.");
    earlier.mockResolvedValueOnce();
    await enter("Not found above.");
    expect(earlier).toHaveBeenCalledTimes(2);
  });

  it("counts the tasks of an array in its head, names the failed one, and keeps its first start", async () => {
    const made = here({
      ...JOB,
      array: "1-20",
      state: "PENDING",
      reason: "JobArrayTaskLimit",
      tasks: { COMPLETED: 11, FAILED: 1, RUNNING: 3, PENDING: 5 },
      failed_task: { task: 7, state: "FAILED", exit_code: 1, signal: null },
    });
    const node = await show(made);
    const head = node.querySelector(".jp-Slurm-jobHead")!;
    expect(head.textContent).toContain("11 done, 1 failed, 3 running, 5 pending");
    expect(head.textContent).toContain("1 of 20 tasks failed (task 7, exit code 1).");
    expect(jobTime(made.page.job!, 220)).toBe("1:00");
    [...head.querySelectorAll("button")]
      .find(({ textContent }) => textContent === "Show task 7")
      ?.click();
    expect(acts.open).toHaveBeenCalledWith("12_7");
  });

  it("wraps the log, names its file, and downloads all of it", async () => {
    const made = here(FAILED);
    made.files.stderr = "one\ntwo\n";
    const node = await show(made);
    const button = (name: string): HTMLButtonElement =>
      [...node.querySelectorAll("button")].find(
        (each) => each.textContent === name || each.getAttribute("aria-label") === name,
      )!;
    await vi.waitFor(() => {
      expect(node.querySelector("code")?.textContent).toBe("/home/me/err");
    });
    button("Wrap lines").click();
    await vi.waitFor(() => {
      expect(node.querySelectorAll(".jp-Slurm-wrapped .jp-Slurm-line")).toHaveLength(2);
    });
    const saved: string[] = [];
    const click = vi.spyOn(HTMLAnchorElement.prototype, "click").mockImplementation(function (
      this: HTMLAnchorElement,
    ) {
      saved.push(this.download);
    });
    Object.assign(URL, { createObjectURL: () => "blob:log", revokeObjectURL: () => undefined });
    button("Download the log").click();
    await vi.waitFor(() => {
      expect(saved).toEqual(["err"]);
    });
    click.mockRestore();
    const [data] = await made.page.wholeLog("stderr", trans);
    expect(new TextDecoder().decode(data)).toBe("one\ntwo\n");
  });

  it("has one main action, and Cancel apart from the harmless ones", async () => {
    const ended = await show(here(FAILED));
    const main = [...ended.querySelectorAll(".jp-mod-accept")].map((each) => each.textContent);
    expect(main).toEqual(["Submit again"]);
    panel?.dispose();
    const running = await show(here());
    expect(running.querySelector(".jp-Slurm-apart")?.textContent).toBe("Cancel");
    expect(running.querySelectorAll(".jp-mod-accept")).toHaveLength(0);
    expect(running.querySelectorAll("button.jp-mod-styled")).toHaveLength(0); // flat, as in JupyterLab's toolbars
    for (const name of ["Refresh", "Copy link", "Previous match", "Download the log"]) {
      const button = running.querySelector(`button[aria-label="${name}"]`);
      expect(button?.getAttribute("title")).toBe(name);
      expect(button?.querySelector("svg")).not.toBeNull();
    }
  });

  it("names the last lines of the output only where there are some", async () => {
    const look = "See the last lines of its output.";
    const missing = await show(here({ ...FAILED, next_step: look }));
    expect(missing.querySelector(".jp-Slurm-jobHead")?.textContent).not.toContain(look);
    panel?.dispose();
    const made = here({ ...FAILED, next_step: look });
    made.files.stderr = "no such file";
    const node = await show(made);
    await vi.waitFor(() => {
      expect(node.querySelector(".jp-Slurm-jobHead")?.textContent).toContain(look);
    });
  });

  it("knows no limit of a year", async () => {
    const node = await show(here({ ...JOB, time_limit: 365 * 86_400 }));
    expect(node.querySelector("progress")).toBeNull();
    tab(node, "Resources");
    await vi.waitFor(() => {
      expect(node.querySelector("dl")?.textContent).toContain("Time limitno limit");
    });
  });

  it("shows the tasks of an array, and opens one", async () => {
    const made = here({ ...JOB, array: "3-4", stdout: null, stderr: null });
    const node = await show(made);
    await vi.waitFor(() => {
      expect(node.querySelectorAll("tbody tr")).toHaveLength(2);
    });
    expect(node.querySelectorAll("tbody tr")[1]?.textContent).toContain(HOSTILE);
    node.querySelectorAll<HTMLElement>("tbody button")[1]?.click();
    expect(acts.open).toHaveBeenCalledWith("12_4");
  });

  it("asks what was used only where somebody looks, and says why nothing is told", async () => {
    const made = here();
    const node = await show(made);
    expect(made.api.report).not.toHaveBeenCalled();
    tab(node, "Resources");
    await vi.waitFor(() => {
      expect(node.querySelector("[role=tabpanel]")?.textContent).toContain("Nothing was used yet.");
    });
    expect(made.api.report).toHaveBeenCalledOnce();
    const plots = [...node.querySelectorAll(".jp-Slurm-plot svg")].map((plot) => [
      plot.getAttribute("aria-label"),
      plot.querySelector("path")?.getAttribute("d"),
    ]);
    expect(plots).toEqual([
      ["CPUs: 4 (last), 4 (peak), of 4", "M0.0 45.0L300.0 0.0"],
      ["Memory: 512.0 MiB (last), 512.0 MiB (peak), of 1.0 GiB", "M0.0 59.9L300.0 30.0"],
      ["GPUs busy: 50 % (last), 50 % (peak)", "M300.0 30.0"],
      ["GPU memory: 1.0 GiB (last), 1.0 GiB (peak)", "M300.0 0.0"],
    ]);
    expect(node.querySelector("[role=tabpanel]")?.textContent).toContain(HOSTILE);
    expect(node.querySelector("img, b")).toBeNull();
  });

  it("offers again what was submitted here, and to cancel what goes on", async () => {
    const buttons = (node: HTMLElement): string[] =>
      [...node.querySelectorAll(".jp-Slurm-jobActs button")].map(
        (each) => each.getAttribute("aria-label") ?? each.textContent,
      );
    const node = await show(here());
    expect(buttons(node)).toEqual([
      "Submit again",
      "Requeue",
      "Time limit…",
      "Refresh",
      "Copy link",
      "Cancel",
    ]);
    node.querySelectorAll<HTMLElement>(".jp-Slurm-jobActs button")[1]?.click();
    expect(acts.act).toHaveBeenCalledWith("requeue", JOB);
    panel?.dispose();
    const other = await show(here({ ...FAILED, key: null, kind: null }));
    expect(buttons(other)).toEqual(["Edit and resubmit…", "Refresh", "Copy link"]);
    [...other.querySelectorAll<HTMLElement>("[role=tab]")].at(-1)?.click();
    await vi.waitFor(() => {
      expect(other.textContent).toContain("No submission record");
    });
    expect(other.querySelector(".jp-Slurm-problem")).toBeNull(); // which is no failure
    other.querySelectorAll<HTMLElement>(".jp-Slurm-jobActs button")[2]?.click();
    expect(acts.link).toHaveBeenCalledOnce();
  });
});
