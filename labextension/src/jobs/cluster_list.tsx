/** List of the clusters that need a login, with the state of each login. */
import type { TranslationBundle } from "@jupyterlab/translation";
import * as React from "react";

import type { ICluster, IConnection } from "../common/api/objects";
import { ToolbarButton } from "../common/jupyterlab/toolbar_button";
import type { IJobsModel } from "../common/jobs_model";
import { clusterName, connectionState, usersText } from "../common/labels";

interface IRowProps {
  readonly cluster: ICluster;
  readonly connection: IConnection;
  /** The latest event of the login, where the panel does not show it already. */
  readonly message: string;
  readonly trans: TranslationBundle;
  readonly connect: (cluster: ICluster) => void;
  readonly disconnect: (cluster: ICluster) => void;
}

function Row(props: IRowProps): React.ReactElement {
  const { cluster, connection, message, trans, connect, disconnect } = props;
  const name = clusterName(cluster);
  const users = usersText(trans, cluster);
  const isOff = connection.state === "disconnected";
  const act = isOff ? connect : disconnect;
  const label = isOff
    ? trans.__("Connect")
    : connection.state === "connecting"
      ? trans.__("Stop")
      : trans.__("Disconnect");
  return (
    <li data-connection={connection.state}>
      <span className="jp-Slurm-badge">{name}</span>
      <span className="jp-Slurm-connection">
        {connectionState(trans, connection)}
        {users !== "" && <div className="jp-Slurm-aside">{users}</div>}
        {message !== "" && <div className="jp-Slurm-aside">{message}</div>}
      </span>
      <ToolbarButton
        label={label}
        fullLabel={`${label}: ${name}`}
        act={() => {
          act(cluster);
        }}
      />
    </li>
  );
}

interface IClustersProps {
  readonly model: IJobsModel;
  readonly trans: TranslationBundle;
  readonly connect: (cluster: ICluster) => void;
  readonly disconnect: (cluster: ICluster) => void;
}

/** Render the list; nothing where no cluster needs a login. */
export function Clusters({ model, trans, ...acts }: IClustersProps): React.ReactElement | null {
  const rows = model.clusters.flatMap((cluster) => {
    const { connection, id } = cluster;
    if (!connection) {
      return [];
    }
    const message = connection.message === model.problem?.detail ? "" : connection.message;
    return [<Row key={id} {...{ cluster, connection, message, trans, ...acts }} />];
  });
  return rows.length === 0 ? null : (
    <ul className="jp-Slurm-clusters" aria-label={trans.__("Clusters")}>
      {rows}
    </ul>
  );
}
