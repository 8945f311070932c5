/** Paths of files for the server: below its root, or absolute on a cluster. */
import type { Contents } from "@jupyterlab/services";
import type { TranslationBundle } from "@jupyterlab/translation";

import type { IFilePlace } from "../common/file_place";
import type { IFilesApi } from "./api";
import { baseName, DRIVE, parentOf, placeOf } from "./paths";

/** Return the place of a file; a path below the home directory of a cluster becomes absolute. */
export async function locateFile(
  contents: Pick<Contents.IManager, "driveName" | "localPath">,
  files: Pick<IFilesApi, "list">,
  trans: TranslationBundle,
  path: string,
): Promise<IFilePlace> {
  const local = contents.localPath(path);
  if (contents.driveName(path) !== DRIVE) {
    return { path, serverPath: `./${local}`, cluster: "" };
  }
  const place = placeOf(local, trans);
  const folder = await files.list(place.cluster, parentOf(place.path) || "/");
  const serverPath = `${folder.path.replace(/\/$/, "")}/${baseName(local)}`;
  return { path, serverPath, cluster: place.cluster };
}
