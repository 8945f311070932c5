/** Drive with the files of the clusters, a folder for each: `Slurm:CLUSTER/~/file`. */
import { ServerConnection, type Contents } from "@jupyterlab/services";
import type { TranslationBundle } from "@jupyterlab/translation";
import { Signal } from "@lumino/signaling";

import { RequestError } from "../common/api/problem";
import { PART_BYTES, type FileEntry, type FileList, type IFilesApi } from "./api";
import { bytesOf, directoryOf, fileOf, modelOf } from "./models";
import { baseName, DRIVE, HOME, parentOf, placeOf, shownName, type IPlace } from "./paths";

/** Largest file that is opened; larger ones can be downloaded. */
const MAX_OPEN_BYTES = 100_000_000;
const MAX_NAMES = 1000;
const UNTITLED = { notebook: "Untitled", directory: "Untitled Folder", file: "untitled" };

/** An upload in parts. */
interface IUpload {
  readonly draft: string;
  readonly version: string;
  offset: number;
}

function newDraft(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (one) => one.toString(16).padStart(2, "0")).join("");
}

/** Return an error that JupyterLab understands: it looks for the status of a missing file. */
function asMissing(error: unknown): unknown {
  const details = error instanceof RequestError ? error.problem.details : undefined;
  return (details as { reason?: string } | undefined)?.reason === "ENOENT"
    ? new ServerConnection.ResponseError(
        new Response(null, { status: 404 }),
        (error as Error).message,
      )
    : error;
}

export class SlurmDrive implements Contents.IDrive {
  readonly name = DRIVE;
  readonly fileChanged = new Signal<this, Contents.IChangedArgs>(this);
  /** A directory has more entries than are listed; with its path and the number of those, once for each directory. */
  readonly partListed = new Signal<this, { readonly path: string; readonly count: number }>(this);
  isDisposed = false;
  /** The last known version of each file: it is only replaced if it still has this version. */
  private readonly _versions = new Map<string, string>();
  private readonly _uploads = new Map<string, IUpload>();
  private readonly _parts = new Set<string>();

  constructor(
    private readonly _api: IFilesApi,
    readonly serverSettings: ServerConnection.ISettings,
    /** Show an error; JupyterLab shows none of a download. */
    private readonly _report: (error: unknown) => void,
    private readonly _trans: TranslationBundle,
  ) {}

  dispose(): void {
    this.isDisposed = true;
    Signal.clearData(this);
  }

  async get(localPath: string, options: Contents.IFetchOptions = {}): Promise<Contents.IModel> {
    try {
      return await this._get(localPath, options);
    } catch (error) {
      const shown = asMissing(error);
      if (shown !== error) {
        this._versions.delete(localPath); // else an open editor could not save the file again
      }
      throw shown;
    }
  }

  async getDownloadUrl(localPath: string): Promise<string> {
    try {
      const { cluster, path } = this._below(localPath);
      await this._api.read(cluster, path, 0, 1); // a browser would not show why a download failed
      return this._api.downloadAddress(cluster, path);
    } catch (error) {
      this._report(error);
      throw error;
    }
  }

  async newUntitled(options: Contents.ICreateOptions = {}): Promise<Contents.IModel> {
    const type =
      options.type === "notebook" || options.type === "directory" ? options.type : "file";
    const ending = type === "notebook" ? ".ipynb" : type === "file" ? (options.ext ?? ".txt") : "";
    const folder = options.path ?? "";
    const path = await this._free(folder, UNTITLED[type], ending.replace(/^(?=[^.])/, "."), "");
    if (type === "directory") {
      return this._changed("new", null, path, await this._change("mkdir", path));
    }
    const empty = { cells: [], metadata: {}, nbformat: 4, nbformat_minor: 5 };
    const content = type === "notebook" ? empty : "";
    const model = await this.save(path, {
      type,
      format: type === "notebook" ? "json" : "text",
      content,
    });
    this._emit("new", null, model);
    return model;
  }

  async delete(localPath: string): Promise<void> {
    const { cluster, path } = this._below(localPath);
    await this._api.change(cluster, "delete", path);
    this._versions.delete(localPath);
    this.fileChanged.emit({ type: "delete", oldValue: { path: localPath }, newValue: null });
  }

