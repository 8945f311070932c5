/** Plugin of the files of the clusters: a drive, and a file browser in the left side bar. */
import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin,
} from "@jupyterlab/application";
import { Notification, showErrorMessage } from "@jupyterlab/apputils";
import { IDefaultFileBrowser, IFileBrowserFactory } from "@jupyterlab/filebrowser";
import { ISettingRegistry } from "@jupyterlab/settingregistry";
import { ITranslator, nullTranslator } from "@jupyterlab/translation";

import { AgentApi } from "../agent_api/agent_api";
import { toProblem } from "../common/api/problem";
import { DOMAIN } from "../common/identifiers";
import { problemText } from "../common/labels";
import { hasMainArea } from "../common/jupyterlab/main_area";
import { FilesApi } from "../files/api";
import { applySettings, createBrowser, LAB_SETTINGS } from "../files/browser";
import { keepOwnBrowser } from "../files/browser_focus";
import { SlurmDrive } from "../files/drive";

const BROWSER = "jupyter-slurm-files";
/** Rank in the side bar, below the panel of the jobs. */
const RANK = 310;

export const filesPlugin: JupyterFrontEndPlugin<void> = {
  id: "jupyter-slurm:files",
  description: "The files of the clusters: a drive, and a file browser in the side bar.",
  autoStart: true,
  optional: [
    IFileBrowserFactory,
    IDefaultFileBrowser,
    ITranslator,
    ILayoutRestorer,
    ISettingRegistry,
  ],
  activate: (
    app: JupyterFrontEnd,
    factory: IFileBrowserFactory | null,
    own: IDefaultFileBrowser | null,
    translator: ITranslator | null,
    restorer: ILayoutRestorer | null,
    settings: ISettingRegistry | null,
  ): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const { contents, serverSettings } = app.serviceManager;
    const report = (error: unknown): void => {
      const problem = toProblem(error, "Refresh.");
      void showErrorMessage(trans.__("Files of the clusters"), problemText(trans, problem));
    };
    const drive = new SlurmDrive(
      new FilesApi(new AgentApi(serverSettings)),
      serverSettings,
      report,
      trans,
    );
    drive.partListed.connect((_, { path, count }) => {
      const shown = count.toLocaleString();
      const text = trans.__("%1 has more entries than are listed (%2).", path, shown);
      Notification.warning(text, { autoClose: 12_000 });
    });
    contents.addDrive(drive);
    if (factory === null || own === null || !hasMainArea(app)) {
      return;
    }
    const browser = createBrowser(BROWSER, factory, drive, translator ?? nullTranslator, report);
    app.shell.add(browser, "left", { rank: RANK });
    restorer?.add(browser, BROWSER);
    keepOwnBrowser(factory.tracker, browser, own);
    void settings?.load(LAB_SETTINGS).then((loaded) => {
      const follow = (): void => {
        applySettings(browser, loaded);
      };
      loaded.changed.connect(follow);
      follow();
    });
  },
};
