import { nullTranslator } from "@jupyterlab/translation";
import { describe, expect, it } from "vitest";

import type { IJob } from "../../src/common/api/objects";
import { RequestError } from "../../src/common/api/problem";
import { newRequestKey } from "../../src/common/launch_request";
import { otherGres } from "../../src/common/launch_request";
import { formProblems, initialForm, launchRequest } from "../../src/sessions/form_values";
import { plainText, sessionReason, sessionState, sessionSteps } from "../../src/sessions/labels";
import { sshHost } from "../../src/sessions/model";
import { startValues } from "../../src/sessions/settings";
import { CLUSTER, here, session } from "./fixtures";

const trans = nullTranslator.load("jupyter_slurm");
const KEY = "20261122-050000-0011223344556677";
const FORM = initialForm(null);

describe("the form", () => {
  it("asks for one node, and for nothing that is left empty", () => {
    const form = {
      ...FORM,
      partition: "arandu",
      gpus: "2",
      gpuType: "a100",
      time: "",
      name: " fit ",
    };
    expect(launchRequest(form, KEY)).toEqual({
      key: KEY,
      idle: 86400,
      name: "fit",
      options: [
        "--nodes=1",
        "--partition=arandu",
        "--cpus-per-task=4",
        "--mem=16G",
        "--gpus=a100:2",
      ],
    });
    const bare = { ...FORM, gpus: "0", cpus: "", memory: "", time: "", dir: "/x", env: "conda" };
    const asked = launchRequest(bare, KEY);
    expect([asked.options, asked.dir, asked.env]).toEqual([["--nodes=1"], "/x", "conda"]);
    const { options, idle } = launchRequest({ ...bare, time: "1 day 4h", idle: "30 min" }, KEY);
    expect([options, idle]).toEqual([["--nodes=1", "--time=1-04:00:00"], 1800]);
  });

  it("asks for an app, and for the value of its own field alone", () => {
    const form = { ...FORM, app: "tensorboard", logdir: "~/runs/", notebook: "a.py" };
    expect(launchRequest(form, KEY)).toMatchObject({
      ...{ app: "tensorboard", app_values: { logdir: "~/runs" } },
    });
    const asked = launchRequest({ ...form, app: "rstudio" }, KEY);
    expect([asked.app, asked.app_values]).toEqual(["rstudio", {}]);
    expect(launchRequest({ ...form, app: "" }, KEY)).not.toHaveProperty("app_values");
    const wrong = (values: object): string[] =>
      Object.keys(formProblems(trans, { ...form, ...values }));
    expect(wrong({})).toEqual([]);
    expect(wrong({ logdir: " " })).toEqual(["logdir"]);
    expect(wrong({ logdir: "", app: "" })).toEqual([]);
    expect(wrong({ app: "mlflow", store: "--host=0.0.0.0" })).toEqual(["store"]);
    expect(wrong({ app: "marimo", notebook: "{port}" })).toEqual(["notebook"]);
  });

  it("requests a generic resource that is not a GPU by its own option", () => {
    const form = { ...FORM, cpus: "", memory: "", time: "", gpus: "2" };
    const asked = (gpuType: string): readonly string[] =>
      launchRequest({ ...form, gpuType }, KEY).options.slice(1);
    expect(asked(otherGres("npu", "910b"))).toEqual(["--gres=npu:910b:2"]);
    expect(asked(otherGres("gcu", ""))).toEqual(["--gres=gcu:2"]);
    expect(asked("1g.10gb")).toEqual(["--gpus=1g.10gb:2"]);
  });

  it("is filled with what was launched last but the name, and with nothing that is no form", () => {
    expect(initialForm({ ...FORM, gpus: "4", name: "old" })).toEqual({ ...FORM, gpus: "4" });
    expect(initialForm({ gpus: 4, evil: "x" })).toEqual(FORM);
    expect(initialForm("torn")).toEqual(FORM);
    expect(FORM.idle).toBe("24 h"); // as the setting session_idle has it
    expect(initialForm({ ...FORM, idle: "90" }).idle).toBe("90 min"); // minutes, of an older version
  });

  it("is filled as the profile says where nothing was launched yet", () => {
    const usual = {
      ...{
        partition: "arandu",
        gpus: 2,
        gpu_type: "a100",
        cpus: 8,
        memory: "64G",
        time: "8:00:00",
      },
      ...{ account: "lab", qos: "normal", env: "torch", dir: "/scratch/me", idle: 7200 },
    };
    const { gpu_type: gpuType, ...others } = { ...usual, gpus: "2", cpus: "8", idle: "2 h" };
    expect(initialForm(null, usual)).toEqual({ ...FORM, ...others, gpuType });
    expect(initialForm({ partition: "devwork", idle: "" }, usual)).toMatchObject({
      ...{ partition: "devwork", gpus: "2", idle: "2 h" },
    });
  });

  it("is filled as the settings say before the profile, and after the last launch", () => {
    const settings = startValues({ memory: "8G", time: " ", gpus: "2", other: "x" });
    expect(settings).toEqual({ memory: "8G", gpus: "2" });
    const profile = { memory: "64G", cpus: 8, idle: 7200 };
    expect(initialForm({ gpus: "3" }, profile, true, settings)).toMatchObject({
      ...{ gpus: "3", cpus: "8", memory: "8G", time: "4:00:00", idle: "2 h" },
    });
  });

  it("asks for no GPU where the cluster has none", () => {
    expect(initialForm(null, undefined, false)).toEqual({ ...FORM, gpus: "0" });
  });

  it("says what is wrong with it without asking anybody", () => {
    expect(formProblems(trans, FORM)).toEqual({});
    const wrong = {
      ...FORM,
      gpus: "-1",
      cpus: "0",
      memory: "much",
      time: "4 hous",
      idle: "0",
      name: "1 a",
    };
    expect(Object.keys(formProblems(trans, wrong))).toEqual([
      ...["gpus", "cpus", "memory", "time", "idle", "name"],
    ]);
  });

  it("has keys as the agent takes them, another one each time", () => {
    expect(newRequestKey()).toMatch(/^\d{8}-\d{6}-[0-9a-f]{16}$/);
    expect(newRequestKey()).not.toBe(newRequestKey());
  });
});

