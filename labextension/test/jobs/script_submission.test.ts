import { describe, expect, it } from "vitest";

import { isScript, sbatchLines, scriptParts } from "../../src/jobs/actions/script_submission";

describe("scripts of the file browser", () => {
  it("are known by their name", () => {
    const names = ["a.sh", "b.sbatch", "c.SLURM", "d.py", "e.sh.txt"];
    expect(names.filter(isScript)).toEqual(["a.sh", "b.sbatch", "c.SLURM"]);
  });

  it("show the lines that sbatch reads", () => {
    const text =
      "#!/bin/bash\r\n# a comment\n#SBATCH -p gpu\n\n#SBATCH -t 5\nhostname\n#SBATCH -n 2\n";
    expect(sbatchLines(text)).toEqual(["#SBATCH -p gpu", "#SBATCH -t 5"]);
    expect(sbatchLines("#!/bin/sh\n")).toEqual([]);
  });

  it("have a part for each component of a heterogeneous job", () => {
    const lines = ["#SBATCH -p a", "#SBATCH hetjob", "#SBATCH -p b", "#SBATCH -n 2"];
    expect(scriptParts(lines)).toEqual([["#SBATCH -p a"], ["#SBATCH -p b", "#SBATCH -n 2"]]);
    expect(scriptParts(["#SBATCH --comment=hetjob"])).toHaveLength(1);
  });
});
