import { describe, expect, it, vi } from "vitest";

import { RequestError } from "../../src/common/api/problem";
import type { IReport } from "../../src/job_page/api";
import { jobLink, parseJobLink } from "../../src/job_page/job_link";
import {
  pageTitle,
  quoteWords,
  reasonLines,
  remainingTime,
  reportFacts,
  timelineEvents,
} from "../../src/job_page/labels";
import { parseJobLocation } from "../../src/job_page/model";
import { FAILED, here, JOB, KEY, trans } from "./fixtures";

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

  it("is followed once where it is hidden and shown while an answer is awaited", async () => {
    const { page, api, files, streams } = here();
    files.stdout = "one\n";
    page.setVisible(true);
    await vi.waitFor(() => {
      expect(streams).toHaveLength(1);
    });
    page.setVisible(false);
    files.stdout = "one\ntwo\n";
    const answers: (() => void)[] = [];
    api.job.mockImplementation(
      () =>
        new Promise((resolve) => {
          answers.push(() => {
            resolve(JOB);
          });
        }),
    );
    page.setVisible(true);
    page.refresh();
    expect(answers).toHaveLength(2);
    answers.forEach((answer) => {
      answer();
    });
    await vi.waitFor(() => {
      expect(streams.at(-1)?.aborted).toBe(false);
    });
    expect(streams.map(({ aborted }) => aborted)).toEqual([true, false]);
    expect(page.logs.stdout.lines.map(({ text }) => text)).toEqual(["one", "two"]);
    expect(api.follow.mock.lastCall?.[2]).toEqual({ stdout: 8, stderr: 0 });
    page.dispose();
  });

  it("names the trouble of a connection no longer than it lasts", async () => {
    const { page, hear, streams } = here();
    page.setVisible(true);
    await vi.waitFor(() => {
      expect(streams).toHaveLength(1);
    });
    hear("trouble", { detail: "The connection is lost." });
    await vi.waitFor(() => {
      expect(page.problem?.detail).toBe("The connection is lost.");
    });
    page.refresh();
    await vi.waitFor(() => {
      expect(streams).toHaveLength(2);
    });
    expect(page.problem).toBeNull();
    page.dispose();
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
      expect(page.observedStates.map(({ state }) => state)).toEqual([
        "PENDING",
        "RUNNING",
        "FAILED",
      ]);
    });
    expect(timelineEvents(trans, page.job!, page.observedStates).map(({ what }) => what)).toEqual([
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

  it("can cancel a requeued job again once it runs again", async () => {
    const { page, api, hear, streams } = here();
    api.cancel.mockResolvedValue(JOB); // Slurm has not carried it out yet
    page.setVisible(true);
    await vi.waitFor(() => {
      expect(streams).toHaveLength(1);
    });
    await page.cancel();
    expect(page.isCancelling).toBe(true);
    hear("job", { ...JOB, restarts: 1 }); // requeued by somebody else, and started at once
    await vi.waitFor(() => {
      expect(page.job?.restarts).toBe(1);
    });
    expect(page.isCancelling).toBe(false);
    page.dispose();
  });

  it("reads the log of a finished job again until it succeeds; not a log that does not exist", async () => {
    const { page, api, files } = here(FAILED);
    files.stdout = "one\n";
    const log = vi.spyOn(page.logs.stdout, "catchUp");
    log.mockRejectedValueOnce(new TypeError("network"));
    const missing = new RequestError({ status: 404, detail: "The file does not exist." });
    vi.spyOn(page.logs.stderr, "catchUp").mockRejectedValue(missing);
    page.setVisible(true);
    await vi.waitFor(() => {
      expect(page.logs.stdout.lines.map(({ text }) => text)).toEqual(["one"]);
    });
    expect([page.logProblem("stdout"), page.logProblem("stderr")?.status]).toEqual([null, 404]);
    await Promise.resolve();
    expect(api.job).toHaveBeenCalledTimes(2);
    page.dispose();
  });

  it("downloads no log that is too large, and says so in the language of the person", async () => {
    const { page, api } = here();
    api.reader.mockReturnValue(() => Promise.resolve({ data: new Uint8Array(), size: 2 ** 29 }));
    const language = Object.create(trans, {
      __: { value: (text: string) => text.toUpperCase() },
    }) as typeof trans;
    await expect(page.wholeLog("stdout", language)).rejects.toMatchObject({
      problem: {
        detail: "THE LOG HAS MORE THAN %1 MIB.",
        hint: "COPY ITS PATH, AND READ THE FILE ON THE CLUSTER.",
      },
    });
    page.dispose();
  });

  it("submits again under the same key until there is an answer", async () => {
    const { page, api } = here();
    api.resubmit.mockRejectedValueOnce(new TypeError("network"));
    expect(await page.resubmit()).toBeNull();
    expect(page.actProblem?.hint).toContain("Only one job");
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
    expect(page.permanentLocation).toEqual({ cluster: "local", job: KEY });
    const made = here({ ...JOB, id: "12_3" }, "12_3");
    const task = made.page;
    task.setVisible(true);
    await vi.waitFor(() => {
      expect(task.job).not.toBeNull();
    });
    expect(task.isAt({ cluster: "local", job: KEY })).toBe(false);
    expect(task.permanentLocation.job).toBe("12_3");
    await task.cancel();
    expect(made.api.cancel).toHaveBeenCalledWith("local", "12_3");
    page.dispose();
    task.dispose();
  });

  it("has an address that leads to it, beside what else stands there", () => {
    const place = { cluster: "local", job: "12_3" };
    const { search } = new URL(jobLink("http://localhost:8888/lab?reset=", place));
    expect(parseJobLink(search)).toEqual({ place, rest: "?reset=" });
    for (const none of ["", "?slurm-job=", "?slurm-job=local", "?slurm-job=/12"]) {
      expect(parseJobLink(none).place).toBeNull();
    }
  });

  it("takes only what names a job", () => {
    expect(parseJobLocation({ cluster: "local", job: 12 })).toEqual({
      cluster: "local",
      job: "12",
    });
    expect(parseJobLocation({ cluster: "local" })).toBeNull();
    expect(parseJobLocation({ cluster: "", job: "1" })).toBeNull();
  });
});