describe("SessionsModel", () => {
  it("is launched inside a running job with the idle time of the cluster, and without options", async () => {
    const { model, api } = here({ ...CLUSTER, launch: { ...CLUSTER.launch, idle: 7200 } });
    await model.launchInJob("local", "12");
    const request = { idle: 7200, options: [], on: "12" };
    expect(api.launch).toHaveBeenCalledWith("local", expect.objectContaining(request));
    expect(model.active).toHaveLength(1);
  });

  it("knows what was launched before the events tell of it, and then what they tell", async () => {
    const { model, saved, tell } = here(CLUSTER);
    const job = await model.launch("local", { ...FORM, gpus: "2" }, KEY);
    expect(model.active).toEqual([job]);
    expect(saved.get("local")?.gpus).toBe("2");
    tell(session("pending"));
    expect(model.active.map((each) => each.session.state)).toEqual(["pending"]);
    expect(model.find("local", KEY)?.session.state).toBe("pending");
    expect(model.find("other", KEY)).toBeNull();
    tell(session("ended"));
    expect(model.active).toEqual([]);
  });

  it("asks for a session that is not among the jobs, and says when there is none", async () => {
    const { model, api } = here(CLUSTER);
    api.session.mockRejectedValueOnce(new RequestError({ status: 404 }));
    expect(await model.lookUp("local", KEY)).toBe(false);
    expect(await model.lookUp("local", KEY)).toBe(true);
    expect(model.find("local", KEY)?.session.state).toBe("ready");
  });

  it("stops once, and tells why it could not", async () => {
    const { model, api, tell } = here(CLUSTER);
    const job = session("ready");
    tell(job);
    api.stop.mockRejectedValueOnce(new TypeError("Failed to fetch"));
    const stopped = model.stop(job);
    expect(model.isStopping(job)).toBe(true);
    await model.stop(job);
    await stopped;
    expect([api.stop.mock.calls.length, model.isStopping(job)]).toEqual([1, false]);
    expect(model.problem(job)?.hint).toContain("Refresh the list");
    await model.reconnect(job);
    expect(model.problem(job)).toBeNull();
  });
});

describe("the words of a session", () => {
  it("tell why it waits and when it may begin", () => {
    const why = { reason_text: "Others come first.", estimated_start: 1_800_000_000 };
    const lines = sessionReason(trans, session("pending", why), 200);
    expect(lines[0]).toContain("Earliest start");
    expect(lines[1]).toBe("Others come first.");
    expect(sessionReason(trans, session("pending", why), 1_800_000_001)).toHaveLength(1);
  });

  it("tell how far it is while it starts, and why it ended", () => {
    expect(sessionReason(trans, session("starting", {}, "pulling the image"), 200)).toEqual([
      "pulling the image",
    ]);
    const error = { detail: "There is no Jupyter.", hint: "Install one." };
    const ended = session("ended", { error, reason_text: "Exit code 1." });
    expect(sessionReason(trans, ended, 200)).toEqual(["There is no Jupyter.", "Install one."]);
    expect(sessionState(trans, ended)).toBe("ended (FAILED)");
    expect(sessionState(trans, session("ended", { state: "CANCELLED" }))).toBe("stopped");
    expect(sessionState(trans, session("new state"))).toBe("new state");
  });

  it("warn when its time limit is near", () => {
    const ready = session("ready");
    const near = { ...ready, session: { ...ready.session, ends: 500 } };
    expect(sessionReason(trans, near, 200)).toEqual(["It ends in 5:00, with all its kernels."]);
    const again = { ...near, session: { ...near.session, resume: 3 } };
    expect(sessionReason(trans, again, 200)[0]).toContain("It starts again in 5:00");
  });

  it("tell the steps with their times, and those to come", () => {
    expect(sessionSteps(trans, session("pending")).map(({ state, took }) => [state, took])).toEqual(
      [
        ["submitted", ""],
        ["pending", "0:02"],
        ["starting", ""],
        ["ready", ""],
      ],
    );
    const direct = { session: { steps: [{ state: "submitted", time: 100 }] } };
    const started = session("starting", direct as unknown as Partial<IJob>); // it never waited
    expect(sessionSteps(trans, started).map(({ state }) => state)).toEqual([
      ...["submitted", "starting", "ready"],
    ]);
    expect(sessionSteps(trans, session("ended")).map(({ state }) => state)).toEqual([
      ...["submitted", "pending", "ended"],
    ]);
  });

  it("are free of the signs of a terminal", () => {
    expect(plainText("\u001b[31mred\u001b[0m\r\n\u001b]0;title\u0007<b>\u0000")).toBe("red\n<b>");
  });
});

describe("the host for ssh", () => {
  it("is that of the computer that launched the session, whatever the session is named", () => {
    const longer = { label: "far-a1b2c3", session: { ssh_host: "far" } } as unknown as IJob;
    expect(sshHost(session("ready", longer))).toBe("far");
    expect(sshHost(session("ready", { label: "far" }))).toBe("far");
  });
});
