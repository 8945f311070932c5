import { nullTranslator } from "@jupyterlab/translation";
import { Signal } from "@lumino/signaling";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import type { IJob } from "../../src/common/api/objects";
import type { IJobsModel } from "../../src/common/jobs_model";
import { DEFAULT_SETTINGS } from "../../src/notices/model";
import { SessionEndWarning } from "../../src/notices/session_end";
import { OwnSession, parseSessionFacts, type ISessionFacts } from "../../src/sessions/own_session";
import { endWarning, ownSessionText } from "../../src/sessions/own_session_labels";
import { session } from "./fixtures";

const trans = nullTranslator.load("jupyter_slurm");
const KEY = "20261122-050000-0011223344556677";
const FACTS: ISessionFacts = {
  ...{ name: "training", key: KEY, job: "12", node: "dgx01", resume: false, colour: "#c2185b" },
  ...{ start: 0, end: 14_400 },
};

/** A page of the session: the jobs that its agent knows, and the warnings that it shows. */
class Page {
  readonly model = { jobs: [] as IJob[], now: 100 };
  readonly own: OwnSession;
  readonly shown: number[] = [];
  wishes = { ...DEFAULT_SETTINGS };
  readonly warning: SessionEndWarning;
  private readonly _changed = new Signal<object, void>(this);

  constructor(facts: Partial<ISessionFacts> = {}) {
    const jobs = Object.assign(this.model, { changed: this._changed }) as unknown as IJobsModel;
    this.own = new OwnSession({ ...FACTS, ...facts }, jobs);
    this.warning = new SessionEndWarning(this.own, {
      settings: () => this.wishes,
      show: (end) => {
        this.shown.push(end);
        return () => this.shown.splice(this.shown.indexOf(end), 1);
      },
    });
  }

  get text(): string {
    return ownSessionText(trans, this.own);
  }

  at(now: number, ...jobs: IJob[]): this {
    vi.setSystemTime(now * 1000);
    Object.assign(this.model, { now, jobs });
    this._changed.emit();
    return this;
  }
}

const running = (time_limit: number, more: Partial<IJob> = {}): IJob =>
  session("ready", { start_time: 10, time_limit, ...more });

describe("the session that a page belongs to", () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  it("is told by the page, in a form that does no harm", () => {
    expect(parseSessionFacts(JSON.stringify(FACTS))).toEqual(FACTS);
    expect(["", "null", "{}", "[", '{"name": 1}'].map(parseSessionFacts)).toEqual(
      Array.from({ length: 5 }, () => null),
    );
    const odd = { ...FACTS, colour: "url(x)", end: "soon", resume: "yes" };
    const known = { ...FACTS, colour: "", end: null };
    expect(parseSessionFacts(JSON.stringify(odd))).toEqual(known);
  });

  it("has the time that Slurm knows, else what its runner was told", () => {
    const page = new Page();
    expect(page.at(400).text).toBe("training on dgx01 · 3:53:20 left");
    expect(page.at(400, running(7_200)).text).toBe("training on dgx01 · 1:53:30 left");
    expect(page.at(400, running(7_200, { key: "another" })).text).toContain("3:53:20 left");
    expect(page.at(400, running(365 * 86_400)).text).toBe("training on dgx01");
    expect(page.at(20_000).text).toBe("training on dgx01");
    expect(new Page({ start: null, end: null }).at(400).text).toBe("training on dgx01");
  });

  it("warns once of its end, until the time limit has changed", () => {
    const page = new Page().at(400, running(7_200));
    expect(page.shown).toEqual([]);
    page.at(6_400, running(7_200));
    page.at(6_430, running(7_200, { start_time: 11 }));
    expect(page.shown).toEqual([7_210]);
    page.at(6_440, running(14_400));
    expect(page.shown).toEqual([]);
    page.at(13_700, running(14_400));
    expect(page.shown).toEqual([14_410]);
    page.at(13_800); // Slurm does not answer any more
    expect(page.shown).toEqual([14_410]);
  });

  it("is silent where the person wants that", () => {
    const page = new Page();
    page.wishes = { ...DEFAULT_SETTINGS, nearLimit: false };
    expect(page.at(6_400, running(7_200)).shown).toEqual([]);
    page.wishes = { ...DEFAULT_SETTINGS, nearLimitMinutes: 60 };
    expect(page.at(5_500, running(7_200)).shown).toEqual([7_210]);
  });

  it("says what can be done, in as many characters as JupyterLab shows", () => {
    const page = new Page().at(6_400, running(7_200));
    const [ends, again] = [page.own, new Page({ resume: true }).own].map((own) =>
      endWarning(trans, own, 7_210),
    );
    expect(ends).toContain("Save your work: the memory of its kernels is lost. To continue, ");
    expect(again).toMatch(/^This session starts again after .* is lost\.$/);
    expect(Math.max(ends?.length ?? 0, again?.length ?? 0)).toBeLessThanOrEqual(140);
  });
});
