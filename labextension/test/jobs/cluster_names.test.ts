import { describe, expect, it } from "vitest";

import type { ICluster } from "../../src/common/api/objects";
import { clusterName } from "../../src/common/labels";
import { labelClusters } from "../../src/jobs/cluster_names";
import { clusterOf, templateText } from "../../src/sessions/template_files";
import { initialForm } from "../../src/sessions/form_values";
import { Agent, CLUSTER, Desk, job } from "./fixtures";

function local(id: string, file: string | null): ICluster {
  return { ...CLUSTER, id, slurm_conf: file };
}

function profile(id: string, hosts: readonly string[]): ICluster {
  const connection = { state: "disconnected" as const, hosts: [...hosts], since: 0, message: "" };
  return { ...CLUSTER, id, name: id, connection };
}

function names(...clusters: readonly ICluster[]): string[] {
  const labelled = labelClusters(new Map(clusters.map((each) => [each.id, each])));
  return [...labelled.values()].map(clusterName);
}

describe("clusters of one name", () => {
  it("are told apart by what differs in their folders, by their host, or by their ID", () => {
    const [one, two] = [
      local("local-1", "/a/b/one/etc/s.conf"),
      local("local-2", "/a/b/two/etc/s"),
    ];
    expect(names(one)).toEqual(["arandu"]);
    expect(names(one, two)).toEqual(["arandu (one)", "arandu (two)"]);
    expect(names(one, local("local-3", "/a/b/one/x/etc/s.conf"))).toEqual([
      "arandu (/a/b/one/etc)",
      "arandu (/a/b/one/x/etc)",
    ]);
    expect(names(local("local", null), profile("arandu", ["gate", "login1"]), one)).toEqual([
      "arandu (local)",
      "arandu (login1)",
      "arandu (/a/b/one/etc)",
    ]);
    expect(names(one, local("local-4", "/a/b/one/etc/other.conf"))).toEqual([
      "arandu (local-1)",
      "arandu (local-4)",
    ]);
    expect(names(profile("arandu", []), local("local", null), profile("far", []))).toEqual([
      "arandu (arandu)",
      "arandu (local)",
      "far",
    ]);
  });

  it("get their labels when the second one comes, and keep their objects while nothing changes", async () => {
    const desk = new Desk();
    const agent = new Agent();
    agent.known = [local("local", "/x/one/etc/slurm.conf")];
    agent.table = [job("1", "RUNNING")];
    const model = await desk.live(agent);
    expect(model.clusters.map(clusterName)).toEqual(["arandu"]);
    agent.send("cluster", local("local-2", "/x/two/etc/slurm.conf"));
    await expect
      .poll(() => model.clusters.map(clusterName))
      .toEqual(["arandu (one)", "arandu (two)"]);
    const known = new Map(model.clusters.map((each) => [each.id, each]));
    const again = labelClusters(known);
    expect([...again.values()].every((each) => known.get(each.id) === each)).toBe(true);
    desk.dispose();
  });

  it("are not confused by a template file", () => {
    const clusters = labelClusters(
      new Map([local("local", null), profile("arandu", ["login1"])].map((each) => [each.id, each])),
    );
    const known = [...clusters.values()];
    const form = initialForm(null);
    const written = known.map(
      (each) => JSON.parse(templateText(each, form)) as { cluster: string },
    );
    expect(written.map(({ cluster }) => cluster)).toEqual(["local", "arandu"]);
    expect(clusterOf({ cluster: "local", form }, known)?.id).toBe("local");
    expect(clusterOf({ cluster: "arandu", form }, known)).toBeUndefined();
    const [own] = known;
    expect(own && clusterOf({ cluster: "arandu", form }, [{ ...own, label: undefined }])?.id).toBe(
      "local",
    );
  });
});
