"""The parts of a cluster that sessions need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from jupyter_slurm.services.jobs.lookup import JobLookup
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.slurm.client import SlurmClient
from jupyter_slurm.services.slurm.location import ClusterLocation
from jupyter_slurm.services.slurm.poller import Poller

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["JobCancellation", "SessionCluster"]


class JobCancellation(Protocol):
    """What ends a job: :class:`jupyter_slurm.services.clusters.job_actions.JobActions`."""

    async def cancel(self, reference: str) -> api.Job:
        """Cancel a job; return it as the API tells it."""


class SessionCluster(Protocol):
    """The cluster of a session: :class:`jupyter_slurm.services.clusters.cluster.Cluster`."""

    @property
    def id(self) -> str:
        """Of the cluster, in the API."""

    @property
    def location(self) -> ClusterLocation:
        """Where the cluster is."""

    @property
    def client(self) -> SlurmClient:
        """Asks Slurm, and has the transport to the cluster."""

    @property
    def tracker(self) -> Tracker:
        """The jobs that are followed."""

    @property
    def poller(self) -> Poller:
        """Asks for the queue."""

    @property
    def jobs(self) -> JobLookup:
        """The jobs by key and number."""

    @property
    def actions(self) -> JobCancellation:
        """Ends jobs."""

    def describe_connection(self) -> Mapping[str, Any]:
        """Return how the cluster is reached, as the API tells it."""

    async def submit(self, asked: Mapping[str, Any]) -> api.Job | api.Preview:
        """Submit a job, or show what would be submitted."""
