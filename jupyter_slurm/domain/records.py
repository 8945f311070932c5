"""What Slurm told about one job, whichever command told it."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_slurm.domain.ids import JobId, TaskRange
from jupyter_slurm.domain.states import JobState

__all__ = ["JobRecord"]


@dataclass(frozen=True)
class JobRecord:
    """One job, array task, component of a heterogeneous job, or the tasks of an array that still wait.

    A field that the question did not cover, or that has no value yet, is ``None`` or empty. Texts that were not UTF-8
    hold surrogate escapes (:pep:`383`).

    Parameters
    ----------
    id : JobId
    state : JobState
    tasks : TaskRange, optional
        The array tasks that this record stands for.
    raw_id : int, optional
        Slurm's own number of this record: what the job sees as ``SLURM_JOB_ID`` (differs from ``id.job`` for an array
        task or a component).
    reason : str
        Why the job waits, or why it ended as it did: a word, or a sentence with blanks and commas.
    submit_time, start_time, end_time : int, optional
        Seconds since the epoch. For a job that has not started or ended: what Slurm expects, if anything.
    time_limit : int, optional
        Seconds. ``None`` is unlimited or unknown.
    nodes : str
        Node list as Slurm folds it (``dgx[01-04]``).
    exit_code, signal : int, optional
        Of the batch script; only of a job that has ended (Slurm writes them ``exit:signal``).
    restarts : int, optional
        How often the job was requeued.
    depends : str
        Dependencies that are left.
    """

    id: JobId
    state: JobState
    tasks: TaskRange | None = None
    raw_id: int | None = None
    reason: str = ""
    partition: str = ""
    account: str = ""
    qos: str = ""
    user: str = ""
    name: str | None = None
    comment: str | None = None
    submit_time: int | None = None
    start_time: int | None = None
    end_time: int | None = None
    time_limit: int | None = None
    nodes: str = ""
    node_count: int | None = None
    cpus: int | None = None
    tres: str = ""
    exit_code: int | None = None
    signal: int | None = None
    restarts: int | None = None
    stdout: str | None = None
    stderr: str | None = None
    work_dir: str | None = None
    command: str | None = None
    depends: str = ""
