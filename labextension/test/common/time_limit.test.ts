import { nullTranslator } from "@jupyterlab/translation";
import { describe, expect, it } from "vitest";

import {
  durationEcho,
  durationWords,
  parseDuration,
  remainingSeconds,
  slurmTime,
} from "../../src/common/time_limit";
import { job } from "../jobs/fixtures";
import cases from "./durations.json";

const trans = nullTranslator.load("jupyter_slurm");

describe("a duration", () => {
  it.each(Object.entries(cases))(
    "%o is understood as the Python widgets do: %o",
    (text, seconds) => {
      expect(parseDuration(text)).toBe(seconds === "no limit" ? Infinity : seconds);
    },
  );

  it.each([
    ["90", "= 90 minutes", "90"],
    ["4", "= 4 minutes", "4"],
    ["1", "= 1 minute", "1"],
    ["4:00", "= 4 minutes", "4:00"],
    ["4 hours", "= 4 h", "4:00:00"],
    ["2 days 3h", "= 2 d 3 h", "2-03:00:00"],
    ["unlimited", "= no time limit", "unlimited"],
    ["soon", undefined, "soon"],
    ["", undefined, ""],
  ])("%o is echoed as %o, and Slurm gets %o", (text, echo, asked) => {
    expect([durationEcho(trans, text), slurmTime(text)]).toEqual([echo, asked]);
  });

  it.each([60, 5400, 86_400, 129_600, 172_800, 187_320, 59])(
    "of %i s is read as written",
    (seconds) => {
      expect(parseDuration(durationWords(seconds))).toBe(seconds);
    },
  );
});

describe("the rest of a time limit", () => {
  it.each([
    [600, 500],
    [365 * 86_400, null],
    [null, null],
  ])("of %o s is %o after 100 s", (limit, rest) => {
    const running = job("1", "RUNNING", { start_time: 1000, time_limit: limit });
    expect(remainingSeconds(running, 1100)).toBe(rest);
  });
});
