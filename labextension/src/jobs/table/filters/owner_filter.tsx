/** Choice between the user's own jobs and those of all users, which are loaded when they are shown and by a button. */
import type { TranslationBundle } from "@jupyterlab/translation";
import * as React from "react";

import type { ICluster } from "../../../common/api/objects";
import { isReached } from "../../../common/api/records";
import { formatClock } from "../../../common/format";
import { clusterName, problemText } from "../../../common/labels";
import type { IQueueState } from "../../all_jobs";
import type { JobsTable } from "../table_model";

interface IOwnerFilterProps {
  readonly table: JobsTable;
  readonly trans: TranslationBundle;
}

/** Return the age of the jobs of other users, the reason why there are none, and what the site hides. */
function othersText(trans: TranslationBundle, cluster: ICluster, known: IQueueState): string {
  const { queue, problem, isLoading } = known;
  const lines = [];
  if (problem !== null) {
    lines.push(problemText(trans, problem));
  } else if (queue === null && isLoading) {
    lines.push(trans.__("Loading the jobs of other users…"));
  }
  if (queue !== null) {
    lines.push(trans.__("Jobs of other users, checked %1.", formatClock(queue.asked_at)));
    if (queue.unknown_since !== null) {
      const since = trans.__("Not updated since %1.", formatClock(queue.unknown_since));
      lines.push(`${since} ${queue.said}`);
    }
    if (queue.is_private) {
      lines.push(
        trans.__("%1 shows users only their own jobs (PrivateData=jobs).", clusterName(cluster)),
      );
    }
  }
  return lines.join(" ");
}

/** The age of the jobs of other users, or the reason why there are none; nothing while only the user's own are shown. */
export function OthersStatus({ table, trans }: IOwnerFilterProps): React.ReactElement | null {
  const clusters = table.showsAllUsers ? table.model.clusters.filter(isReached) : [];
  return (
    <span className="jp-Slurm-others" aria-live="polite">
      {clusters.map((cluster) => {
        const known = table.allJobs?.stateOf(cluster.id);
        return (
          known && (
            <span
              key={cluster.id}
              data-problem={known.problem !== null}
              title={trans.__("Slurm is queried at most every %1 s.", known.queue?.interval ?? 0)}
            >
              {clusters.length > 1 ? `${clusterName(cluster)}: ` : ""}
              {othersText(trans, cluster, known)}{" "}
            </span>
          )
        );
      })}
    </span>
  );
}

export function OwnerFilter({ table, trans }: IOwnerFilterProps): React.ReactElement | null {
  if (table.allJobs === null) {
    return null;
  }
  const choices = [
    [false, trans.__("Mine")],
    [true, trans.__("All users")],
  ] as const;
  return (
    <span role="group" className="jp-Slurm-owners" aria-label={trans.__("Whose jobs")}>
      {choices.map(([isEverybodys, name]) => (
        <button
          key={name}
          type="button"
          className="jp-Slurm-chip"
          aria-pressed={table.showsAllUsers === isEverybodys}
          onClick={() => {
            table.setAllUsers(isEverybodys);
          }}
        >
          {name}
        </button>
      ))}
    </span>
  );
}
