import type { Contents, ServerConnection } from "@jupyterlab/services";
import { nullTranslator, type TranslationBundle } from "@jupyterlab/translation";
import { describe, expect, it } from "vitest";

import { RequestError } from "../../src/common/api/problem";
import type { FileEntry, FileList, IFilePart, IFilesApi, IWrittenPart } from "../../src/files/api";
import { SlurmDrive } from "../../src/files/drive";
import { encodePath, placeOf, shownName } from "../../src/files/paths";

const trans = nullTranslator.load("jupyter_slurm");

/** Files in memory, with the rules of the agent. */
class Files implements IFilesApi {
  readonly files = new Map<string, { data: Uint8Array; version: number }>();
  readonly changes: unknown[] = [];
  readonly errors: unknown[] = [];
  isConnected = true;
  isWhole = true;
  private readonly _drafts = new Map<string, number[]>();

  put(path: string, text: string): void {
    const version = (this.files.get(path)?.version ?? 0) + 1;
    this.files.set(path, { data: new TextEncoder().encode(text), version });
  }

  text(path: string): string {
    return new TextDecoder().decode(this.files.get(path)?.data);
  }

  clusters(): Promise<{ id: string }[]> {
    return Promise.resolve([{ id: "far" }]);
  }

  connect(): Promise<void> {
    this.isConnected = true;
    return Promise.resolve();
  }

  list(_: string, path: string): Promise<FileList> {
    if (!this.isConnected) {
      return Promise.reject(new RequestError({ type: "urn:jupyter-slurm:error:not-connected" }));
    }
    const names = [...this.files.keys()].filter((one) => one.startsWith(path));
    const entries = names.map((name) => this._entry(name));
    return Promise.resolve({ path, entries, is_whole: this.isWhole });
  }

  entry(_: string, path: string): Promise<FileEntry> {
    const problem = { detail: "none", details: { reason: "ENOENT" } };
    return this.files.has(path)
      ? Promise.resolve(this._entry(path))
      : Promise.reject(new RequestError(problem as object));
  }

  read(_: string, path: string, offset: number): Promise<IFilePart> {
    if (path === "/secret") {
      return Promise.reject(new RequestError({ detail: "Permission denied." }));
    }
    const { data } = this.files.get(path) ?? { data: new Uint8Array() };
    return Promise.resolve({
      data: data.slice(offset, offset + 7),
      size: data.length,
      version: "",
    });
  }

  write(_: string, path: string, part: IWrittenPart): Promise<FileEntry | null> {
    const draft = this._drafts.get(part.draft) ?? [];
    expect(part.offset).toBe(draft.length);
    this._drafts.set(part.draft, [...draft, ...part.data]);
    if (!part.isLast) {
      return Promise.resolve(null);
    }
    const version = this.files.get(path)?.version;
    if (part.version !== (version === undefined ? "" : String(version))) {
      return Promise.reject(new RequestError({ detail: "It has changed." }));
    }
    this.put(path, new TextDecoder().decode(Uint8Array.from(this._drafts.get(part.draft) ?? [])));
    return Promise.resolve(this._entry(path));
  }

  change(cluster: string, ...words: string[]): Promise<null> {
    this.changes.push([cluster, ...words]);
    return Promise.resolve(null);
  }

  downloadAddress(cluster: string, path: string): string {
    return `${cluster}?${encodePath(path)}`;
  }

  private _entry(path: string): FileEntry {
    const { data, version } = this.files.get(path) ?? { data: [], version: 0 };
    const name = path.slice(path.lastIndexOf("/") + 1);
    const rest = { is_link: false, modified: 1e30, version: String(version) };
    return { name, type: "file", size: data.length, ...rest };
  }
}

function started(language: TranslationBundle = trans): { api: Files; drive: SlurmDrive } {
  const api = new Files();
  return {
    api,
    drive: new SlurmDrive(
      api,
      {} as ServerConnection.ISettings,
      api.errors.push.bind(api.errors),
      language,
    ),
  };
}

const NOTEBOOK = {
  cells: [{ cell_type: "code", metadata: { trusted: true, tags: ["a"] }, source: "1" }],
};

describe("paths", () => {
  it("are absolute, or below the home directory", () => {
    expect(placeOf("", trans)).toEqual({ cluster: "", path: "" });
    expect(placeOf("far", trans)).toEqual({ cluster: "far", path: "" });
    expect(placeOf("far/etc/a:b", trans)).toEqual({ cluster: "far", path: "/etc/a:b" });
    expect(placeOf("far/~/a", trans)).toEqual({ cluster: "far", path: "~/a" });
  });

  it("show unusual characters escaped, and refuse such names", () => {
    expect(shownName("a\udcff😀\n\u202eb")).toBe("a\ufffdff😀\ufffd0a\ufffd202eb");
    expect(() => placeOf(`far/~/${shownName("a\n")}`, trans)).toThrow("cannot use");
    expect(atob(encodePath("é"))).toBe("\xc3\xa9");
  });
});