  async rename(oldLocalPath: string, newLocalPath: string): Promise<Contents.IModel> {
    const entry = await this._change("rename", oldLocalPath, newLocalPath);
    this._versions.delete(oldLocalPath);
    return this._changed("rename", { path: oldLocalPath }, newLocalPath, entry);
  }

  async save(
    localPath: string,
    options: Partial<Contents.IModel> & Contents.IContentProvisionOptions = {},
  ): Promise<Contents.IModel> {
    if (options.type === "directory") {
      return this._changed("new", null, localPath, await this._change("mkdir", localPath));
    }
    const bytes = bytesOf(options);
    const upload = this._upload(localPath, options.chunk);
    let entry: FileEntry | null;
    try {
      entry = await this._write(localPath, upload, bytes, (options.chunk ?? -1) === -1);
    } catch (error) {
      this._uploads.delete(localPath);
      throw error;
    }
    if (entry === null) {
      return modelOf(localPath, baseName(localPath), { type: "file" });
    }
    this._uploads.delete(localPath);
    return this._changed("save", null, localPath, entry);
  }

  async copy(localPath: string, toLocalDir: string): Promise<Contents.IModel> {
    const name = baseName(localPath);
    const dot = name.lastIndexOf(".") > 0 ? name.lastIndexOf(".") : name.length;
    const isSame = parentOf(localPath) === toLocalDir;
    const stem = isSame ? `${name.slice(0, dot)}-Copy` : name.slice(0, dot);
    const path = await this._free(toLocalDir, stem, name.slice(dot), isSame ? "1" : "");
    return this._changed("new", null, path, await this._change("copy", localPath, path));
  }

  /** There are no checkpoints: the cluster has the file alone. */
  createCheckpoint(): Promise<Contents.ICheckpointModel> {
    return Promise.resolve({ id: "none", last_modified: new Date().toISOString() });
  }

  listCheckpoints(): Promise<Contents.ICheckpointModel[]> {
    return Promise.resolve([]);
  }

  restoreCheckpoint(): Promise<void> {
    return Promise.reject(new Error(this._trans.__("Files of a cluster have no checkpoints.")));
  }

  deleteCheckpoint(): Promise<void> {
    return Promise.resolve();
  }

  private async _get(localPath: string, options: Contents.IFetchOptions): Promise<Contents.IModel> {
    const { cluster, path } = placeOf(localPath, this._trans);
    const model = modelOf(localPath, baseName(localPath), {});
    if (cluster === "") {
      const clusters = await this._api.clusters();
      return directoryOf(
        model,
        clusters.map(({ id }) => ({ name: id })),
      );
    }
    if (path === "") {
      const entries = await this._list(cluster, "/");
      return directoryOf(model, [{ name: HOME }, ...entries.filter(({ name }) => name !== HOME)]);
    }
    if (options.type === "directory") {
      return this._directory(model, cluster, path);
    }
    const entry =
      path === HOME ? { type: "directory" as const } : await this._api.entry(cluster, path);
    if (entry.type === "directory") {
      return options.content === false ? model : this._directory(model, cluster, path);
    }
    return this._file(localPath, entry, options);
  }

  private async _file(
    localPath: string,
    entry: FileEntry,
    options: Contents.IFetchOptions,
  ): Promise<Contents.IModel> {
    this._versions.set(localPath, entry.version);
    const model = modelOf(localPath, baseName(localPath), entry);
    if (options.content === false) {
      return model;
    }
    if (entry.size > MAX_OPEN_BYTES) {
      throw new Error(
        this._trans.__("%1 is larger than 100 MB and cannot be opened. Download it.", model.name),
      );
    }
    const { cluster, path } = placeOf(localPath, this._trans);
    const bytes = new Uint8Array(entry.size);
    for (let at = 0; at < entry.size;) {
      const { data } = await this._api.read(cluster, path, at, PART_BYTES, entry.version);
      if (data.length === 0 || at + data.length > entry.size) {
        throw new Error(this._trans.__("%1 has changed. Open it again.", model.name));
      }
      bytes.set(data, at);
      at += data.length;
    }
    return fileOf(model, bytes, options, this._trans);
  }

