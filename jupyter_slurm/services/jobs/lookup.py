"""Lookup of jobs, and a check of their state, for services that do not depend on the whole cluster."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.errors import JobError, SlurmError
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.tracker import Tracker

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["JobLookup", "check_not_suspended"]

_SUSPENDED = "SUSPENDED"  # Slurm lets a step in such a job wait without a message


class JobLookup(Protocol):
    """Jobs of one cluster: :class:`jupyter_slurm.services.clusters.job_catalog.JobCatalog`."""

    async def find(self, reference: str) -> TrackedJob:
        """Return a job by key or Slurm ID; raise JobNotFound."""

    async def find_task(self, reference: str) -> TrackedJob:
        """Return a job, or one task of an array (``12_3``) as a job of its own."""

    def select_task(self, reference: str, entry: TrackedJob) -> TrackedJob:
        """Return the part of a job that a reference means: one task, or the whole job."""

    async def describe(self, reference: str) -> api.Job:
        """Return a job, or one task of an array, in the form of the API."""


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
