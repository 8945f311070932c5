import { nullTranslator } from "@jupyterlab/translation";
import { describe, expect, it, vi } from "vitest";

import { enterTimeLimit } from "../../src/jobs/actions/job_dialogs";
import { job } from "./fixtures";

const trans = nullTranslator.load("jupyter_slurm");

describe("the dialog of a time limit", () => {
  it.each([1, 2])("takes a time as people write it, for %i job(s)", async (count) => {
    const jobs = ["7", "8"].slice(0, count).map((id) => job(id, "PENDING"));
    const entered = enterTimeLimit(trans, jobs, () => "");
    await vi.waitFor(() => {
      expect(document.querySelector(".jp-Dialog input")).not.toBeNull();
    });
    const field = document.querySelector<HTMLInputElement>(".jp-Dialog input")!;
    for (const [text, isTime] of [
      ["90 min", true],
      ["1-12:00:00", true],
      ["soon", false],
      ["4 hours", true],
    ] as const) {
      field.value = text;
      expect(field.checkValidity()).toBe(isTime);
    }
    document.querySelector<HTMLElement>(".jp-Dialog .jp-mod-accept")!.click();
    expect(await entered).toBe("4:00:00"); // as Slurm takes it
  });
});
