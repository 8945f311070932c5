/** Settings of the tables of jobs: the height of the rows and the default columns. No DOM. */
import type { TranslationBundle } from "@jupyterlab/translation";

import type { ISettingTexts } from "../common/jupyterlab/setting_texts";
import { INITIAL_COLUMNS, type ColumnId } from "./table/columns";
import { savedColumns } from "./table/saved_table";

export type Density = "comfortable" | "compact";

export interface ITableSettings {
  readonly density: Density;
  readonly columns: readonly ColumnId[];
}

/** Return the settings that are usable; the initial ones for others. */
export function tableSettings(told: Readonly<Record<string, unknown>> | undefined): ITableSettings {
  return {
    density: told?.["density"] === "compact" ? "compact" : "comfortable",
    columns: savedColumns(told?.["columns"]) ?? INITIAL_COLUMNS,
  };
}

/** Return the texts of the settings in the language of the user; in English as in the schema. */
export function tableSettingTexts(trans: TranslationBundle): ISettingTexts {
  return {
    title: trans.__("Slurm jobs"),
    description: trans.__("The tables of jobs."),
    settings: {
      density: [trans.__("Density"), trans.__("Height of the rows: comfortable or compact.")],
      columns: [
        trans.__("Default columns"),
        trans.__(
          "Columns of the table in a tab, in their order, unless you choose others in the table.",
        ),
      ],
    },
  };
}
