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
  it("is in the context menus of the file browsers of JupyterLab and of the clusters alone", () => {
    const { context } = schema["jupyter.lab.menus"];
    const entries = context.filter(({ command }) => command === CommandIDs.submitScript);
    const root = document.createElement("div");
    root.append(...["filebrowser", "another", "jupyter-slurm-files"].map(browser));
    const found = entries.map(({ args, selector }) => [
      args.browser,
      ...[...root.querySelectorAll<HTMLElement>(selector)].map(({ parentElement, dataset }) =>
        [parentElement?.id, dataset["isdir"]].join(),
      ),
    ]);
    expect(found).toEqual([
      ["filebrowser", "filebrowser,false"],
      ["jupyter-slurm-files", "jupyter-slurm-files,false"],
    ]);
  });
});
