"""Slurm's record of one job, from any command."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jupyter_slurm.domain.ids import JobId, TaskRange
from jupyter_slurm.domain.states import JobState

__all__ = ["JobRecord", "is_refused", "merge_detail", "representative", "state_rank"]

_REFUSAL_REASONS = frozenset({"BadConstraints", "None", ""})  # accounting has no reason of it
_REFUSAL_EXITS = frozenset({(0, 1), (1, 0)})  # squeue and sacct read the same number differently


@dataclass(frozen=True)
class JobRecord:
    """One job, array task, component of a heterogeneous job, or the array tasks that still wait.

    A field that the query did not cover, or that has no value yet, is ``None`` or empty. Texts that were not UTF-8
    contain surrogate escapes (:pep:`383`).

    Parameters
    ----------
    id : JobId
    state : JobState
    tasks : TaskRange, optional
        The array tasks that this record represents.
    raw_id : int, optional
        Slurm's number of this record: the job's ``SLURM_JOB_ID`` (differs from ``id.job`` for an array task or a
        component).
    reason : str
        Why the job waits or ended: a word, or a sentence with blanks and commas.
    submit_time, start_time, end_time : int, optional
        Seconds since the epoch. Before the job has started or ended: Slurm's estimate, if any.
    time_limit : int, optional
        Seconds. ``None`` is unlimited or unknown.
    nodes : str
        Slurm's folded node list (``dgx[01-04]``).
    exit_code, signal : int, optional
        Of the batch script of a finished job (Slurm writes them ``exit:signal``).
    restarts : int, optional
        Number of requeues.
    stdout, stderr : str, optional
        Filename pattern of a batch job's file, relative to ``work_dir``; empty: it has none.
    depends : str
        Dependencies not yet satisfied.
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


def merge_detail(record: JobRecord, before: JobRecord) -> JobRecord:
    """Keep the fields that the poller does not request."""
    kept = {name: getattr(before, name) for name in ("name", "stdout", "stderr", "work_dir", "command")}
    missing = {name: value for name, value in kept.items() if getattr(record, name) is None}
    return replace(record, user=record.user or before.user, **missing)


def is_refused(record: JobRecord) -> bool:
    """Return whether sbatch, salloc or srun refused a job: slurmctld and accounting keep such a job as a failed one.

    An accepted job that fails has a node, or has waited before.
    """
    if record.state.name != "FAILED" or record.nodes or record.reason not in _REFUSAL_REASONS:
        return False
    if record.submit_time is None or record.end_time is None or record.end_time > record.submit_time + 1:
        return False
    return (record.exit_code, record.signal or 0) in _REFUSAL_EXITS


def representative(records: list[JobRecord]) -> JobRecord | None:
    """Return the record that represents a job: running before pending before the worst end."""
    return min(records, key=lambda record: state_rank(record.state, is_finished=record.state.is_finished), default=None)


def state_rank(state: JobState, *, is_finished: bool) -> int:
    """Return the rank of a state among several: running, before waiting, before the worst end."""
    if state.is_running:
        return 0
    if not is_finished:
        return 1
    return 3 if state.name == "COMPLETED" else 2
