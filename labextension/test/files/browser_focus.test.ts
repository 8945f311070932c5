/** Tests of the file browser that is the current one, with JupyterLab's own tracker. */
import { WidgetTracker } from "@jupyterlab/apputils";
import { Widget } from "@lumino/widgets";
import { beforeEach, describe, expect, it } from "vitest";

import { keepOwnBrowser } from "../../src/files/browser_focus";

function panel(): Widget {
  const widget = new Widget();
  widget.node.append(document.createElement("input"));
  Widget.attach(widget, document.body);
  return widget;
}

function inputOf(widget: Widget): HTMLInputElement {
  return widget.node.querySelector("input")!;
}

describe("the current file browser", () => {
  let tracker: WidgetTracker;
  let own: Widget;
  let browser: Widget;

  beforeEach(async () => {
    tracker = new WidgetTracker({ namespace: "files" });
    [own, browser] = [panel(), panel()];
    await tracker.add(own);
    const added = tracker.add(browser);
    keepOwnBrowser(tracker, browser, own);
    await added;
  });

  it("is JupyterLab's own one before the other is used", () => {
    expect(tracker.currentWidget).toBe(own);
  });

  it("is that of the clusters only while the user works in it", () => {
    inputOf(browser).focus();
    expect(tracker.currentWidget).toBe(browser);
    const elsewhere = panel();
    inputOf(elsewhere).focus();
    expect(tracker.currentWidget).toBe(own);
    inputOf(browser).focus();
    elsewhere.node.dispatchEvent(new Event("pointerdown", { bubbles: true }));
    expect(tracker.currentWidget).toBe(own);
  });
});
