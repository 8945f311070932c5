"""Protocols of the parts of a cluster that sessions need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from jupyter_slurm.services.allocations.joined_jobs import JoinedJobs
from jupyter_slurm.services.allocations.steps import Steps
from jupyter_slurm.services.jobs.lookup import JobLookup
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.slurm.client import SlurmClient
from jupyter_slurm.services.slurm.location import ClusterLocation
from jupyter_slurm.services.slurm.poller import Poller

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.services.clusters.cluster import ClusterConnection
    from jupyter_slurm.services.submission.request import SubmissionRequest

__all__ = ["JobCancellation", "SessionCluster"]


class JobCancellation(Protocol):
    """Cancellation of jobs: :class:`jupyter_slurm.services.clusters.job_actions.JobActions`."""

    @property
    def joined(self) -> JoinedJobs:
        """Return the service that joins running jobs."""

    async def cancel(self, reference: str) -> api.Job:
        """Cancel a job; return it in the form of the API."""


class SessionCluster(Protocol):
    """Cluster of a session: :class:`jupyter_slurm.services.clusters.cluster.Cluster`."""

    @property
    def id(self) -> str:
        """Return the ID of the cluster in the API."""

    @property
    def location(self) -> ClusterLocation:
        """Return the location of the cluster."""

    @property
    def client(self) -> SlurmClient:
        """Return the client of Slurm, with the transport to the cluster."""

    @property
    def tracker(self) -> Tracker:
        """Return the tracker of the jobs."""

    @property
    def poller(self) -> Poller:
        """Return the poller of the queue."""

    @property
    def jobs(self) -> JobLookup:
        """Return the lookup of jobs by key and ID."""

    @property
    def actions(self) -> JobCancellation:
        """Return the service that ends jobs."""

    @property
    def steps(self) -> Steps:
        """Return the service of steps."""

    def describe_connection(self) -> ClusterConnection:
        """Return the connection fields of the API."""

    async def submit(self, asked: SubmissionRequest) -> api.Job | api.Preview:
        """Submit a job, or show the submission."""
