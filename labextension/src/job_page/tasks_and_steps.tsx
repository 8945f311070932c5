/** Tables of the tasks of an array and the steps of an allocation. */
import type { TranslationBundle } from "@jupyterlab/translation";
import * as React from "react";

import type { IJob } from "../common/api/objects";
import { formatTime } from "../common/format";
import { stateKind } from "../common/job_states";
import { jobName } from "../common/labels";
import { translateReason } from "../common/reason_texts";
import type { JobPage } from "./model";
import { RequestResult, useRequest } from "./request_state";

/** Largest number of rows: browsers draw more slowly. */
const MAX_ROWS = 1_000;

interface IPartsProps {
  readonly page: JobPage;
  readonly job: IJob;
  readonly trans: TranslationBundle;
  /** Open the page of a task or a step. */
  readonly open: (job: string) => void;
}

/** A row: the reference of its job, and its cells. */
interface IRow {
  readonly job: string;
  readonly state: string;
  readonly cells: readonly string[];
}

function Table(props: {
  readonly heads: readonly string[];
  readonly rows: readonly IRow[];
  readonly trans: TranslationBundle;
  readonly open: (job: string) => void;
}): React.ReactElement {
  const { heads, rows, trans, open } = props;
  return (
    <>
      <table className="jp-Slurm-parts">
        <thead>
          <tr>
            {heads.map((head, index) => (
              <th key={index} scope="col">
                {head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, MAX_ROWS).map(({ job, state, cells }) => (
            <tr key={job} data-kind={stateKind(state)}>
              <td className="jp-Slurm-id">
                <button
                  type="button"
                  className="jp-Slurm-link"
                  onClick={() => {
                    open(job);
                  }}
                >
                  {job}
                </button>
              </td>
              <td>
                <span className="jp-Slurm-badge">{state}</span>
              </td>
              {cells.map((cell, index) => (
                <td key={index}>{cell}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > MAX_ROWS && (
        <p className="jp-Slurm-aside">
          {trans.__("%1 more are not shown. Failed tasks come first.", rows.length - MAX_ROWS)}
        </p>
      )}
    </>
  );
}

/** Return failed rows first, then the others, each in their order. */
function failedFirst<T extends { readonly state: string }>(rows: readonly T[]): T[] {
  const failed = ({ state }: T): number => Number(stateKind(state) !== "failed");
  return [...rows].sort((a, b) => failed(a) - failed(b));
}

/** The tasks of an array, with their parameters. */
export function Tasks({ page, job, trans, open }: IPartsProps): React.ReactElement {
  const { api, place } = page;
  const request = useRequest(
    () => api.tasks(place.cluster, place.job),
    JSON.stringify([job.state, job.tasks]),
  );
  return (
    <RequestResult trans={trans} request={request}>
      {({ columns, rows, names, parameters }) => {
        const at = (row: readonly unknown[], name: string): unknown => row[columns.indexOf(name)];
        const text = (value: unknown): string =>
          typeof value === "number" || typeof value === "string" ? `${value}` : "";
        const tableRows = rows.map((row, index): IRow => {
          const start = at(row, "start_time");
          return {
            job: `${job.id ?? ""}_${text(at(row, "task"))}`,
            state: text(at(row, "state")),
            cells: [
              ...(parameters[index] ?? names.map(() => "")),
              text(at(row, "exit_code")),
              typeof start === "number" ? formatTime(start) : "",
              text(at(row, "nodes")),
              // An earlier agent sends Slurm's word only.
              columns.includes("reason_text")
                ? translateReason(trans, text(at(row, "reason_text")))
                : text(at(row, "reason")),
            ],
          };
        });
        const heads = [
          trans.__("Task"),
          trans.__("State"),
          ...names,
          trans.__("Exit code"),
          trans.__("Started"),
          trans.__("Nodes"),
          trans.__("Reason"),
        ];
        const shown = tableRows.length > MAX_ROWS ? failedFirst(tableRows) : tableRows;
        return <Table {...{ heads, trans, open }} rows={shown} />;
      }}
    </RequestResult>
  );
}

/** The steps of an allocation. */
export function Steps({ page, job, trans, open }: IPartsProps): React.ReactElement {
  const { api, place } = page;
  const request = useRequest(() => api.steps(place.cluster, place.job), job.state);
  const heads = [trans.__("Step"), trans.__("State"), trans.__("Name"), trans.__("Nodes")];
  return (
    <RequestResult trans={trans} request={request}>
      {(steps) =>
        steps.length === 0 ? (
          <p className="jp-Slurm-aside">{trans.__("No step was started in this allocation.")}</p>
        ) : (
          <Table {...{ heads, trans, open }} rows={steps.map(stepRow)} />
        )
      }
    </RequestResult>
  );
}

function stepRow(step: IJob): IRow {
  return {
    job: step.id ?? step.key ?? "",
    state: step.state,
    cells: [jobName(step), step.nodes ?? ""],
  };
}
