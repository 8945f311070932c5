/** View of the resources of a cluster: GPUs by type as bars, partitions, nodes, limits and use of the user. */
import type { TranslationBundle } from "@jupyterlab/translation";
import { UseSignal } from "@jupyterlab/ui-components";
import * as React from "react";

import type { ICluster } from "../common/api/objects";
import { acceleratorName, otherGres } from "../common/launch_request";
import { Fold } from "../common/jupyterlab/fold";
import { clusterName } from "../common/labels";
import { AnswerFold } from "./answer_fold";
import {
  ageText,
  amountText,
  freeText,
  limitAmount,
  limitName,
  limitText,
  memoryText,
  nodeState,
  nodesText,
  typeText,
  useText,
} from "./labels";
import {
  acceleratorsOf,
  type IGpus,
  type INode,
  type IResources,
  type IResourcesModel,
  type IResourcesState,
} from "./model";
import { Room } from "./room_view";
import { RunningUse } from "./running_use_view";
import { Table } from "./table";

/** Largest number of nodes in the list. */
const MAX_NODES = 200;

interface IShown {
  readonly trans: TranslationBundle;
  readonly resources: IResources;
}

/** The GPUs of a type: allocated, free, and on nodes that take no jobs. */
function Bar({ trans, gpus }: { trans: TranslationBundle; gpus: IGpus }): React.ReactElement {
  const { type, total, used, free } = gpus;
  const share = (count: number): React.CSSProperties => ({ width: `${(100 * count) / total}%` });
  const name = acceleratorName(type) || trans.__("other GPUs");
  return (
    <li data-gpu={type}>
      <span className="jp-Slurm-name">{name}</span>
      <span className="jp-Slurm-bar" aria-hidden="true">
        <span data-part="used" style={share(used)} />
        <span data-part="free" style={share(free)} />
      </span>
      <span>{typeText(trans, gpus)}</span>
    </li>
  );
}

function Partitions({ trans, resources }: IShown): React.ReactElement {
  const heads = [
    trans.__("Partition"),
    trans.__("GPUs free"),
    trans.__("CPUs free"),
    trans.__("Nodes"),
    trans.__("Time limit"),
  ];
  return (
    <Table label={trans.__("Partitions")} heads={heads}>
      {resources.partitions.map((one) => (
        <tr key={one.name}>
          <td>
            {one.name}
            {one.is_default && <span className="jp-Slurm-aside"> {trans.__("default")}</span>}
            {one.state !== "UP" && <span className="jp-Slurm-problem"> {one.state}</span>}
          </td>
          <td>{freeText(trans, acceleratorsOf(one))}</td>
          <td>{trans.__("%1 of %2", one.cpus_free, one.cpus)}</td>
          <td>{nodesText(one)}</td>
          <td>{limitText(trans, one.time_limit)}</td>
        </tr>
      ))}
    </Table>
  );
}

function NodeRow({ trans, node }: { trans: TranslationBundle; node: INode }): React.ReactElement {
  const others = (node.gres ?? []).map((one) => ({ ...one, type: otherGres(one.name, one.type) }));
  const gpus = [...node.gpus, ...others].map(({ type, total, used }) =>
    trans.__("%1 of %2 %3", used, total, acceleratorName(type) || trans.__("GPUs")),
  );
  return (
    <tr data-up={node.is_up}>
      <td>{node.name}</td>
      <td>
        {nodeState(node)}
        {node.reason !== "" && <div className="jp-Slurm-aside">{node.reason}</div>}
      </td>
      <td>{gpus.join(", ")}</td>
      <td>{trans.__("%1 of %2", node.cpus_used, node.cpus)}</td>
      <td>{trans.__("%1 of %2", memoryText(node.memory_used), memoryText(node.memory))}</td>
      <td>{node.load === null ? "" : node.load.toFixed(1)}</td>
    </tr>
  );
}

function Nodes(props: IShown & { readonly cluster: string }): React.ReactElement {
  const { trans, cluster } = props;
  const { nodes } = props.resources;
  const heads = [
    trans.__("Node"),
    trans.__("State"),
    trans.__("GPUs allocated"),
    trans.__("CPUs allocated"),
    trans.__("Memory allocated"),
    trans.__("Load"),
  ];
  return (
    <Fold name={`nodes of ${cluster}`} title={trans._n("%1 node", "%1 nodes", nodes.length)}>
      <Table label={trans.__("Nodes")} heads={heads}>
        {nodes.slice(0, MAX_NODES).map((node) => (
          <NodeRow key={node.name} {...{ trans, node }} />
        ))}
      </Table>
      {nodes.length > MAX_NODES && (
        <p className="jp-Slurm-aside">{trans.__("All nodes: jupyter slurm resources --nodes")}</p>
      )}
    </Fold>
  );
}

