/** Labels of clusters that share a name: their host, or the folder of their Slurm configuration, tells them apart. */
import type { ICluster } from "../common/api/objects";
import { clusterName } from "../common/labels";

/** Return the clusters, where several have one name each with a label of its own. */
export function labelClusters(clusters: ReadonlyMap<string, ICluster>): Map<string, ICluster> {
  const byName = new Map<string, ICluster[]>();
  for (const cluster of clusters.values()) {
    const name = clusterName({ ...cluster, label: undefined });
    byName.set(name, [...(byName.get(name) ?? []), cluster]);
  }
  const labels = new Map<string, string>();
  for (const [name, sharing] of byName) {
    if (sharing.length > 1) {
      const places = clusterPlaces(sharing);
      sharing.forEach(({ id }, at) => labels.set(id, `${name} (${places[at] ?? id})`));
    }
  }
  return new Map(
    [...clusters].map(([id, cluster]) => {
      const label = labels.get(id);
      return [id, cluster.label === label ? cluster : { ...cluster, label }];
    }),
  );
}

/** Return what tells clusters of one name apart, all different. */
function clusterPlaces(clusters: readonly ICluster[]): string[] {
  const folders = clusters.flatMap(({ connection, slurm_conf: file }) =>
    connection || !file ? [] : [file.split("/").slice(0, -1)],
  );
  const parts = differingParts(folders);
  const places = clusters.map(({ connection, id, slurm_conf: file }) =>
    connection ? (connection.hosts.at(-1) ?? id) : file ? (parts.shift() ?? id) : id,
  );
  return new Set(places).size === places.length ? places : clusters.map(({ id }) => id);
}

/** Return of each folder what the others do not have; of a folder without such a part, and of a single one, the path. */
function differingParts(folders: readonly (readonly string[])[]): string[] {
  const paths = folders.map((folder) => folder.join("/") || "/");
  const [first = []] = folders;
  const isShared = (at: number): boolean => folders.every((each) => each.at(at) === first.at(at));
  let [head, tail] = [0, 0];
  while (head < first.length && isShared(head)) {
    head += 1;
  }
  while (tail < first.length && isShared(-1 - tail)) {
    tail += 1;
  }
  const parts = folders.map((folder) => folder.slice(head, folder.length - tail).join("/"));
  return folders.length > 1 && parts.every((part) => part !== "") ? parts : paths;
}
