/** File browser of the clusters, which follows the drive and the settings of JupyterLab's own file browser. */
import { Dialog, showDialog } from "@jupyterlab/apputils";
import type { FileBrowser, IFileBrowserFactory } from "@jupyterlab/filebrowser";
import { Uploader } from "@jupyterlab/filebrowser";
import type { ISettingRegistry } from "@jupyterlab/settingregistry";
import type { ITranslator, TranslationBundle } from "@jupyterlab/translation";
import {
  folderFavoriteIcon,
  newFolderIcon,
  refreshIcon,
  ToolbarButton,
} from "@jupyterlab/ui-components";

import { DOMAIN } from "../common/identifiers";
import type { SlurmDrive } from "./drive";
import { parentOf } from "./paths";

/** Settings of JupyterLab's own file browser. */
export const LAB_SETTINGS = "@jupyterlab/filebrowser-extension:browser";
/** Those that its other file browsers can have, too. */
const FOLLOWED = [
  "showHiddenFiles",
  "showLastModifiedColumn",
  "showFileSizeColumn",
  "showFileCheckboxes",
  "sortNotebooksFirst",
  "sortFileNamesNaturally",
  "singleClickNavigation",
] as const;
/** Time between two listings while the panel is visible, in milliseconds: the login node is left alone. */
const REFRESH_MS = 300_000;

/** Take the settings over. Older versions of JupyterLab have not all of them. */
export function applySettings(browser: FileBrowser, settings: ISettingRegistry.ISettings): void {
  for (const name of FOLLOWED) {
    const value = settings.get(name).composite;
    if (typeof value === "boolean") {
      browser[name] = value;
    }
  }
}

/**
 * Create the file browser. It asks for nothing before it is shown.
 *
 * @param report - Shows an error.
 */
export function createBrowser(
  id: string,
  factory: IFileBrowserFactory,
  drive: SlurmDrive,
  translator: ITranslator,
  report: (error: unknown) => void,
): FileBrowser {
  const trans = translator.load(DOMAIN);
  const options = { driveName: drive.name, auto: false, restore: false };
  const browser = factory.createFileBrowser(id, { ...options, refreshInterval: REFRESH_MS });
  browser.title.icon = folderFavoriteIcon;
  browser.title.caption = trans.__("Files of the clusters");
  browser.node.setAttribute("role", "region");
  browser.node.setAttribute("aria-label", trans.__("Files of the clusters"));
  addTools(browser, translator);
  browser.delete = () => deleteSelected(browser, trans).catch(report);
  reportFailures(browser, report);
  const { model } = browser;
  drive.fileChanged.connect((_, { oldValue, newValue }) => {
    const shown = model.manager.services.contents.localPath(model.path);
    if ([oldValue, newValue].some((one) => one?.path && parentOf(one.path) === shown)) {
      void model.refresh();
    }
  });
  let isLoaded = false;
  new ResizeObserver(() => {
    if (!isLoaded && browser.isVisible) {
      isLoaded = true;
      void model.refresh();
    }
  }).observe(browser.node);
  return browser;
}

function addTools(browser: FileBrowser, translator: ITranslator): void {
  const trans = translator.load(DOMAIN);
  const { model, toolbar } = browser;
  const folder = new ToolbarButton({
    icon: newFolderIcon,
    tooltip: trans.__("New Folder"),
    onClick: () => void browser.createNewDirectory(),
  });
  const refresh = new ToolbarButton({
    icon: refreshIcon,
    tooltip: trans.__("Refresh"),
    onClick: () => void model.refresh(),
  });
  toolbar.addItem("folder", folder);
  toolbar.addItem("upload", new Uploader({ model, translator }));
  toolbar.addItem("refresh", refresh);
}

/** Delete what is selected. JupyterLab's own question may speak of a trash, which a cluster does not have. */
async function deleteSelected(browser: FileBrowser, trans: TranslationBundle): Promise<void> {
  const items = Array.from(browser.selectedItems());
  const name = items.length === 1 ? items[0]?.name : trans.__("%1 items", items.length);
  const { button } = await showDialog({
    title: trans.__("Delete"),
    body: trans.__("Delete %1 permanently? The cluster has no trash.", name),
    buttons: [
      Dialog.cancelButton({ label: trans.__("Cancel") }),
      Dialog.warnButton({ label: trans.__("Delete") }),
    ],
    defaultButton: 0,
  });
  if (button.accept) {
    for (const { path } of items) {
      await browser.model.manager.deleteFile(path);
    }
  }
}

/**
 * Show why a folder could not be listed, once when the panel is first shown and once for each act of the user.
 *
 * A listing by the clock, or of a hidden panel, is silent.
 */
export function reportFailures(
  browser: Pick<FileBrowser, "node" | "isVisible"> & {
    readonly model: Pick<FileBrowser["model"], "connectionFailure">;
  },
  report: (error: unknown) => void,
): void {
  let isWaiting = true;
  for (const event of ["pointerdown", "keydown"]) {
    browser.node.addEventListener(event, () => (isWaiting = true), true);
  }
  browser.model.connectionFailure.connect((_, error) => {
    const isMissing = (error as { response?: Response }).response?.status === 404; // JupyterLab shows this one
    if (isWaiting && browser.isVisible && !isMissing) {
      isWaiting = false;
      report(error);
    }
  });
}
