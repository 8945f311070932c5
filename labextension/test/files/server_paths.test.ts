import { nullTranslator } from "@jupyterlab/translation";
import { describe, expect, it } from "vitest";

import type { FileList } from "../../src/files/api";
import { locateFile } from "../../src/files/server_paths";

const trans = nullTranslator.load("jupyterlab");
const contents = {
  driveName: (path: string) => (path.startsWith("Slurm:") ? "Slurm" : ""),
  localPath: (path: string) => path.replace(/^Slurm:/, ""),
};

function locate(path: string, asked: string[] = []): ReturnType<typeof locateFile> {
  const list = (cluster: string, folder: string): Promise<FileList> => {
    asked.push(`${cluster} ${folder}`);
    const found = { path: folder.replace("~", "/home/ana"), entries: [], is_whole: true };
    return Promise.resolve(found as FileList);
  };
  return locateFile(contents, { list }, trans, path);
}

describe("the path of a file for the server", () => {
  it("is below the root of the server for a file of this computer", async () => {
    const asked: string[] = [];
    const serverPath = "./far/~/job.sh";
    expect(await locate("far/~/job.sh", asked)).toEqual({
      path: "far/~/job.sh",
      serverPath,
      cluster: "",
    });
    expect(asked).toEqual([]);
  });

  it("is absolute for a file of a cluster", async () => {
    const found = async (path: string): Promise<string[]> => {
      const { serverPath, cluster } = await locate(path);
      return [cluster, serverPath];
    };
    expect(await found("Slurm:far/~/job.sh")).toEqual(["far", "/home/ana/job.sh"]);
    expect(await found("Slurm:far/~/a b/job.sh")).toEqual(["far", "/home/ana/a b/job.sh"]);
    expect(await found("Slurm:far/scratch/job.sh")).toEqual(["far", "/scratch/job.sh"]);
    expect(await found("Slurm:far/job.sh")).toEqual(["far", "/job.sh"]);
  });

  it("is refused where the name has characters that cannot be sent", async () => {
    await expect(locate("Slurm:far/~/a\uFFFD0ab/job.sh")).rejects.toThrow("cannot use");
  });
});
