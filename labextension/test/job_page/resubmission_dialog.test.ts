import { describe, expect, it, vi } from "vitest";

import type { IJob } from "../../src/common/api/objects";
import { RequestError } from "../../src/common/api/problem";
import { editAndResubmit, type IForeignSubmission } from "../../src/job_page/resubmission_dialog";
import { JOB, trans } from "./fixtures";

const FIELDS = ".jp-Slurm-resubmission textarea";

/** Return the fields of the open dialog: the options and the script. */
async function fields(): Promise<HTMLTextAreaElement[]> {
  await vi.waitFor(() => {
    expect(document.querySelectorAll(FIELDS)).toHaveLength(2);
  });
  return [...document.querySelectorAll<HTMLTextAreaElement>(FIELDS)];
}

function press(button: string): void {
  document.querySelector<HTMLElement>(`.jp-Dialog ${button}`)!.click();
}

/** Wait for the message of a failure, and close it. */
async function dismiss(text: string): Promise<void> {
  await vi.waitFor(() => {
    expect(document.querySelector(".jp-Dialog")?.textContent).toContain(text);
  });
  expect(document.querySelector(FIELDS)).toBeNull();
  press("button.jp-mod-styled");
}

function agent() {
  return {
    foreignSubmission: vi.fn(() => Promise.resolve({ script: "old", options: ["--time=5"] })),
    submit: vi.fn<(cluster: string, sent: IForeignSubmission) => Promise<IJob>>(() =>
      Promise.resolve({ ...JOB, id: "13" }),
    ),
  };
}

describe("the dialog of a job from a terminal", () => {
  it("returns with what was edited until it is submitted, under one key until the agent answers", async () => {
    const api = agent();
    const refusal = { type: "urn:jupyter-slurm:error:submit-refused", detail: "No partition a." };
    const unknown = { type: "urn:jupyter-slurm:error:submission-unknown", detail: "sbatch hangs." };
    api.submit.mockRejectedValueOnce(new TypeError("network"));
    api.submit.mockRejectedValueOnce(new RequestError(unknown));
    api.submit.mockRejectedValueOnce(new RequestError(refusal));
    const made = editAndResubmit(trans, api, { cluster: "local", job: "12" });
    const [options, script] = await fields();
    options!.value = "--partition=a\n";
    script!.value = "new";
    press(".jp-mod-accept");
    await dismiss("Only one job will be submitted.");
    expect((await fields()).map(({ value }) => value)).toEqual(["--partition=a", "new"]);
    press(".jp-mod-accept");
    await dismiss("sbatch hangs.");
    await fields();
    press(".jp-mod-accept");
    await dismiss("No partition a.");
    const [again] = await fields();
    again!.value = "--partition=b";
    press(".jp-mod-accept");
    expect(await made).toMatchObject({ id: "13" });
    const sent = api.submit.mock.calls.map(([, submission]) => submission);
    expect(sent.map(({ text, options: words }) => [text, ...words])).toEqual([
      ["new", "--partition=a"],
      ["new", "--partition=a"],
      ["new", "--partition=a"],
      ["new", "--partition=b"],
    ]);
    expect(new Set(sent.slice(0, 3).map(({ key }) => key)).size).toBe(1);
    expect(sent[3]?.key).not.toBe(sent[2]?.key);
  });

  it("is given up by the user alone, and not shown without a script", async () => {
    const api = agent();
    api.submit.mockRejectedValueOnce(new Error("No answer."));
    const made = editAndResubmit(trans, api, { cluster: "local", job: "12" });
    await fields();
    press(".jp-mod-accept");
    await dismiss("No answer.");
    await fields();
    press(".jp-mod-reject");
    expect(await made).toBeNull();
    expect(api.submit).toHaveBeenCalledOnce();
    api.foreignSubmission.mockRejectedValueOnce(new Error("Slurm has no script."));
    const none = editAndResubmit(trans, api, { cluster: "local", job: "12" });
    await dismiss("Slurm has no script.");
    expect(await none).toBeNull();
  });
});
