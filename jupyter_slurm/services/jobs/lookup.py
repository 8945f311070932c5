"""Lookup of jobs for services that do not depend on the whole cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from jupyter_slurm.services.jobs.job import TrackedJob

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["JobLookup"]


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
