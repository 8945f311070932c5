/** Tests of the failures of listings that the file browser of the clusters shows. */
import { Signal } from "@lumino/signaling";
import { describe, expect, it, vi } from "vitest";

import { reportFailures } from "../../src/files/browser";

describe("a listing that fails", () => {
  it("is shown in a visible panel, once for each act of the user", () => {
    const model = {} as { connectionFailure: Signal<never, Error> };
    model.connectionFailure = new Signal<never, Error>(model as never);
    const [node, report] = [document.createElement("div"), vi.fn()];
    const browser = { node, model, isVisible: false };
    reportFailures(browser, report);
    const fail = (error = new TypeError("Failed to fetch")): void => {
      model.connectionFailure.emit(error);
    };
    fail();
    expect(report).not.toHaveBeenCalled();
    browser.isVisible = true;
    fail();
    fail();
    expect(report).toHaveBeenCalledTimes(1);
    node.dispatchEvent(new Event("pointerdown"));
    fail(Object.assign(new Error(), { response: new Response(null, { status: 404 }) }));
    expect(report).toHaveBeenCalledTimes(1);
    fail();
    expect(report).toHaveBeenCalledTimes(2);
  });
});
