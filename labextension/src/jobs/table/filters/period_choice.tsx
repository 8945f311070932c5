/** Choice of the period of the finished jobs, and the button that shows all jobs again. */
import type { TranslationBundle } from "@jupyterlab/translation";
import { HTMLSelect } from "@jupyterlab/ui-components";
import * as React from "react";

import { HandoverButton } from "../../../common/jupyterlab/focus";
import { problemText } from "../../../common/labels";
import type { JobsTable } from "../table_model";
import { PERIODS, savedPeriod, type Period } from "./period";

interface IProps {
  readonly table: JobsTable;
  readonly trans: TranslationBundle;
}

function periodName(trans: TranslationBundle, period: Period): string {
  switch (period) {
    case null:
      return trans.__("Finished: recent");
    case 1:
      return trans.__("Finished: last 24 h");
    case 7:
      return trans.__("Finished: last 7 days");
    case 0:
      return trans.__("Finished: all");
  }
}

/** The period of the finished jobs, and why older ones are missing. */
export function PeriodChoice({ table, trans }: IProps): React.ReactElement | null {
  const { pastJobs, period } = table;
  if (pastJobs === null) {
    return null;
  }
  const problem = period === null ? null : pastJobs.problem;
  const isLoading = period !== null && pastJobs.isLoading;
  return (
    <>
      <HTMLSelect
        className="jp-Slurm-period"
        aria-label={trans.__("Finished jobs since")}
        title={trans.__(
          "Recent: the jobs that the agent lists by itself. All: up to 5,000 jobs of Slurm's accounting.",
        )}
        value={String(period)}
        onChange={({ target }) => {
          table.setPeriod(savedPeriod(target.value === "null" ? null : Number(target.value)));
        }}
      >
        {PERIODS.map((each) => (
          <option key={String(each)} value={String(each)}>
            {periodName(trans, each)}
          </option>
        ))}
      </HTMLSelect>
      <span className="jp-Slurm-aside" aria-live="polite" data-problem={problem !== null}>
        {isLoading
          ? trans.__("Loading finished jobs…")
          : problem !== null && problemText(trans, problem)}
      </span>
    </>
  );
}

/** Shows all jobs again, where some are hidden by a filter. */
export function ClearFilters({ table, trans }: IProps): React.ReactElement | null {
  return !table.isFiltered ? null : (
    <HandoverButton
      className="jp-Slurm-link"
      act={() => {
        table.clearFilters();
      }}
    >
      {trans.__("Clear filters")}
    </HandoverButton>
  );
}
