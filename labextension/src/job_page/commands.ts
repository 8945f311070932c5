/** Commands for the job whose page is in front. */
import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { ICommandPalette } from "@jupyterlab/apputils";
import type { TranslationBundle } from "@jupyterlab/translation";

import { CommandIDs } from "../common/identifiers";
import type { JobPage } from "./model";

/** What is done with the page of a job by a command. */
export interface IPageActs {
  readonly again: (page: JobPage) => Promise<void>;
  readonly link: (page: JobPage) => void;
}

/**
 * The commands for the job whose page is in front.
 *
 * @param front - That page; null: there is none.
 */
export function addPageCommands(
  commands: JupyterFrontEnd["commands"],
  palette: ICommandPalette | null,
  trans: TranslationBundle,
  front: () => JobPage | null,
  { again, link }: IPageActs,
): void {
  const repeatable = (): JobPage | null => {
    const page = front();
    return page?.isRepeatable && !page.isResubmitting ? page : null;
  };
  commands.addCommand(CommandIDs.resubmit, {
    label: trans.__("Submit Job Again…"),
    isEnabled: () => repeatable() !== null,
    execute: async () => {
      const page = repeatable();
      await (page && again(page));
    },
  });
  commands.addCommand(CommandIDs.copyLink, {
    label: trans.__("Copy Link to Job"),
    isEnabled: () => front() !== null,
    execute: () => {
      const page = front();
      if (page !== null) {
        link(page);
      }
    },
  });
  for (const command of [CommandIDs.resubmit, CommandIDs.copyLink]) {
    palette?.addItem({ command, category: "Slurm" });
  }
}
