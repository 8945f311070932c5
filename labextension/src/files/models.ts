/** Models of files, as JupyterLab's services know them. */
import type { Contents } from "@jupyterlab/services";
import type { TranslationBundle } from "@jupyterlab/translation";

import type { FileEntry } from "./api";
import { decodeBytes, encodeBytes, shownName } from "./paths";

/** A cell of a notebook, as far as its trust is concerned. */
interface ICells {
  cells?: { metadata?: { trusted?: unknown } }[];
}

function timeOf(seconds: number): string {
  const time = new Date(seconds * 1000);
  return (Number.isNaN(time.getTime()) ? new Date(0) : time).toISOString();
}

/** Return a model without content; `path` is that of the drive. */
export function modelOf(path: string, name: string, entry: Partial<FileEntry>): Contents.IModel {
  const kind = entry.type ?? "directory";
  const time = timeOf(entry.modified ?? 0);
  return {
    name,
    path,
    type: kind === "directory" ? "directory" : name.endsWith(".ipynb") ? "notebook" : "file",
    writable: true,
    created: time,
    last_modified: time,
    mimetype: "",
    content: null,
    format: null,
    ...(kind === "directory" ? {} : { size: entry.size ?? 0, hash: entry.version ?? "" }),
    ...(kind === "directory" ? {} : { hash_algorithm: "version" }),
  };
}

/** Return the model of a directory with its entries. */
export function directoryOf(
  model: Contents.IModel,
  entries: readonly Partial<FileEntry>[],
): Contents.IModel {
  const content = entries.map((entry) => {
    const name = shownName(entry.name ?? "");
    return modelOf(model.path === "" ? name : `${model.path}/${name}`, name, entry);
  });
  return { ...model, format: "json", content };
}

/** Remove the marks of trust: only this computer may say whose output is trusted. */
export function withoutTrust(notebook: unknown): unknown {
  for (const { metadata } of (notebook as ICells | null)?.cells ?? []) {
    delete metadata?.trusted;
  }
  return notebook;
}

/** Return the model of a file with its content. */
export function fileOf(
  model: Contents.IModel,
  bytes: Uint8Array,
  { type, format }: Contents.IFetchOptions,
  trans: TranslationBundle,
): Contents.IModel {
  if (type === "notebook" || (type === undefined && model.type === "notebook")) {
    const content = withoutTrust(JSON.parse(new TextDecoder().decode(bytes)));
    return { ...model, type: "notebook", format: "json", content, mimetype: "application/json" };
  }
  const plain = { ...model, type: "file" as const };
  if (format !== "base64") {
    try {
      const content = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
      return { ...plain, format: "text", content, mimetype: "text/plain" };
    } catch (error) {
      if (format === "text") {
        throw new Error(trans.__("%1 is not UTF-8 text.", model.name), { cause: error });
      }
    }
  }
  const content = encodeBytes(bytes);
  return { ...plain, format: "base64", content, mimetype: "application/octet-stream" };
}

/** Return the bytes of a model that is saved. */
export function bytesOf({ type, format, content }: Partial<Contents.IModel>): Uint8Array {
  if (format === "base64") {
    return decodeBytes(String(content));
  }
  if (type === "notebook" || format === "json") {
    const copy: unknown = JSON.parse(JSON.stringify(content));
    return new TextEncoder().encode(`${JSON.stringify(withoutTrust(copy), null, 1)}\n`);
  }
  return new TextEncoder().encode(String(content ?? ""));
}
