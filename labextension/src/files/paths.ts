/** Paths of the drive: `CLUSTER/home/ana/file` is absolute on the cluster, `CLUSTER/~/file` starts in the home directory. */

/** A path of the drive. Without a cluster it is the list of clusters; without a path, the root of a cluster. */
export interface IPlace {
  readonly cluster: string;
  readonly path: string;
}

/** First part of paths below the home directory. */
export const HOME = "~";

/**
 * Return a name for JupyterLab: bytes that are not UTF-8 become private characters (U+EF80-EFFF), because lone surrogates are
 * no part of a URL.
 */
export function shownName(name: string): string {
  return name.replace(/[\uDC80-\uDCFF]/gu, (one) =>
    String.fromCharCode(one.charCodeAt(0) + 0x1300),
  );
}

/** Return the name on the cluster; see `shownName`. */
export function nameOnCluster(name: string): string {
  return name.replace(/[\uEF80-\uEFFF]/g, (one) => String.fromCharCode(one.charCodeAt(0) - 0x1300));
}

/** Split a path of the drive. */
export function placeOf(localPath: string): IPlace {
  const [cluster = "", ...parts] = localPath.split("/").filter((part) => part !== "");
  const path = nameOnCluster(parts.join("/"));
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

/** Return a path in base64 for URLs, with the bytes that the cluster knows. */
export function encodePath(path: string): string {
  const bytes = Array.from(path).flatMap((one) => {
    const code = one.charCodeAt(0);
    return one.length === 1 && code >= 0xdc80 && code <= 0xdcff
      ? [code - 0xdc00]
      : [...new TextEncoder().encode(one)];
  });
  return encodeBytes(Uint8Array.from(bytes)).replaceAll("+", "-").replaceAll("/", "_");
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