function OwnUse({ trans, resources: { use, limits } }: IShown): React.ReactElement {
  return (
    <>
      {use !== null && <p>{useText(trans, use)}</p>}
      {limits !== null && limits.length > 0 && (
        <Table label={trans.__("Limits")} heads={[trans.__("Limit"), trans.__("Used")]}>
          {limits.map((limit) => (
            <tr
              key={`${limit.scope} ${limit.name} ${limit.partition} ${limit.kind} ${limit.resource}`}
              data-full={limit.used !== null && limit.used >= limit.most}
              title={amountText(limit.resource, limit.most)}
            >
              <td>{limitName(trans, limit)}</td>
              <td>{limitAmount(trans, limit)}</td>
            </tr>
          ))}
        </Table>
      )}
    </>
  );
}

/** The age of the data, and a button that loads them again. */
export function Age(props: {
  readonly model: IResourcesModel;
  readonly trans: TranslationBundle;
  readonly known: IResourcesState;
  readonly cluster: string;
}): React.ReactElement {
  const { model, trans, known, cluster } = props;
  return (
    <p className="jp-Slurm-age jp-Slurm-aside">
      <span aria-live="polite" data-problem={known.problem !== null}>
        {ageText(trans, known)}
      </span>{" "}
      <button
        type="button"
        className="jp-Slurm-link"
        aria-disabled={known.isLoading}
        onClick={() => void model.load(cluster, { newer: true })}
      >
        {trans.__("Refresh")}
      </button>
    </p>
  );
}

interface IProps {
  readonly model: IResourcesModel;
  readonly trans: TranslationBundle;
  readonly cluster: ICluster;
}

/** What is loaded only when it is opened. */
function Folds(props: {
  readonly model: IResourcesModel;
  readonly trans: TranslationBundle;
  readonly cluster: string;
}): React.ReactElement {
  const { model, trans, cluster } = props;
  return (
    <>
      <AnswerFold
        {...{ trans, cluster }}
        name="use"
        title={trans.__("GPUs and CPUs in use")}
        answers={model.use}
        pace={trans.__("The agent asks Slurm at most once a minute.")}
      >
        {(use) => <RunningUse {...{ trans, use }} />}
      </AnswerFold>
      <AnswerFold
        {...{ trans, cluster }}
        name="room"
        title={trans.__("Quotas and free space")}
        answers={model.room}
        pace={trans.__("The agent asks the login node every five minutes, or after a click.")}
      >
        {(room) => <Room {...{ trans, room }} />}
      </AnswerFold>
    </>
  );
}

/** The resources of one cluster, loaded when they are shown and by a button. */
function ClusterResources({ model, trans, cluster }: IProps): React.ReactElement {
  const { id } = cluster;
  React.useEffect(() => {
    void model.load(id, { nodes: true });
  }, [model, id]);
  return (
    <UseSignal signal={model.changed}>
      {() => {
        const known = model.stateOf(id);
        const { resources } = known;
        return (
          <div className="jp-Slurm-resources">
            <Age {...{ model, trans, known }} cluster={id} />
            {resources !== null && (
              <>
                <ul aria-label={trans.__("GPUs")}>
                  {acceleratorsOf(resources).map((gpus) => (
                    <Bar key={gpus.type} {...{ trans, gpus }} />
                  ))}
                </ul>
                <OwnUse {...{ trans, resources }} />
                <Partitions {...{ trans, resources }} />
                <Nodes {...{ trans, resources }} cluster={id} />
              </>
            )}
            <Folds {...{ model, trans }} cluster={id} />
          </div>
        );
      }}
    </UseSignal>
  );
}

/** The resources of each cluster, folded: nothing is loaded before one is opened. */
export function AllResources(props: {
  readonly model: IResourcesModel;
  readonly trans: TranslationBundle;
  readonly clusters: readonly ICluster[];
}): React.ReactElement {
  const { model, trans, clusters } = props;
  return (
    <>
      {clusters.map((cluster) => (
        <Fold
          key={cluster.id}
          className="jp-Slurm-free"
          name={`free on ${cluster.id}`}
          title={trans.__("Free on %1", clusterName(cluster))}
        >
          <ClusterResources {...{ model, trans, cluster }} />
        </Fold>
      ))}
    </>
  );
}
