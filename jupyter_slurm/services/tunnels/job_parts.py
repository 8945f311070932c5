"""Parts of jobs that a tunnel cannot lead to: a whole array, and a component of a heterogeneous job."""

from __future__ import annotations

from jupyter_slurm.errors import UsageError
from jupyter_slurm.services.jobs.job import TrackedJob

__all__ = ["check_part"]


def check_part(reference: str, entry: TrackedJob) -> None:
    """Refuse a reference that does not name one job or one task.

    Raises
    ------
    UsageError
        The reference names a whole array, or a component of a heterogeneous job.
    """
    if "+" in reference:
        raise UsageError(
            f"{reference} is a component of a heterogeneous job.",
            hint="Name the whole job, and a node of the component: `jupyter slurm tunnel JOB PORT --node NODE`.",
        )
    if entry.is_array and (entry.id is None or entry.id.task is None):
        raise UsageError(f"Job {reference} is an array.", hint=f"Give the ID of a task, for example {entry.id}_0.")
