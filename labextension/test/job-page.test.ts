import { nullTranslator } from "@jupyterlab/translation";
import { Signal } from "@lumino/signaling";
import { Widget } from "@lumino/widgets";
import { afterEach, describe, expect, it, vi } from "vitest";

import { JobPanel } from "../src/components/job/page";
import type { IJobApi, IJobDetail } from "../src/job-api";
import { JobPage, jobPlaceOf } from "../src/job-page";
import { moments, pageTitle, quoted, reasonLines, timeLeft } from "../src/job-words";
import { linked, linkTo } from "../src/link";
import { RequestError } from "../src/problem";
import type { IJob, IJobsModel, IServerEvent } from "../src/tokens";

const trans = nullTranslator.load("jupyter_slurm");
const HOSTILE = '<img src=x onerror="document.title=1"><b>bold</b>';
const KEY = "20261122-050000-0011223344556677";

const JOB: IJobDetail = {
  key: KEY,
  cluster: "local",
  id: "12",
  kind: "script",
  state: "RUNNING",
  reason: "",
  reason_text: "",
  next_step: "",
  submit_time: 100,
  start_time: 160,
  end_time: null,
  partition: "arandu",
  nodes: "dgx01",
  name: HOSTILE,
  label: null,
  known: true,
  unknown_since: null,
  tasks: null,
  time_limit: 3600,
  stdout: "/home/me/out",
  stderr: "/home/me/err",
  argv: ["sbatch", "-J", "two words"],
};
const FAILED = { ...JOB, state: "FAILED", end_time: 200, exit_code: 3 };

type Api = { [Name in keyof IJobApi]: ReturnType<typeof vi.fn> };

interface IHere {
  readonly page: JobPage;
  readonly api: Api;
  readonly files: { stdout: string; stderr: string };
  readonly hear: (event: string, data: unknown) => void;
  /** What the jobs' model has from now on. */
  readonly tell: (...jobs: IJob[]) => void;
  readonly streams: AbortSignal[];
}

/** A page, and an agent at the border of the process. */
function here(job: IJobDetail = JOB, place = "12"): IHere {
  const files = { stdout: "", stderr: "" };
  const heard: IServerEvent[] = [];
  const streams: AbortSignal[] = [];
  let wake = (): void => undefined;
  async function* follow(signal: AbortSignal): AsyncGenerator<IServerEvent> {
    signal.addEventListener("abort", () => {
      wake();
    });
    while (!signal.aborted) {
      const event = heard.shift();
      if (event?.event === "end") {
        return;
      }
      if (event !== undefined) {
        yield event;
      } else {
        await new Promise<void>((resolve) => (wake = resolve));
      }
    }
  }
  const api: Api = {
    job: vi.fn(() => Promise.resolve(job)),
    cancel: vi.fn(() => Promise.resolve({ ...job, state: "CANCELLED" })),
    resubmit: vi.fn(() => Promise.resolve({ ...job, id: "13" })),
    reader: vi.fn((_cluster: string, _job: string, stream: "stdout" | "stderr") => {
      return (offset: number, limit: number) => {
        const bytes = new TextEncoder().encode(files[stream]);
        const start = offset < 0 ? Math.max(0, bytes.length + offset) : offset;
        return Promise.resolve({ data: bytes.slice(start, start + limit), size: bytes.length });
      };
    }),
    follow: vi.fn((_cluster, _job, _offsets, signal: AbortSignal) => {
      streams.push(signal);
      return Promise.resolve(follow(signal));
    }),
    text: vi.fn((_cluster, _job, what: string) => Promise.resolve(`${what} ${HOSTILE}`)),
    record: vi.fn(() => Promise.resolve({ options: ["--time", "a b"], git: { commit: "abc" } })),
    report: vi.fn(() => Promise.reject(new RequestError({ detail: "Nothing was used yet." }))),
    usage: vi.fn(() =>
      Promise.resolve({
        node: "dgx01",
        cpus: 4,
        memory: 2 ** 30,
        gpus: 1,
        points: [
          { time: 100, cpus: 1, memory: 2 ** 20, gpu: null, gpu_memory: null },
          { time: 130, cpus: 4, memory: 2 ** 29, gpu: 0.5, gpu_memory: 2 ** 30 },
        ],
        note: HOSTILE,
      }),
    ),
    tasks: vi.fn(() =>
      Promise.resolve({
        columns: ["task", "state", "exit_code"],
        rows: [
          [3, "COMPLETED", 0],
          [4, "FAILED", 1],
        ],
        names: ["lr"],
        parameters: [["0.1"], [HOSTILE]],
      }),
    ),
    steps: vi.fn(() => Promise.resolve([])),
  };
  const jobs = { jobs: [] as IJob[], clusters: [], problem: null, now: 200, acting: () => null };
  const changed = new Signal<object, void>(jobs);
  const model = Object.assign(jobs, { changed }) as unknown as IJobsModel;
  const sleep = (): Promise<void> => Promise.resolve();
  const page = new JobPage(api, model, { cluster: "local", job: place }, sleep);
  return {
    page,
    api,
    files,
    streams,
    hear: (event, data) => {
      heard.push({ event, data });
      wake();
    },
    tell: (...known) => {
      jobs.jobs = known;
      changed.emit();
    },
  };
}

