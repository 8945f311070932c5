import { ReactWidget } from "@jupyterlab/ui-components";
import { Widget } from "@lumino/widgets";
import * as React from "react";
import { afterEach, describe, expect, it, vi } from "vitest";

import { Lines, WrappedLines } from "../../src/job_page/log/log_lines";

const [HEIGHT, LINE_HEIGHT] = [400, 18];

/** A log whose end is followed, with a number of lines. */
class Log extends ReactWidget {
  count = 0;
  readonly scrolled = vi.fn();

  constructor(private readonly _shown: typeof Lines) {
    super();
  }

  get box(): HTMLElement {
    return this.node.firstElementChild as HTMLElement;
  }

  async draw(count: number): Promise<void> {
    this.count = count;
    this.update();
    await vi.waitFor(() => {
      expect(this.node.textContent).toContain(`line ${count - 1}.`);
    });
  }

  protected override render(): React.ReactElement {
    const lines = Array.from({ length: this.count }, (_, index) => ({
      text: `line ${index}.`,
      coded: null,
    }));
    const { scrolled } = this;
    return React.createElement(this._shown, {
      ...{ label: "stdout", lines, first: 0, follows: true, found: null, marked: "" },
      ...{ scrolled, reached: vi.fn() },
    });
  }
}

describe.each([
  ["lines", Lines],
  ["wrapped lines", WrappedLines],
])("%s of a log whose end is followed", (_, shown) => {
  let log: Log;

  afterEach(() => {
    log.dispose();
    vi.restoreAllMocks();
  });

  it("stay where the user has scrolled to, also if a redraw comes before the event", async () => {
    log = new Log(shown);
    vi.spyOn(Element.prototype, "clientHeight", "get").mockReturnValue(HEIGHT);
    vi.spyOn(Element.prototype, "scrollHeight", "get").mockImplementation(
      () => LINE_HEIGHT * log.count,
    );
    log.count = 100;
    Widget.attach(log, document.body);
    await log.draw(110);
    expect(log.box.scrollTop).toBe(110 * LINE_HEIGHT);

    log.box.scrollTop = 1200; // its event comes after the next redraw
    await log.draw(112);
    expect(log.box.scrollTop).toBe(1200);

    log.box.scrollTop = 112 * LINE_HEIGHT - HEIGHT;
    log.box.dispatchEvent(new Event("scroll", { bubbles: true }));
    expect(log.scrolled).toHaveBeenLastCalledWith(true);
    await log.draw(114);
    expect(log.box.scrollTop).toBe(114 * LINE_HEIGHT);
  });
});
