import { nullTranslator } from "@jupyterlab/translation";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { ServerLoss } from "../../src/plugins/own_session";
import type { OwnSession } from "../../src/sessions/own_session";

const trans = nullTranslator.load("jupyter_slurm");

describe("a page that has lost its server", () => {
  const own = { facts: { name: "training", node: "dgx01" }, loss: "" };
  const request = vi.fn<typeof fetch>();
  let loss: ServerLoss;

  beforeEach(() => {
    vi.useFakeTimers();
    vi.stubGlobal("fetch", request.mockReset());
    own.loss = "";
    loss = new ServerLoss(own as unknown as OwnSession, trans, "/api/status", () => undefined);
  });
  afterEach(() => {
    vi.useRealTimers();
    vi.unstubAllGlobals();
    document.body.replaceChildren();
  });

  it("asks at one interval, however often it is told of the loss", async () => {
    request.mockRejectedValue(new TypeError("no"));
    for (let times = 0; times < 5; times += 1) {
      loss.check();
      await vi.advanceTimersByTimeAsync(100);
    }
    expect(own.loss).toContain("Your Jupyter server does not answer.");
    request.mockClear();
    await vi.advanceTimersByTimeAsync(9_100);
    expect(request).toHaveBeenCalledTimes(6); // three checks, each with a second request
    request.mockResolvedValue(new Response());
    await vi.advanceTimersByTimeAsync(3_100);
    expect(own.loss).toBe("");
    request.mockClear();
    await vi.advanceTimersByTimeAsync(30_000);
    expect(request).not.toHaveBeenCalled();
  });

  it("does not ask any more once the session has ended", async () => {
    request.mockResolvedValue(new Response(null, { status: 410 }));
    loss.check();
    await vi.advanceTimersByTimeAsync(30_000);
    expect(own.loss).toBe("Session training has ended.");
    expect(request).toHaveBeenCalledOnce();
  });
});
