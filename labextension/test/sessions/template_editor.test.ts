import type { DocumentRegistry } from "@jupyterlab/docregistry";
import { nullTranslator } from "@jupyterlab/translation";
import { Signal } from "@lumino/signaling";
import { Widget } from "@lumino/widgets";
import { afterEach, describe, expect, it, vi } from "vitest";

import type { ILaunch } from "../../src/common/launch_request";
import { INITIAL_FORM } from "../../src/sessions/form_values";
import { TemplatePanel } from "../../src/sessions/template_editor";
import { templateText } from "../../src/sessions/template_files";
import { CLUSTER, here, type IHere } from "./fixtures";

const trans = nullTranslator.load("jupyter_slurm");
const textOf = (memory: string): string => templateText(CLUSTER, { ...INITIAL_FORM, memory });

/** Time in which a form that is drawn, or checked, would be. */
const moment = (): Promise<unknown> => new Promise((resolve) => setTimeout(resolve, 1_200));

describe("the page of a template", () => {
  let panel: TemplatePanel | undefined;

  afterEach(() => {
    panel?.dispose();
  });

  /** Show a file; return how another view of it changes it. */
  async function open(desk: IHere, show = vi.fn()): Promise<(memory: string) => void> {
    let text = textOf("7G");
    const contentChanged = new Signal<object, void>({});
    const model = { contentChanged, toString: () => text };
    const context = { ready: Promise.resolve(), isReady: true, model };
    panel = new TemplatePanel(context as unknown as DocumentRegistry.Context, {
      ...{ model: desk.model, trans, show },
      acts: { connect: vi.fn(), stop: vi.fn() },
    });
    Widget.attach(panel, document.body);
    await vi.waitFor(() => {
      expect(memory()).toBe("7G");
    }, 20_000);
    return (changed) => {
      text = textOf(changed);
      contentChanged.emit();
    };
  }

  const field = (name: string): HTMLInputElement | null =>
    panel!.node.querySelector(`[data-field=${name}] input`);
  const memory = (): string | undefined => field("memory")?.value;
  const button = (): HTMLButtonElement => panel!.node.querySelector("button[type=submit]")!;

  it("launches again, another session, but not by a double click", async () => {
    const [desk, show] = [here(CLUSTER), vi.fn()];
    await open(desk, show);
    const launched = (count: number): Promise<unknown> =>
      vi.waitFor(() => {
        expect(show).toHaveBeenCalledTimes(count);
      });
    button().click();
    await launched(1);
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(button().textContent).toBe("Launching…");
    button().click();
    await vi.waitFor(() => {
      expect(button().textContent).toBe("Launch");
    }, 5_000);
    expect(desk.api.launch).toHaveBeenCalledOnce();
    button().click();
    await launched(2);
    const [first, second] = desk.api.launch.mock.calls.map(([, sent]) => sent as ILaunch);
    expect(second?.key).not.toBe(first?.key);
    expect(second?.options).toEqual(first?.options);
  });

  it("follows the file, and leaves the focus to the editor in which it is changed", async () => {
    const change = await open(here(CLUSTER));
    expect(panel!.node.contains(document.activeElement)).toBe(true);
    const editor = document.createElement("div");
    editor.setAttribute("contenteditable", "true");
    editor.tabIndex = 0;
    document.body.append(editor);
    editor.focus();
    change("8G");
    change("9G");
    await vi.waitFor(() => {
      expect(memory()).toBe("9G");
    }, 5_000);
    expect(document.activeElement).toBe(editor);
    editor.remove();
  });

  it("neither draws nor asks once it is closed", async () => {
    const desk = here(CLUSTER);
    const change = await open(desk);
    await moment();
    change("8G"); // not drawn yet
    panel!.dispose();
    change("9G");
    desk.api.preview.mockClear();
    desk.api.names.mockClear();
    await moment();
    expect(desk.api.preview).not.toHaveBeenCalled();
    expect(desk.api.names).not.toHaveBeenCalled();
    expect(panel!.node.childElementCount).toBe(0);
  });
});
