import type { ICommandPalette } from "@jupyterlab/apputils";
import { nullTranslator } from "@jupyterlab/translation";
import { CommandRegistry } from "@lumino/commands";
import { Signal } from "@lumino/signaling";
import { afterEach, describe, expect, it, vi } from "vitest";

import type { ICluster, IConnection, IUser } from "../../src/common/api/objects";
import { CommandIDs } from "../../src/common/identifiers";
import type { IJobsModel } from "../../src/common/jobs_model";
import { addPageCommands } from "../../src/job_page/commands";
import type { JobPage } from "../../src/job_page/model";
import { addConnectionCommands } from "../../src/logins/connection_commands";

const trans = nullTranslator.load("jupyter_slurm");
const USER: IUser = { kind: "kernel", name: "fit.ipynb", since: 0 };

function far(state: IConnection["state"], ...users: IUser[]): ICluster {
  const connection = { state, hosts: ["login"], since: 0, message: "" };
  return { id: "far", name: "site", poll: { error: null }, connection, users };
}

class Model {
  readonly changed = new Signal<this, void>(this);
  clusters: ICluster[] = [{ id: "local", name: "arandu", poll: { error: null } }];
  connect = vi.fn();
  disconnect = vi.fn();

  take(cluster: ICluster): void {
    this.clusters = [this.clusters[0]!, cluster];
    this.changed.emit();
  }
}

describe("the commands of log-ins", () => {
  const commands = new CommandRegistry();
  const model = new Model();
  const addItem = vi.fn();
  addConnectionCommands(
    commands,
    { addItem } as unknown as ICommandPalette,
    model as unknown as IJobsModel,
    trans,
  );
  const args = { cluster: "far" };

  function offered(): string[] {
    return [CommandIDs.connect, CommandIDs.disconnect]
      .filter((command) => commands.isVisible(command, args))
      .map((command) => commands.label(command, args));
  }

  afterEach(() => {
    vi.clearAllMocks();
  });

  it("are in the palette once for each cluster that needs one, as far as they do something", () => {
    expect(offered()).toEqual([]);
    for (const [state, label] of [
      ["disconnected", "Connect to far"],
      ["connecting", "Disconnect from far"],
      ["connected", "Disconnect from far"],
      ["lost", "Disconnect from far"],
    ] as const) {
      model.take(far(state));
      expect(offered()).toEqual([label]);
    }
    expect(addItem).toHaveBeenCalledTimes(2);
    for (const command of [CommandIDs.connect, CommandIDs.disconnect]) {
      const inPalette = { ...args, isPalette: true };
      expect(addItem).toHaveBeenCalledWith({ command, category: "Slurm", args: inPalette });
    }
  });

  it("end at once what nobody uses, and ask first where somebody does", async () => {
    model.take(far("connected"));
    await commands.execute(CommandIDs.disconnect, args);
    expect(model.disconnect).toHaveBeenCalledTimes(1);
    for (const [button, calls] of [
      [".jp-mod-reject", 1],
      [".jp-mod-warn", 2],
    ] as const) {
      model.take(far("connected", USER));
      const done = commands.execute(CommandIDs.disconnect, args);
      await vi.waitFor(() => {
        expect(document.querySelector(".jp-Dialog")?.textContent).toContain("uses it: fit.ipynb");
      });
      document.querySelector<HTMLElement>(`.jp-Dialog ${button}`)!.click();
      await done;
      expect(model.disconnect).toHaveBeenCalledTimes(calls);
    }
  });

  it("ask which one where none is said, and not where there is one only", async () => {
    model.take(far("disconnected"));
    expect(commands.label(CommandIDs.connect)).toBe("Connect to a Cluster…");
    expect(commands.isEnabled(CommandIDs.disconnect)).toBe(false);
    await commands.execute(CommandIDs.connect);
    expect(model.connect).toHaveBeenCalledWith(far("disconnected"));
    model.clusters = [far("disconnected"), { ...far("disconnected"), id: "second" }];
    const done = commands.execute(CommandIDs.connect);
    const select = await vi.waitFor(() => {
      const found = document.querySelector<HTMLSelectElement>(".jp-Dialog select");
      expect(found).not.toBeNull();
      return found!;
    });
    expect([...select.options].map(({ text }) => text)).toEqual(["far", "second"]);
    select.value = "second";
    select.dispatchEvent(new Event("change"));
    document.querySelector<HTMLElement>(".jp-Dialog .jp-mod-accept")!.click();
    await done;
    expect(model.connect).toHaveBeenLastCalledWith(model.clusters[1]);
  });
});

describe("the commands of the page of a job", () => {
  it("are about the one in front, as far as something can be done with it", async () => {
    const commands = new CommandRegistry();
    const acts = { resubmit: vi.fn(() => Promise.resolve()), link: vi.fn() };
    const page = { isRepeatable: true, isResubmitting: false };
    let shown: object | null = null;
    addPageCommands(commands, null, trans, () => shown as JobPage | null, acts);
    const offered = (): boolean[] =>
      [CommandIDs.resubmit, CommandIDs.copyLink].map((id) => commands.isEnabled(id));
    expect(offered()).toEqual([false, false]);
    shown = { ...page, isResubmitting: true };
    expect(offered()).toEqual([false, true]);
    await commands.execute(CommandIDs.resubmit);
    expect(acts.resubmit).not.toHaveBeenCalled();
    shown = page;
    expect(offered()).toEqual([true, true]);
    await commands.execute(CommandIDs.resubmit);
    await commands.execute(CommandIDs.copyLink);
    expect(acts.resubmit).toHaveBeenCalledExactlyOnceWith(page);
    expect(acts.link).toHaveBeenCalledExactlyOnceWith(page);
  });
});
