"""One cluster as the agent serves it: the services of one Slurm, with one life."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

from jupyter_slurm.errors import SlurmError
from jupyter_slurm.services.allocations.kernels import Kernels
from jupyter_slurm.services.allocations.leases import Leases
from jupyter_slurm.services.allocations.steps import Steps
from jupyter_slurm.services.clusters.completion import NameCompletion
from jupyter_slurm.services.clusters.job_actions import JobActions
from jupyter_slurm.services.clusters.job_catalog import JobCatalog
from jupyter_slurm.services.clusters.runner_watch import RunnerWatch
from jupyter_slurm.services.event_bus import EventBus
from jupyter_slurm.services.inventory.inventory import Inventory
from jupyter_slurm.services.jobdir.job_directory import FORMAT
from jupyter_slurm.services.jobs.directory_scan import JobDirectoryScan
from jupyter_slurm.services.jobs.serialize import job_dict
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.results.reader import ResultReader
from jupyter_slurm.services.slurm.client import SlurmClient, cluster_name
from jupyter_slurm.services.slurm.location import ClusterLocation
from jupyter_slurm.services.slurm.passthrough import pass_through
from jupyter_slurm.services.slurm.poller import Poller
from jupyter_slurm.services.staging.manager import Staging
from jupyter_slurm.services.submission.recovery import SubmissionRecovery
from jupyter_slurm.services.submission.resubmit import asked_again
from jupyter_slurm.services.submission.submitter import Submitter

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["Cluster", "ClusterConnection", "ClusterIdentity", "ConnectionState"]

log = logging.getLogger(__name__)


class ClusterConnection(TypedDict, total=False):
    """The fields of a cluster in the API that say how it is reached; none of a Slurm of this machine."""

    profile: str | None
    python: str
    connection: api.Connection | None
    users: Sequence[api.User]


ConnectionState = Callable[[], ClusterConnection]


class ClusterIdentity:
    """What a cluster is called: by the agent, and, as soon as Slurm has answered, by itself.

    Parameters
    ----------
    location : ClusterLocation
        Its place.
    client : SlurmClient
        Asks for the name.
    """

    def __init__(self, location: ClusterLocation, client: SlurmClient) -> None:
        self.id, self.name = location.id, ""
        self._location, self._client = location, client

    async def learn(self) -> None:
        """Learn the cluster's own name; while it does not answer, the id stands for it."""
        if self.name:
            return
        try:
            self.name = cluster_name(await self._client.configuration(), "")
        except SlurmError as error:
            log.info("cluster %s has no name yet: %s", self.id, error.message)

    def record(self) -> dict[str, Any]:
        """Return what stands in cluster.json: how the cluster is found again."""
        where = self._location
        return {"format": FORMAT, "id": self.id, "name": self.name, "slurm_conf": where.slurm_conf, "path": where.path}


@dataclass(eq=False, kw_only=True)
class Cluster:
    """The services of one Slurm; :func:`jupyter_slurm.services.clusters.composition.compose_cluster` makes one.

    Attributes
    ----------
    jobs, actions, results, steps, kernels, completion, inventory, staging
        What the API asks for, each by its concept.
    describe_connection : callable
        Returns how the cluster is reached.
    launch : dict
        What stands first in a form that launches a session.
    """

    identity: ClusterIdentity
    location: ClusterLocation
    describe_connection: ConnectionState
    launch: api.ClusterLaunch
    bus: EventBus
    client: SlurmClient
    tracker: Tracker
    scan: JobDirectoryScan
    poller: Poller
    runner_watch: RunnerWatch
    recovery: SubmissionRecovery
    submitter: Submitter
    leases: Leases
    jobs: JobCatalog
    actions: JobActions
    results: ResultReader
    steps: Steps
    kernels: Kernels
    completion: NameCompletion
    inventory: Inventory
    staging: Staging

    def __post_init__(self) -> None:
        self.poller.on_change.append(self.publish)

    @property
    def id(self) -> str:
        """What the agent calls it."""
        return self.identity.id

    # -- life

    async def start(self, tend_sessions: Callable[[Cluster], Awaitable[None]] | None = None) -> None:
        """Know again what was known, and begin to watch; ``tend_sessions`` is a chore that goes with it."""
        await self.scan.refresh()
        self.staging.resume()
        self.poller.start()
        chores: list[Callable[[], Awaitable[None]]] = [self.steps.tend, partial(self.leases.tend, self.actions.cancel)]
        if tend_sessions is not None:
            chores.append(partial(tend_sessions, self))
        self.runner_watch.start(chores)
        if self.tracker.active():
            self.poller.wake()

    async def stop(self) -> None:
        """End the watching; jobs and executions of sbatch go on."""
        asking = (self.staging, self.submitter, self.completion, self.inventory)
        working = (self.recovery, self.steps, self.poller, self.results, self.tracker)
        for part in (*asking, *working, self.runner_watch, self.jobs):
            await part.stop()

    def as_dict(self) -> api.Cluster:
        """Return the cluster as the API tells it."""
        active = [entry for entry in self.tracker.active() if not entry.is_step]
        return {
            "id": self.id,
            "name": self.identity.name or self.id,
            "slurm_conf": self.location.slurm_conf,
            "folder": self.tracker.folder.path,
            "active": len({entry.part.of if entry.part else id(entry) for entry in active}),
            "poll": self.poller.status(),
            "launch": self.launch,
            **self.describe_connection(),
        }

    def publish(self) -> None:
        """Send the cluster as it is now to all who listen."""
        self.bus.publish("cluster", self.as_dict())

    # -- submission

    async def submit(self, asked: Mapping[str, Any]) -> api.Job | api.Preview:
        """Submit a job, or show what would be submitted.

        Raises
        ------
        UsageError, SubmitRefused
            Nothing was submitted.
        """
        told = await self.submitter.submit(asked)
        self.leases.asked_for(asked)
        return told

    async def resubmit(self, reference: str, asked: Mapping[str, Any]) -> api.Job | api.Preview:
        """Submit a job of ours again, under a key of its own; see
        :func:`jupyter_slurm.services.submission.resubmit.asked_again`.
        """
        known = self.tracker.find(asked["key"]) or await self.scan.get(asked["key"])
        if known is not None:  # the request came before, and its answer was lost
            return job_dict(known)
        return await self.submit(await asked_again(self, reference, asked))

    # -- commands

    async def run_command(self, argv: list[str], *, table: bool, context: Mapping[str, Any]) -> api.CommandResult:
        """Run a Slurm command as a person typed it; with ``table``, as a table where the command has one."""
        answer = await pass_through(self.client, argv, table=table, context=context)
        if argv[0] == "scancel":
            self.poller.wake()
        return answer

    async def command_options(self, command: str) -> api.Options:
        """Return the options of a command as this Slurm has them."""
        table = await self.client.options(command)
        version = await self.client.version()
        return {"command": command, "version": list(version or ()), "options": table.as_list()}
