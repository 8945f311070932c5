"""Lookup of jobs, as services see it that are not to know the whole cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from jupyter_slurm.services.jobs.job import TrackedJob

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["JobLookup"]


class JobLookup(Protocol):
    """The jobs of one cluster: :class:`jupyter_slurm.services.clusters.job_catalog.JobCatalog`."""

    async def find(self, reference: str) -> TrackedJob:
        """Return a job by key or Slurm id; raises JobNotFound."""

    async def find_task(self, reference: str) -> TrackedJob:
        """Return a job, or one task of an array (``12_3``) in the form of a job of its own."""

    def select_task(self, reference: str, entry: TrackedJob) -> TrackedJob:
        """Return what a reference means of a job that it has found: one task, or all of it."""

    async def describe(self, reference: str) -> api.Job:
        """Return a job, or one task of an array, as the API tells it."""