  private async _directory(
    model: Contents.IModel,
    cluster: string,
    path: string,
  ): Promise<Contents.IModel> {
    const found = directoryOf(model, await this._list(cluster, path));
    for (const { path: inside, hash } of found.content as Contents.IModel[]) {
      if (hash !== undefined) {
        this._versions.set(inside, hash);
      }
    }
    return found;
  }

  private async _list(cluster: string, path: string): Promise<readonly FileEntry[]> {
    const { entries, is_whole } = await this._listing(cluster, path);
    const place = `${cluster}:${path}`;
    if (!is_whole && !this._parts.has(place)) {
      this._parts.add(place);
      this.partListed.emit({ path: place, count: entries.length });
    }
    return entries;
  }

  /** List a directory; a person who opens the folder of a cluster wants a login. */
  private async _listing(cluster: string, path: string): Promise<FileList> {
    try {
      return await this._api.list(cluster, path);
    } catch (error) {
      if (!(error instanceof RequestError && error.problem.type?.endsWith(":not-connected"))) {
        throw error;
      }
      await this._api.connect(cluster);
      return this._api.list(cluster, path);
    }
  }

  private _upload(localPath: string, chunk: number | undefined): IUpload {
    const known = this._uploads.get(localPath);
    if (known !== undefined && chunk !== undefined && chunk !== 1) {
      return known;
    }
    const upload = { draft: newDraft(), version: this._versions.get(localPath) ?? "", offset: 0 };
    if (chunk !== undefined) {
      this._uploads.set(localPath, upload);
    }
    return upload;
  }

  private async _write(
    localPath: string,
    upload: IUpload,
    bytes: Uint8Array,
    isLast: boolean,
  ): Promise<FileEntry | null> {
    const { cluster, path } = this._below(localPath);
    const { draft, version } = upload;
    let at = 0;
    for (;;) {
      const data = bytes.subarray(at, at + PART_BYTES);
      const isEnd = at + data.length >= bytes.length;
      const part = { draft, version, data, offset: upload.offset, isLast: isLast && isEnd };
      const entry = await this._api.write(cluster, path, part);
      upload.offset += data.length;
      at += data.length;
      if (isEnd) {
        return entry;
      }
    }
  }

  private async _change(
    action: "mkdir" | "rename" | "copy",
    localPath: string,
    to?: string,
  ): Promise<FileEntry | null> {
    const from = this._below(localPath);
    const target = to === undefined ? undefined : this._below(to);
    if (target !== undefined && target.cluster !== from.cluster) {
      throw new Error(this._trans.__("Files cannot be moved from one cluster to another."));
    }
    return this._api.change(from.cluster, action, from.path, target?.path);
  }

  /** Return a path in a directory whose name is free. */
  private async _free(
    folder: string,
    stem: string,
    ending: string,
    first: string,
  ): Promise<string> {
    const { cluster, path } = this._below(`${folder}/x`);
    const entries = await this._list(cluster, parentOf(path) || "/");
    const taken = new Set(entries.map(({ name }) => shownName(name)));
    for (let number = Number(first); number < MAX_NAMES; number += 1) {
      const name = `${stem}${number === 0 ? "" : number}${ending}`;
      if (!taken.has(name)) {
        return `${folder}/${name}`;
      }
    }
    throw new Error(this._trans.__("All names for a new file are taken."));
  }

  /** Return the place of a file; the list of clusters has none. */
  private _below(localPath: string): IPlace {
    const place = placeOf(localPath, this._trans);
    if (place.path === "" || place.path === HOME) {
      throw new Error(
        this._trans.__("This folder cannot be changed. Open a folder of a cluster first."),
      );
    }
    return place;
  }

  private _changed(
    type: "new" | "rename" | "save",
    oldValue: Contents.IChangedArgs["oldValue"],
    localPath: string,
    entry: FileEntry | null,
  ): Contents.IModel {
    const model = modelOf(localPath, baseName(localPath), entry ?? {});
    if (model.hash !== undefined) {
      this._versions.set(localPath, model.hash);
    }
    this._emit(type, oldValue, model);
    return model;
  }

  private _emit(
    type: "new" | "rename" | "save",
    oldValue: Contents.IChangedArgs["oldValue"],
    newValue: Contents.IModel,
  ): void {
    this.fileChanged.emit({ type, oldValue, newValue });
  }
}