describe("words about a job", () => {
  it("warn when its time is nearly over", () => {
    expect(remainingTime(trans, JOB, 260)).toMatchObject({
      warning: "",
      text: "58:20 of 1:00:00 left",
    });
    expect(remainingTime(trans, JOB, 160 + 3300)?.warning).toMatch("ends at its time limit");
    expect(remainingTime(trans, { ...JOB, time_limit: null }, 260)).toBeNull();
    expect(remainingTime(trans, FAILED, 260)).toBeNull();
  });

  it("tell how it ended and what to do, once", () => {
    const job = { ...FAILED, reason_text: "It ran out of memory.", next_step: "Ask for more." };
    const error = { detail: "It ran out of memory.", hint: "Ask for more." };
    expect(reasonLines(trans, { ...job, error }, true)).toEqual([error.detail, error.hint]);
    expect(timelineEvents(trans, FAILED, []).at(-1)).toMatchObject({
      detail: "FAILED, exit code 3",
    });
    const killed = { ...FAILED, exit_code: null, signal: 9 };
    expect(timelineEvents(trans, killed, []).at(-1)?.detail).toBe("FAILED, by signal 9");
  });

  it("say of what was used no share of a year, and no GPUs that there are not", () => {
    const nothing = { cpu_time: null, cpus: null, cpu_efficiency: null, memory_peak: null };
    const report = {
      ...{ ...nothing, memory_asked: null, memory_efficiency: null, source: "sacct", notes: [] },
      ...{ elapsed: 90, time_limit: 365 * 86_400, gpus_asked: 0, gpus: [] },
    } as unknown as IReport;
    expect(reportFacts(trans, report)).toEqual([
      ["Time", "1:30, no limit"],
      ["Source", "accounting (sacct)"],
    ]);
  });

  it("quote what a shell would take apart, and shorten names", () => {
    expect(quoteWords(["sbatch", "-J", "it's", "", "--time=1"])).toBe(
      `sbatch -J 'it'"'"'s' '' --time=1`,
    );
    expect(pageTitle(trans, null, "12")).toBe("Job 12");
    expect(pageTitle(trans, { ...JOB, name: "n".repeat(40) }, "12")).toBe(
      `${"n".repeat(30)}… (job 12)`,
    );
  });
});
