/** Identifiers that several plugins use: command IDs and the translation domain. */

/** The domain of the translations of this package. */
export const DOMAIN = "jupyter_slurm";

export const CommandIDs = {
  open: "jupyter-slurm:open",
  /** The panel in the side bar. */
  side: "jupyter-slurm:show-side-bar",
  /** Select a job in the table, with the same arguments as `openJob`. */
  select: "jupyter-slurm:select-job",
  refresh: "jupyter-slurm:refresh",
  /** With the id of a cluster as the argument `cluster`, as the next two; without it they ask. */
  connect: "jupyter-slurm:connect",
  disconnect: "jupyter-slurm:disconnect",
  /** With the id of a cluster as the argument `cluster`, and the key of a session that is to be shown as `session`. */
  launch: "jupyter-slurm:launch",
  /** With the id of a cluster as the argument `cluster`, and as `job` a key, an id, or that of a task (`12_3`). */
  openJob: "jupyter-slurm:open-job",
  openJobById: "jupyter-slurm:open-job-by-id",
  /** With the same arguments; without them it asks which. */
  cancel: "jupyter-slurm:cancel",
  /** With what is to be done with the selected jobs as the argument `act`. */
  act: "jupyter-slurm:act",
  /** Copy the selected jobs; as the argument `format`, `csv` or `json`. */
  copy: "jupyter-slurm:copy",
  /** Of the job whose page is in front. */
  resubmit: "jupyter-slurm:submit-again",
  copyLink: "jupyter-slurm:copy-link",
  browserNotices: "jupyter-slurm:browser-notices",
  removeKernel: "jupyter-slurm:remove-kernel",
  /** Of the notebook in front. */
  move: "jupyter-slurm:move-notebook",
  /** Of the notebook in front; of another one by the arguments `cluster` (its id) and `allocation` (a key). */
  followUp: "jupyter-slurm:follow-up",
} as const;
