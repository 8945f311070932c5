"""Suspended jobs: Slurm lets a step in one wait without a message, so nothing is started in it."""

from __future__ import annotations

import contextlib

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.errors import JobError, SlurmError
from jupyter_slurm.services.jobs.tracker import Tracker

__all__ = ["check_not_suspended"]

_SUSPENDED = "SUSPENDED"


async def check_not_suspended(tracker: Tracker, job: JobId | None, consequence: str) -> None:
    """Refuse what cannot run in a suspended job; ask Slurm first, because the job may have been resumed.

    Raises
    ------
    JobError
        The job, or the named task of it, is suspended.
    """
    if job is None or not _is_suspended(tracker, job):
        return
    entry, client = tracker.find(str(job.job)), tracker.client
    ask = client.describe if client.singles.is_ready() else client.find_jobs
    if entry is not None and (client.singles.is_ready() or client.named.is_ready()):
        with contextlib.suppress(SlurmError):
            await tracker.update_from_slurm(entry, await ask(JobId(job.job)))
    if _is_suspended(tracker, job):
        number = JobId(job.job, job.task)
        raise JobError(
            f"Job {number} is suspended, so {consequence}.",
            hint=f"Let it continue with `jupyter slurm resume {number}`, then try again.",
            state=_SUSPENDED,
        )


def _is_suspended(tracker: Tracker, job: JobId) -> bool:
    entry = tracker.find(str(job.job))
    return entry is not None and entry.task_view(job.task).state.name == _SUSPENDED
