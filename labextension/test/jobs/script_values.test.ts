import { nullTranslator } from "@jupyterlab/translation";
import { describe, expect, it } from "vitest";

import {
  changedOptions,
  scriptForm,
  scriptValues,
  unitHints,
  type ScriptOptions,
} from "../../src/jobs/actions/script_values";

const trans = nullTranslator.load("jupyter_slurm");

function changed(options: ScriptOptions, changes: object): string[] {
  return changedOptions({ ...scriptForm(scriptValues(options)), ...changes }, options);
}

describe("the values of a script", () => {
  it("fill the form, and are not sent again", () => {
    const options = {
      partition: "gpu",
      gres: "gpu:a100:2,shard:1",
      time: "90",
      mem: "4G",
      hold: null,
    };
    expect(scriptValues(options)).toEqual({
      ...{ partition: "gpu", gpus: "2", gpuType: "a100", time: "90", memory: "4G" },
    });
    expect(changed(options, {})).toEqual([]);
    expect(changed(options, { time: "", memory: "", gpus: "" })).toEqual([]);
    expect(changed({}, {})).toEqual([]);
    expect(changed({}, { gpus: "0" })).toEqual([]);
  });

  it("give way to those of the form, in the unit of the script", () => {
    const gres = { gres: "gpu:a100:2,shard:1" };
    expect(changed(gres, { gpus: "1" })).toEqual(["--gres=gpu:a100:1,shard:1"]);
    expect(changed(gres, { gpuType: "" })).toEqual(["--gres=gpu:2,shard:1"]);
    expect(changed(gres, { gpus: "0" })).toEqual(["--gres=shard:1"]);
    expect(changed({ gres: "gpu" }, { gpus: "0" })).toEqual(["--gres=none"]);
    expect(changed({ gres: "shard:1" }, { gpus: "1" })).toEqual(["--gpus=1"]);
    expect(changed({ gpus: "2" }, { gpus: "0" })).toEqual(["--gpus=0"]);
    expect(changed({ "gpus-per-node": "2" }, { gpus: "3" })).toEqual(["--gpus-per-node=3"]);
    expect(changed({ "mem-per-cpu": "1G" }, { memory: "2G" })).toEqual(["--mem-per-cpu=2G"]);
    expect(changed({ time: "90" }, { time: "4 hours", name: "fit" })).toEqual([
      "--time=4:00:00",
      "--job-name=fit",
    ]);
  });

  it("are told with their unit, or as they stand in the script", () => {
    expect(unitHints(trans, { "mem-per-cpu": "1G", gres: "gpu:1", "cpus-per-task": "2" })).toEqual({
      memory: "For each CPU",
      gpus: "For each node",
    });
    const several = { gpus: "a100:1,v100:2" };
    expect(scriptValues(several)).toEqual({});
    expect(unitHints(trans, several).gpus).toBe("In the script: a100:1,v100:2");
  });
});
