/** Commands for the job whose page is in front. */
import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { ICommandPalette } from "@jupyterlab/apputils";
import type { TranslationBundle } from "@jupyterlab/translation";

import { CommandIDs } from "../common/identifiers";
import { addToPalette, commandLabel } from "../common/jupyterlab/palette";
import type { JobPage } from "./model";

/** Actions of the commands on the page of a job. */
export interface IPageActs {
  readonly resubmit: (page: JobPage) => Promise<void>;
  readonly link: (page: JobPage) => void;
}

/**
 * Add the commands for the job whose page is in front.
 *
 * @param front - Returns that page; null: there is none.
 */
export function addPageCommands(
  commands: JupyterFrontEnd["commands"],
  palette: ICommandPalette | null,
  trans: TranslationBundle,
  front: () => JobPage | null,
  { resubmit, link }: IPageActs,
): void {
  const repeatable = (): JobPage | null => {
    const page = front();
    return page && (page.isRepeatable || page.isForeign) && !page.isResubmitting ? page : null;
  };
  commands.addCommand(CommandIDs.resubmit, {
    label: (args) => commandLabel(trans, trans.__("Submit Job Again…"), args),
    isEnabled: () => repeatable() !== null,
    execute: async () => {
      const page = repeatable();
      await (page && resubmit(page));
    },
  });
  commands.addCommand(CommandIDs.copyLink, {
    label: (args) => commandLabel(trans, trans.__("Copy Link to Job"), args),
    isEnabled: () => front() !== null,
    execute: () => {
      const page = front();
      if (page !== null) {
        link(page);
      }
    },
  });
  for (const command of [CommandIDs.resubmit, CommandIDs.copyLink]) {
    addToPalette(palette, command);
  }
}
