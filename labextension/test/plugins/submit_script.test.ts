import { describe, expect, it } from "vitest";

import schema from "../../schema/commands.json";
import { CommandIDs } from "../../src/common/identifiers";

/** A file browser with a file and a folder, as JupyterLab draws it. */
function browser(id: string): HTMLElement {
  const node = document.createElement("div");
  node.id = id;
  for (const isFolder of [false, true]) {
    const item = document.createElement("li");
    item.className = "jp-DirListing-item";
    item.dataset["isdir"] = String(isFolder);
    node.append(item);
  }
  return node;
}

describe("the command for a script", () => {
  it("is in the context menu of the own file browser of JupyterLab alone", () => {
    const { context } = schema["jupyter.lab.menus"];
    const entry = context.find(({ command }) => command === CommandIDs.submitScript);
    const root = document.createElement("div");
    root.append(...["filebrowser", "jupyter-slurm-files"].map(browser));
    const found = [...root.querySelectorAll(entry!.selector)];
    expect(found).toEqual([root.querySelector("#filebrowser [data-isdir=false]")]);
  });
});