const output = (offset: number, text: string): object => ({
  stream: "stdout",
  offset,
  size: offset + text.length,
  data: btoa(text),
});

describe("the page of a job", () => {
  it("follows by one stream from where the log was read to, and lets go of it when nobody looks", async () => {
    const { page, api, files, hear, streams } = here();
    files.stdout = "one\n";
    page.setVisible(true);
    await vi.waitFor(() => {
      expect(streams).toHaveLength(1);
    });
    expect(api.follow.mock.calls[0]?.[2]).toEqual({ stdout: 4, stderr: 0 });
    hear("output", output(4, "two\n"));
    await vi.waitFor(() => {
      expect(page.logs.stdout.lines.map(({ text }) => text)).toEqual(["one", "two"]);
    });
    page.setVisible(false);
    expect(streams[0]?.aborted).toBe(true);
    files.stdout = "one\ntwo\nthree\n";
    page.setVisible(true);
    await vi.waitFor(() => {
      expect(streams).toHaveLength(2);
    });
    expect(page.logs.stdout.lines.map(({ text }) => text)).toEqual(["one", "two", "three"]);
    page.dispose();
    expect(streams[1]?.aborted).toBe(true);
  });

  it("has no stream for what is over, and one again when it is requeued", async () => {
    const { page, api, streams, tell } = here(FAILED);
    page.setVisible(true);
    await vi.waitFor(() => {
      expect(page.job?.state).toBe("FAILED");
    });
    tell(FAILED);
    expect(streams).toHaveLength(0);
    api.job.mockResolvedValue({ ...JOB, state: "PENDING" });
    tell({ ...JOB, state: "PENDING" });
    await vi.waitFor(() => {
      expect(streams).toHaveLength(1);
    });
    page.dispose();
  });

  it("takes in what becomes of the job, and ends with it", async () => {
    const { page, api, hear, streams } = here({ ...JOB, state: "PENDING", reason_text: "Wait." });
    page.setVisible(true);
    await vi.waitFor(() => {
      expect(streams).toHaveLength(1);
    });
    hear("job", JOB);
    hear("job", FAILED);
    api.job.mockResolvedValue(FAILED);
    hear("end", {});
    await vi.waitFor(() => {
      expect(page.seen.map(({ state }) => state)).toEqual(["PENDING", "RUNNING", "FAILED"]);
    });
    expect(moments(trans, page.job!, page.seen).map(({ what }) => what)).toEqual([
      "Submitted",
      "Waiting",
      "Started",
      "Ended",
    ]);
    await vi.waitFor(() => {
      expect(api.job).toHaveBeenCalledTimes(2);
    });
    expect(streams).toHaveLength(1);
    page.dispose();
  });

  it("says what goes wrong, and tries again; not where there is no such job", async () => {
    const { page, api } = here();
    api.job.mockRejectedValueOnce(new TypeError("network"));
    api.job.mockRejectedValue(new RequestError({ status: 404, detail: "there is no job 12" }));
    page.setVisible(true);
    await vi.waitFor(() => {
      expect(page.problem?.detail).toBe("there is no job 12");
    });
    expect(api.job).toHaveBeenCalledTimes(2);
    page.dispose();
  });

  it("submits again under the same key until there is an answer", async () => {
    const { page, api } = here();
    api.resubmit.mockRejectedValueOnce(new TypeError("network"));
    expect(await page.resubmit()).toBeNull();
    expect(page.actProblem?.hint).toContain("one job, not two");
    expect(await page.resubmit()).toMatchObject({ id: "13" });
    expect(await page.resubmit()).not.toBeNull();
    const keys = api.resubmit.mock.calls.map(([, , key]) => String(key));
    expect(keys[1]).toBe(keys[0]);
    expect(keys[2]).not.toBe(keys[0]);
    page.dispose();
  });

  it("is found by key and id; a task by its own id only", async () => {
    const { page } = here();
    page.setVisible(true);
    await vi.waitFor(() => {
      expect(page.job).not.toBeNull();
    });
    expect(page.isAt({ cluster: "local", job: KEY })).toBe(true);
    expect(page.isAt({ cluster: "local", job: "13" })).toBe(false);
    expect(page.lasting).toEqual({ cluster: "local", job: KEY });
    const made = here({ ...JOB, id: "12_3" }, "12_3");
    const task = made.page;
    task.setVisible(true);
    await vi.waitFor(() => {
      expect(task.job).not.toBeNull();
    });
    expect(task.isAt({ cluster: "local", job: KEY })).toBe(false);
    expect(task.lasting.job).toBe("12_3");
    await task.cancel();
    expect(made.api.cancel).toHaveBeenCalledWith("local", "12_3");
    page.dispose();
    task.dispose();
  });

  it("has an address that leads to it, beside what else stands there", () => {
    const place = { cluster: "local", job: "12_3" };
    const { search } = new URL(linkTo("http://localhost:8888/lab?reset=", place));
    expect(linked(search)).toEqual({ place, rest: "?reset=" });
    for (const none of ["", "?slurm-job=", "?slurm-job=local", "?slurm-job=/12"]) {
      expect(linked(none).place).toBeNull();
    }
  });

  it("takes only what names a job", () => {
    expect(jobPlaceOf({ cluster: "local", job: 12 })).toEqual({ cluster: "local", job: "12" });
    expect(jobPlaceOf({ cluster: "local" })).toBeNull();
    expect(jobPlaceOf({ cluster: "", job: "1" })).toBeNull();
  });
});

