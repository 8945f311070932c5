/** View of the CPUs and GPUs that users have now, by user, account and partition. */
import type { TranslationBundle } from "@jupyterlab/translation";
import { HTMLSelect } from "@jupyterlab/ui-components";
import * as React from "react";

import { acceleratorName } from "../common/launch_request";
import {
  groupUse,
  USE_GROUPINGS,
  type IRunningUse,
  type IUseRow,
  type UseKey,
} from "./running_use";
import { NARROW, NUMBER, Table, WIDE } from "./table";

/** Largest number of rows. */
const MAX_ROWS = 200;

interface IProps {
  readonly trans: TranslationBundle;
  readonly use: IRunningUse;
}

function keyName(trans: TranslationBundle, key: UseKey): string {
  return {
    user: trans.__("User"),
    account: trans.__("Account"),
    partition: trans.__("Partition"),
  }[key];
}

/** Return the GPUs by type: "2 a100, 1 h100"; empty where Slurm says no type. */
function typesText(trans: TranslationBundle, { types }: IUseRow): string {
  return types.every(([type]) => type === "")
    ? ""
    : types
        .map(([type, count]) => `${count} ${acceleratorName(type) || trans.__("without a type")}`)
        .join(", ");
}

function Row(props: {
  readonly trans: TranslationBundle;
  readonly row: IUseRow;
  readonly hasTypes: boolean;
}): React.ReactElement {
  const { trans, row, hasTypes } = props;
  const [name = "", ...others] = row.group;
  const types = typesText(trans, row);
  return (
    <tr data-own={row.isOwn}>
      <th scope="row">
        {name || trans.__("none")}
        {row.isOwn && <span className="jp-Slurm-aside"> {trans.__("you")}</span>}
        {[others.join(", "), types]
          .filter((text) => text !== "")
          .map((text) => (
            <div key={text} className={`jp-Slurm-aside ${NARROW}`}>
              {text}
            </div>
          ))}
      </th>
      {others.map((other, place) => (
        <td key={place} className={WIDE}>
          {other}
        </td>
      ))}
      <td className={NUMBER}>{row.gpus}</td>
      {hasTypes && <td className={WIDE}>{types}</td>}
      <td className={NUMBER}>{row.cpus}</td>
      <td className={NUMBER}>{row.jobs}</td>
    </tr>
  );
}

function Rows({ trans, use, keys }: IProps & { keys: readonly UseKey[] }): React.ReactElement {
  const rows = groupUse(use, keys);
  const hasTypes = rows.some((row) => typesText(trans, row) !== "");
  const heads = [
    ...keys.map((key, place) => ({
      text: keyName(trans, key),
      className: place === 0 ? "" : WIDE,
    })),
    { text: trans.__("GPUs"), className: NUMBER },
    ...(hasTypes ? [{ text: trans.__("GPU types"), className: WIDE }] : []),
    { text: trans.__("CPUs"), className: NUMBER },
    { text: trans.__("Jobs"), className: NUMBER },
  ];
  return (
    <>
      <Table label={trans.__("GPUs and CPUs in use")} heads={heads}>
        {rows.slice(0, MAX_ROWS).map((row) => (
          <Row key={row.group.join("\n")} {...{ trans, row, hasTypes }} />
        ))}
      </Table>
      {rows.length > MAX_ROWS && (
        <p className="jp-Slurm-aside">{trans.__("All rows: jupyter slurm who")}</p>
      )}
    </>
  );
}

export function RunningUse({ trans, use }: IProps): React.ReactElement {
  const [grouping, setGrouping] = React.useState(0);
  const keys = USE_GROUPINGS[grouping] ?? ["user"];
  return (
    <>
      <label className="jp-Slurm-grouping">
        {trans.__("Group by")}
        <HTMLSelect
          value={grouping}
          onChange={({ target }) => {
            setGrouping(Number(target.value));
          }}
        >
          {USE_GROUPINGS.map((each, place) => (
            <option key={each.join()} value={place}>
              {each.map((key) => keyName(trans, key)).join(", ")}
            </option>
          ))}
        </HTMLSelect>
      </label>
      {use.sums.length === 0 ? (
        <p>{trans.__("No job is running.")}</p>
      ) : (
        <Rows {...{ trans, use, keys }} />
      )}
      {use.is_private && (
        <p className="jp-Slurm-aside">
          {trans.__("This cluster shows only your own jobs (PrivateData).")}
        </p>
      )}
    </>
  );
}
