/** Requests about files of a cluster. */
import type { ApiSchemas } from "../common/api/objects";
import { RequestError } from "../common/api/problem";
import { encodeBytes, encodePath } from "./paths";

export type FileList = ApiSchemas["FileList"];
export type FileEntry = ApiSchemas["FileEntry"];

/** A part of a file, and what the file is at that time. */
export interface IFilePart {
  readonly data: Uint8Array;
  readonly size: number;
  readonly version: string;
}

/** A part of a file to write; `draft` is the same for all parts of a file. */
export interface IWrittenPart {
  readonly draft: string;
  readonly offset: number;
  readonly isLast: boolean;
  readonly data: Uint8Array;
  /** The file must have this version; empty: it must not exist. */
  readonly version: string;
}

export interface IFilesApi {
  clusters(): Promise<readonly { readonly id: string }[]>;
  connect(cluster: string): Promise<void>;
  list(cluster: string, path: string): Promise<FileList>;
  entry(cluster: string, path: string): Promise<FileEntry>;
  read(
    cluster: string,
    path: string,
    offset: number,
    limit?: number,
    version?: string,
  ): Promise<IFilePart>;
  write(cluster: string, path: string, part: IWrittenPart): Promise<FileEntry | null>;
  change(
    cluster: string,
    action: "mkdir" | "rename" | "copy" | "delete",
    path: string,
    to?: string,
  ): Promise<FileEntry | null>;
  downloadAddress(cluster: string, path: string): string;
}

/** The part of the API of the agent that the requests need. */
interface IAgent extends Pick<IFilesApi, "clusters" | "connect"> {
  request(path: string[], content: object): Promise<Response>;
  urlOf(path: readonly string[]): string;
}

/** Bytes of a part of a file. */
export const PART_BYTES = 4 * 1024 * 1024;

function entryOf(answer: unknown): FileEntry | null {
  return (answer as ApiSchemas["FileChange"]).entry;
}

/** The requests, over the API of the agent. */
export class FilesApi implements IFilesApi {
  constructor(private readonly _api: IAgent) {}

  clusters(): Promise<readonly { readonly id: string }[]> {
    return this._api.clusters();
  }

  connect(cluster: string): Promise<void> {
    return this._api.connect(cluster);
  }

  async list(cluster: string, path: string): Promise<FileList> {
    return (await this._json(cluster, "list", { path })) as FileList;
  }

  async entry(cluster: string, path: string): Promise<FileEntry> {
    return (await this._json(cluster, "entry", { path })) as FileEntry;
  }

  async read(
    cluster: string,
    path: string,
    offset: number,
    limit = PART_BYTES,
    version?: string,
  ): Promise<IFilePart> {
    const request = { path, offset, limit, ...(version === undefined ? {} : { version }) };
    const response = await this._request(cluster, "read", request);
    return {
      data: new Uint8Array(await response.arrayBuffer()),
      size: Number(response.headers.get("X-Total-Size")),
      version: response.headers.get("X-Version") ?? "",
    };
  }

  async write(cluster: string, path: string, part: IWrittenPart): Promise<FileEntry | null> {
    const { draft, offset, isLast, version } = part;
    const request = { path, draft, offset, is_last: isLast, version, data: encodeBytes(part.data) };
    return entryOf(await this._json(cluster, "write", request));
  }

  async change(
    cluster: string,
    action: "mkdir" | "rename" | "copy" | "delete",
    path: string,
    to?: string,
  ): Promise<FileEntry | null> {
    const request = { action, path, ...(to === undefined ? {} : { to }) };
    return entryOf(await this._json(cluster, "change", request));
  }

  downloadAddress(cluster: string, path: string): string {
    const query = `?path=${encodePath(path)}`;
    return this._api.urlOf(["clusters", cluster, "files", "download"]) + query;
  }

  private async _json(cluster: string, action: string, request: object): Promise<unknown> {
    return (await this._request(cluster, action, request)).json();
  }

  /** Send a request; JupyterLab shows the message of an error only, so the hint becomes a part of it. */
  private async _request(cluster: string, action: string, request: object): Promise<Response> {
    try {
      return await this._api.request(["clusters", cluster, "files", action], request);
    } catch (error) {
      if (error instanceof RequestError && error.problem.hint) {
        error.message = `${error.message} ${error.problem.hint}`;
      }
      throw error;
    }
  }
}