describe("words about a job", () => {
  it("warn when its time is nearly over", () => {
    expect(timeLeft(trans, JOB, 260)).toMatchObject({
      warning: "",
      text: "58:20 of 1:00:00 left",
    });
    expect(timeLeft(trans, JOB, 160 + 3300)?.warning).toMatch("it is ended");
    expect(timeLeft(trans, { ...JOB, time_limit: null }, 260)).toBeNull();
    expect(timeLeft(trans, FAILED, 260)).toBeNull();
  });

  it("tell how it ended and what to do, once", () => {
    const job = { ...FAILED, reason_text: "It ran out of memory.", next_step: "Ask for more." };
    const error = { detail: "It ran out of memory.", hint: "Ask for more." };
    expect(reasonLines(trans, { ...job, error })).toEqual([error.detail, error.hint]);
    expect(moments(trans, FAILED, []).at(-1)).toMatchObject({ detail: "FAILED, exit code 3" });
    const killed = { ...FAILED, exit_code: null, signal: 9 };
    expect(moments(trans, killed, []).at(-1)?.detail).toBe("FAILED, by signal 9");
  });

  it("quote what a shell would take apart, and shorten names", () => {
    expect(quoted(["sbatch", "-J", "it's", "", "--time=1"])).toBe(
      `sbatch -J 'it'"'"'s' '' --time=1`,
    );
    expect(pageTitle(trans, null, "12")).toBe("Job 12");
    expect(pageTitle(trans, { ...JOB, name: "n".repeat(40) }, "12")).toBe(
      `${"n".repeat(30)}… (job 12)`,
    );
  });
});

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
    const plots = [...node.querySelectorAll("svg")].map((plot) => [
      plot.getAttribute("aria-label"),
      plot.querySelector("path")?.getAttribute("d"),
    ]);
    expect(plots).toEqual([
      ["CPUs: 4 at last, 4 at most; it has 4", "M0.0 45.0L300.0 0.0"],
      ["Memory: 512.0 MiB at last, 512.0 MiB at most; it has 1.0 GiB", "M0.0 59.9L300.0 30.0"],
      ["GPUs busy: 50 % at last, 50 % at most", "M300.0 30.0"],
      ["GPU memory: 1.0 GiB at last, 1.0 GiB at most", "M300.0 0.0"],
    ]);
    expect(node.querySelector("[role=tabpanel]")?.textContent).toContain(HOSTILE);
    expect(node.querySelector("img, b")).toBeNull();
  });

  it("offers again what was submitted here, and to cancel what goes on", async () => {
    const buttons = (node: HTMLElement): string[] =>
      [...node.querySelectorAll(".jp-Slurm-jobActs button")].map(({ textContent }) => textContent);
    const node = await show(here());
    expect(buttons(node)).toEqual([
      "Submit again",
      "Requeue",
      "Time limit…",
      "Cancel",
      "Refresh",
      "Copy link",
    ]);
    node.querySelectorAll<HTMLElement>(".jp-Slurm-jobActs button")[1]?.click();
    expect(acts.act).toHaveBeenCalledWith("requeue", JOB);
    panel?.dispose();
    const other = await show(here({ ...FAILED, key: null, kind: null }));
    expect(buttons(other)).toEqual(["Refresh", "Copy link"]);
    [...other.querySelectorAll<HTMLElement>("[role=tab]")].at(-1)?.click();
    await vi.waitFor(() => {
      expect(other.textContent).toContain("It was submitted in another way: nothing is recorded");
    });
    expect(other.querySelector(".jp-Slurm-problem")).toBeNull(); // which is no failure
    other.querySelectorAll<HTMLElement>(".jp-Slurm-jobActs button")[1]?.click();
    expect(acts.link).toHaveBeenCalledOnce();
  });
});
