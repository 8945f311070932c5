/** Paths of the drive: `CLUSTER/home/ana/file` is absolute on the cluster, `CLUSTER/~/file` starts in the home directory. */
import type { TranslationBundle } from "@jupyterlab/translation";

/** A path of the drive. Without a cluster it is the list of clusters; without a path, the root of a cluster. */
export interface IPlace {
  readonly cluster: string;
  readonly path: string;
}

/** Name of the drive in JupyterLab. */
export const DRIVE = "Slurm";

/** First part of paths below the home directory. */
export const HOME = "~";

/** Marks an escaped character in a name. */
const ESCAPE = "\uFFFD";
/** Controls, characters that change the direction of text, and bytes that are not UTF-8 (U+DC80-DCFF). */
const UNUSUAL = /[\p{Cc}\p{Cs}\u202A-\u202E\u2066-\u2069]/gu;

/** Return a name for JupyterLab, on one line: unusual characters and bytes become `\uFFFD` and their number. */
export function shownName(name: string): string {
  return name.replace(UNUSUAL, (one) => {
    const code = one.charCodeAt(0);
    return `${ESCAPE}${(code >= 0xdc80 && code <= 0xdcff ? code - 0xdc00 : code).toString(16).padStart(2, "0")}`;
  });
}

/**
 * Split a path of the drive.
 *
 * @throws Error - A name has characters that JupyterLab cannot send back.
 */
export function placeOf(localPath: string, trans: TranslationBundle): IPlace {
  const [cluster = "", ...parts] = localPath.split("/").filter((part) => part !== "");
  const path = parts.join("/");
  if (path.includes(ESCAPE)) {
    throw new Error(
      trans.__(
        "%1 has characters that JupyterLab cannot use. Rename it with `%slurm sh mv`.",
        baseName(localPath),
      ),
    );
  }
  return { cluster, path: path === "" || parts[0] === HOME ? path : `/${path}` };
}

/** Return the last part of a path. */
export function baseName(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

/** Return a path without its last part. */
export function parentOf(path: string): string {
  return path.slice(0, Math.max(0, path.lastIndexOf("/")));
}

/** Return a path in base64 for URLs. */
export function encodePath(path: string): string {
  return encodeBytes(new TextEncoder().encode(path)).replaceAll("+", "-").replaceAll("/", "_");
}

/** Return bytes in base64. */
export function encodeBytes(bytes: Uint8Array): string {
  const parts: string[] = [];
  for (let at = 0; at < bytes.length; at += 0x8000) {
    parts.push(String.fromCharCode(...bytes.subarray(at, at + 0x8000)));
  }
  return btoa(parts.join(""));
}

/** Return the bytes of a text in base64. */
export function decodeBytes(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
}
