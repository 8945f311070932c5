/** Identifiers that several plugins use: command IDs and the translation domain. */

/** The domain of the translations of this package. */
export const DOMAIN = "jupyter_slurm";

export const CommandIDs = {
  /** Argument `kind`: "failed", to show failed jobs only. */
  open: "jupyter-slurm:open",
  /** The panel in the side bar. */
  side: "jupyter-slurm:show-side-bar",
  /** Select a job in the table, with the same arguments as `openJob`. */
  select: "jupyter-slurm:select-job",
  refresh: "jupyter-slurm:refresh",
  /** Argument `cluster`: the ID of a cluster, also of the next two commands; without the argument they ask for one. */
  connect: "jupyter-slurm:connect",
  disconnect: "jupyter-slurm:disconnect",
  /** Arguments `cluster`: the ID of a cluster; `session`: the key of a session to show. */
  launch: "jupyter-slurm:launch",
  /** Arguments `cluster`: the ID of a cluster; `job`: a key, an ID, or the ID of a task (`12_3`). */
  openJob: "jupyter-slurm:open-job",
  openJobById: "jupyter-slurm:open-job-by-id",
  /** The same arguments as `openJob`; without arguments the command asks for a job. */
  cancel: "jupyter-slurm:cancel",
  /** Open the page of the job that was selected last. */
  openSelected: "jupyter-slurm:open-selected",
  /** Argument `act`: the action on the selected jobs. */
  act: "jupyter-slurm:act",
  /** Copy the selected jobs. Argument `format`: `csv` or `json`. */
  copy: "jupyter-slurm:copy",
  /** Argument `path`: a script, as the file browser names it; else the one selected there, else the command asks. */
  submitScript: "jupyter-slurm:submit-script",
  /** For the job whose page is in front. */
  resubmit: "jupyter-slurm:submit-again",
  copyLink: "jupyter-slurm:copy-link",
  browserNotices: "jupyter-slurm:browser-notices",
  /**
   * Arguments `cluster`: the ID of a cluster, else the command asks; `job`: a key or an ID, else the login node;
   * `terminal`: the ID of a terminal that is open.
   */
  terminal: "jupyter-slurm:open-terminal",
  /** A terminal that a cluster keeps and that has no tab; the command asks which. */
  reattachTerminal: "jupyter-slurm:reattach-terminal",
  /** A terminal in the job that was selected last. */
  terminalInSelected: "jupyter-slurm:open-terminal-in-selected",
  /** Arguments `cluster`: the ID of a cluster; `job`: the key or the ID of a running job. */
  launchInJob: "jupyter-slurm:launch-in-job",
  /** A session in the job that was selected last. */
  launchInSelected: "jupyter-slurm:launch-in-selected",
  removeKernel: "jupyter-slurm:remove-kernel",
  /** For the notebook in front. */
  move: "jupyter-slurm:move-notebook",
  /** For the notebook in front, or for another one by the arguments `cluster` (an ID) and `allocation` (a key). */
  followUp: "jupyter-slurm:follow-up",
} as const;