describe("the drive", () => {
  it("says once that a directory has more entries than it lists", async () => {
    const { api, drive } = started();
    const parts: unknown[] = [];
    drive.partListed.connect((_, part) => parts.push(part));
    api.put("/data/a", "");
    await drive.get("far/data", { type: "directory" });
    expect(parts).toEqual([]);
    api.isWhole = false;
    await drive.get("far/data", { type: "directory" });
    await drive.get("far/data", { type: "directory" });
    expect(parts).toEqual([{ path: "far:/data", count: 1 }]);
  });

  it("has a folder for each cluster, and logs in to list it", async () => {
    const { api, drive } = started();
    const clusters = (await drive.get("")).content as Contents.IModel[];
    expect(clusters.map(({ path, type }) => [path, type])).toEqual([["far", "directory"]]);
    api.isConnected = false;
    api.put("/a.ipynb", "");
    const root = (await drive.get("far")).content as Contents.IModel[];
    expect(root.map(({ path, type }) => [path, type])).toEqual([
      ["far/~", "directory"],
      ["far/a.ipynb", "notebook"],
    ]);
    expect(root[1]?.last_modified).toBe("1970-01-01T00:00:00.000Z");
  });

  it("reads a file in parts, and saves only the version that it knows", async () => {
    const { api, drive } = started();
    api.put("/a.txt", "some text of several parts");
    expect((await drive.get("far/a.txt")).content).toBe("some text of several parts");
    const saved = { type: "file", format: "text", content: "mine" } as const;
    const model = await drive.save("far/a.txt", saved);
    expect(api.text("/a.txt")).toBe("mine");
    expect(model.hash).toBe("2");
    api.put("/a.txt", "theirs");
    await expect(drive.save("far/a.txt", saved)).rejects.toThrow("It has changed.");
    expect((await drive.get("far/a.txt", { content: false })).hash).toBe("3"); // JupyterLab asks the person
    await drive.save("far/a.txt", saved);
    expect(api.text("/a.txt")).toBe("mine");
    api.put("/new.txt", "theirs");
    await expect(drive.save("far/new.txt", saved)).rejects.toThrow("It has changed.");
    await expect(drive.get("far/none")).rejects.toMatchObject({ response: { status: 404 } });
  });

  it("saves an open file again that was deleted elsewhere", async () => {
    const { api, drive } = started();
    api.put("/a.txt", "theirs");
    await drive.get("far/a.txt");
    api.files.delete("/a.txt");
    const saved = { type: "file", format: "text", content: "mine" } as const;
    await expect(drive.save("far/a.txt", saved)).rejects.toThrow("It has changed.");
    await expect(drive.get("far/a.txt", { content: false })).rejects.toMatchObject({
      response: { status: 404 }, // after which JupyterLab saves
    });
    await drive.save("far/a.txt", saved);
    expect(api.text("/a.txt")).toBe("mine");
  });

  it("trusts no output of a cluster", async () => {
    const { api, drive } = started();
    api.put("/n.ipynb", JSON.stringify(NOTEBOOK));
    const content: unknown = (await drive.get("far/n.ipynb")).content;
    expect((content as typeof NOTEBOOK).cells[0]?.metadata).toEqual({ tags: ["a"] });
    const model = { type: "notebook", format: "json", content: NOTEBOOK } as const;
    await drive.save("far/n.ipynb", model);
    expect(api.text("/n.ipynb")).not.toContain("trusted");
    expect(NOTEBOOK.cells[0]?.metadata.trusted).toBe(true); // that of the open notebook stays
  });

  it("uploads in parts", async () => {
    const { api, drive } = started();
    const part = { type: "file", format: "base64" } as const;
    await drive.save("far/~/up", { ...part, content: btoa("one"), chunk: 1 });
    await drive.save("far/~/up", { ...part, content: btoa("two"), chunk: 2 });
    expect(api.files.size).toBe(0);
    await drive.save("far/~/up", { ...part, content: btoa("three"), chunk: -1 });
    expect(api.text("~/up")).toBe("onetwothree");
  });

  it("reports why a download is not possible", async () => {
    const { api, drive } = started();
    api.put("/a", "");
    expect(await drive.getDownloadUrl("far/a")).toBe(`far?${encodePath("/a")}`);
    await expect(drive.getDownloadUrl("far/secret")).rejects.toThrow("Permission denied.");
    await expect(drive.getDownloadUrl("far/~/\ufffd0a")).rejects.toThrow("cannot use");
    expect(api.errors).toHaveLength(2);
  });

  it("says in the language of the person what is not possible", async () => {
    const language = Object.create(trans, {
      __: { value: (text: string) => text.toUpperCase() },
    }) as TranslationBundle;
    const { api, drive } = started(language);
    api.files.set("/a.txt", { data: Uint8Array.of(0xff), version: 1 });
    const refused = [
      drive.rename("far/a", "near/a"),
      drive.delete("far"),
      drive.restoreCheckpoint(),
      drive.get("far/~/\ufffd0a"),
      drive.get("far/a.txt", { format: "text" }),
    ];
    for (const each of refused) {
      await expect(each).rejects.toThrow(/^[^a-z]+$/);
    }
  });

  it("finds free names, and moves nothing between clusters", async () => {
    const { api, drive } = started();
    api.put("/d/untitled.txt", "");
    expect((await drive.newUntitled({ path: "far/d", type: "file" })).path).toBe(
      "far/d/untitled1.txt",
    );
    expect((await drive.newUntitled({ path: "far/d", type: "notebook" })).name).toBe(
      "Untitled.ipynb",
    );
    await drive.newUntitled({ path: "far/d", type: "directory" });
    await drive.copy("far/d/untitled.txt", "far/d");
    await drive.rename("far/d/untitled.txt", "far/e");
    await drive.delete("far/e");
    expect(api.changes).toEqual([
      ["far", "mkdir", "/d/Untitled Folder", undefined],
      ["far", "copy", "/d/untitled.txt", "/d/untitled-Copy1.txt"],
      ["far", "rename", "/d/untitled.txt", "/e"],
      ["far", "delete", "/e"],
    ]);
    await expect(drive.rename("far/a", "near/a")).rejects.toThrow("one cluster to another");
    await expect(drive.delete("far")).rejects.toThrow("cannot be changed");
  });
});
