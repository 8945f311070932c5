/** Plugin of the files of the clusters: a drive, and a file browser in the left side bar. */
import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin,
} from "@jupyterlab/application";
import { IDefaultFileBrowser, IFileBrowserFactory, Uploader } from "@jupyterlab/filebrowser";
import { ITranslator, nullTranslator } from "@jupyterlab/translation";
import { folderFavoriteIcon, refreshIcon, ToolbarButton } from "@jupyterlab/ui-components";

import { AgentApi } from "../agent_api";
import { DOMAIN } from "../common/identifiers";
import { hasMainArea } from "../common/jupyterlab/main_area";
import { FilesApi } from "../files/api";
import { keepOwnBrowser } from "../files/browser_focus";
import { SlurmDrive } from "../files/drive";

const BROWSER = "jupyter-slurm-files";
/** Rank in the side bar, below the panel of the jobs. */
const RANK = 310;
/** Time between two listings while the panel is visible, in milliseconds: the login node is left alone. */
const REFRESH_MS = 300_000;

export const filesPlugin: JupyterFrontEndPlugin<void> = {
  id: "jupyter-slurm:files",
  description: "The files of the clusters: a drive, and a file browser in the side bar.",
  autoStart: true,
  optional: [IFileBrowserFactory, IDefaultFileBrowser, ITranslator, ILayoutRestorer],
  activate: (
    app: JupyterFrontEnd,
    factory: IFileBrowserFactory | null,
    own: IDefaultFileBrowser | null,
    translator: ITranslator | null,
    restorer: ILayoutRestorer | null,
  ): void => {
    const { contents, serverSettings } = app.serviceManager;
    const drive = new SlurmDrive(new FilesApi(new AgentApi(serverSettings)), serverSettings);
    contents.addDrive(drive);
    if (factory === null || own === null || !hasMainArea(app)) {
      return;
    }
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const browser = factory.createFileBrowser(BROWSER, {
      driveName: drive.name,
      auto: false,
      restore: false,
      refreshInterval: REFRESH_MS,
    });
    browser.title.icon = folderFavoriteIcon;
    browser.title.caption = trans.__("Files of the clusters");
    browser.node.setAttribute("role", "region");
    browser.node.setAttribute("aria-label", trans.__("Files of the clusters"));
    const { model } = browser;
    browser.toolbar.addItem("upload", new Uploader({ model, ...(translator && { translator }) }));
    const refresh = new ToolbarButton({
      icon: refreshIcon,
      tooltip: trans.__("Refresh"),
      onClick: () => void model.refresh(),
    });
    browser.toolbar.addItem("refresh", refresh);
    let isLoaded = false;
    const load = (): void => {
      if (!isLoaded && browser.isVisible) {
        isLoaded = true;
        void model.refresh();
      }
    };
    app.shell.add(browser, "left", { rank: RANK });
    restorer?.add(browser, BROWSER);
    keepOwnBrowser(browser, own);
    // Nothing is asked for before the person opens the panel.
    new ResizeObserver(load).observe(browser.node);
  },
};
