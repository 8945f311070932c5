/** A file of JupyterLab, on this computer or on a cluster. */
export interface IFilePlace {
  /** The path, as JupyterLab has it. */
  readonly path: string;
  /** The path for the server: below its root, beginning with "./", or absolute on the cluster. */
  readonly serverPath: string;
  /** The ID of the cluster that has the file; empty: this computer has it. */
  readonly cluster: string;
}
