"""One cluster in the agent: the services of one Slurm, with one life."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypedDict

from jupyter_slurm.domain.profile_facts import has_gpus
from jupyter_slurm.errors import SlurmError
from jupyter_slurm.services.allocations.kernels import Kernels
from jupyter_slurm.services.allocations.leases import Leases
from jupyter_slurm.services.allocations.steps import Steps
from jupyter_slurm.services.clusters.completion_names import NameCompletion
from jupyter_slurm.services.clusters.job_actions import JobActions
from jupyter_slurm.services.clusters.job_catalog import JobCatalog
from jupyter_slurm.services.clusters.runner_watch import RunnerWatch
from jupyter_slurm.services.environments.environment_offers import EnvironmentOffers
from jupyter_slurm.services.event_bus import EventBus
from jupyter_slurm.services.files.cluster_files import ClusterFiles
from jupyter_slurm.services.inventory.inventory import Inventory
from jupyter_slurm.services.jobdir.job_directory import FORMAT
from jupyter_slurm.services.jobs.directory_scan import JobDirectoryScan
from jupyter_slurm.services.jobs.serialize import job_dict
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.login_commands.runner import LoginCommands
from jupyter_slurm.services.results.reader import ResultReader
from jupyter_slurm.services.slurm.client import SlurmClient, cluster_name
from jupyter_slurm.services.slurm.location import ClusterFile, ClusterLocation
from jupyter_slurm.services.slurm.poller import Poller
from jupyter_slurm.services.staging.job_staging import Staging
from jupyter_slurm.services.submission.lost_answer_recovery import SubmissionRecovery
from jupyter_slurm.services.submission.submitter import Submitter

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.services.submission.request import SubmissionRequest

__all__ = ["Cluster", "ClusterConnection", "ClusterIdentity", "ConnectionState", "gpus_to_api"]

log = logging.getLogger(__name__)


class ClusterConnection(TypedDict, total=False):
    """Connection fields of a cluster in the API; empty for a Slurm of this machine."""

    profile: str | None
    python: str
    connection: api.Connection | None
    users: Sequence[api.User]


ConnectionState = Callable[[], ClusterConnection]


class ClusterGpus(TypedDict, total=False):
    """Field of a cluster in the API that says if it has GPUs; empty while that is unknown."""

    gpus: bool


def gpus_to_api(has_gpus: bool | None) -> ClusterGpus:
    """Return the field that says whether a cluster has GPUs."""
    return {} if has_gpus is None else {"gpus": has_gpus}


class ClusterIdentity:
    """Name of a cluster: the agent's, and Slurm's own as soon as Slurm has answered.

    Parameters
    ----------
    location : ClusterLocation
        Location of the cluster.
    client : SlurmClient
        Asks Slurm for the name.
    """

    def __init__(self, location: ClusterLocation, client: SlurmClient) -> None:
        self.id, self.name = location.id, ""
        self.has_gpus: bool | None = has_gpus(location.profile_names) or None
        self._location, self._client = location, client

    async def learn(self) -> None:
        """Learn the cluster's own name; before Slurm answers, the ID stands for the name."""
        if self.name:
            return
        try:
            configuration = await self._client.configuration()
            self.name = cluster_name(configuration, "")
            self.has_gpus = self.has_gpus or "gpu" in configuration.get("GresTypes", "").split(",")
        except SlurmError as error:
            log.info("cluster %s has no name yet: %s", self.id, error.message)

    def record(self) -> ClusterFile:
        """Return the content of cluster.json, from which the cluster is restored."""
        where = self._location
        return {"format": FORMAT, "id": self.id, "name": self.name, "slurm_conf": where.slurm_conf, "path": where.path}


@dataclass(eq=False, kw_only=True)
class Cluster:
    """Services of one Slurm, made by :func:`jupyter_slurm.services.clusters.composition.compose_cluster`.

    Attributes
    ----------
    jobs, actions, results, steps, kernels, completion, inventory, staging, login_commands, files
        Services of the API, one for each concept.
    describe_connection : callable
        Returns the connection fields.
    launch : dict
        Initial values of the form that launches a session.
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
    environment_offers: EnvironmentOffers
    leases: Leases
    jobs: JobCatalog
    actions: JobActions
    results: ResultReader
    steps: Steps
    kernels: Kernels
    completion: NameCompletion
    inventory: Inventory
    staging: Staging
    login_commands: LoginCommands
    files: ClusterFiles

    def __post_init__(self) -> None:
        self.poller.on_change.append(self.publish)
        self.submitter.notices.append(self.inventory.room.shortage_notice)

    @property
    def id(self) -> str:
        """Return the agent's ID of the cluster."""
        return self.identity.id

    # -- life

    async def start(self, tend_sessions: Callable[[Cluster], Awaitable[None]] | None = None) -> None:
        """Restore the known state and begin to watch; ``tend_sessions`` is an additional chore."""
        await self.scan.refresh()
        self.staging.resume()
        self.poller.start()
        chores: list[Callable[[], Awaitable[None]]] = [self.actions.joined.tend, self.steps.tend]
        chores += [partial(self.leases.tend, self.actions.cancel), self.jobs.checks.check_arrays]
        if tend_sessions is not None:
            chores.append(partial(tend_sessions, self))
        self.runner_watch.start(chores)
        if self.tracker.active():
            self.poller.wake()

    async def prepare(self) -> None:
        """Ask Slurm at once for what a first submission needs: the cluster's name, and the options of sbatch.

        Over SSH, the few shells stay free for requests of the user: a controller that hangs would hold them all.
        """
        if self.location.is_remote:
            await self.identity.learn()
        else:
            await asyncio.gather(self.identity.learn(), self._learn_options())

    async def _learn_options(self) -> None:
        with contextlib.suppress(SlurmError):  # who needs them asks again, and hears why there are none
            await self.client.options("sbatch")

    async def stop(self) -> None:
        """Stop watching; jobs and running sbatch commands continue."""
        asking = (self.actions, self.staging, self.submitter, self.environment_offers, self.completion, self.inventory)
        working = (self.recovery, self.steps, self.poller, self.jobs.checks, self.results, self.tracker)
        for part in (*asking, *working, self.runner_watch, self.jobs, self.files):
            await part.stop()

    def as_dict(self) -> api.Cluster:
        """Return the cluster in the form of the API."""
        active = [entry for entry in self.tracker.active() if not entry.is_step]
        return {
            "id": self.id,
            "name": self.identity.name or self.id,
            "slurm_conf": self.location.slurm_conf,
            "folder": self.tracker.folder.path,
            "home": self.location.home,
            "user": self.location.user,
            "active": len({entry.part.of if entry.part else id(entry) for entry in active}),
            "poll": self.poller.status(),
            "launch": {**self.launch, "gpus": 0} if self.identity.has_gpus is False else self.launch,
            **gpus_to_api(self.identity.has_gpus),
            **self.describe_connection(),
        }

    def publish(self) -> None:
        """Publish the present state of the cluster."""
        self.bus.publish("cluster", self.as_dict())

    # -- submission

    async def submit(self, requested: SubmissionRequest) -> api.Job | api.Preview:
        """Submit a job, or return the submission without executing it.

        Raises
        ------
        UsageError, SubmitRefused
            Nothing was submitted.
        """
        told = await self.submitter.submit(requested)
        self.leases.record_owner(requested)
        if not requested.get("dry_run"):
            self.inventory.room.refresh()  # for a warning at the next submission
            entry = self.tracker.find(requested["key"])
            self.environment_offers.consider(requested, entry)
            if entry is not None:
                self.jobs.checks.note_submission(entry)
        return told

    async def resubmit(self, reference: str, requested: api.ResubmitJobRequest) -> api.Job | api.Preview:
        """Submit a job of jupyter_slurm again, under a new key; see
        :func:`jupyter_slurm.services.submission.resubmission_request.repeat_request`.
        """
        known = self.tracker.find(requested["key"]) or await self.scan.get(requested["key"])
        if known is not None:  # the request was received before, and its answer was lost
            return job_dict(known)
        from jupyter_slurm.services.submission.resubmission_request import repeat_request

        return await self.submit(await repeat_request(self, reference, requested))

    async def keep_allocation(
        self, reference: str, asked: api.KeepAllocationRequest, process: int | None = None
    ) -> api.Job:
        """Keep an allocation without its kernel, or give it to a process; see :meth:`Leases.keep`."""
        entry = await self.jobs.find(reference, is_shown=False)
        self.leases.keep(entry, keep=asked["keep"], notebook=asked.get("notebook"), process=process)
        return job_dict(entry)

    async def foreign_submission(self, reference: str) -> api.ForeignSubmission:
        """Return what a job of a terminal was submitted with, as far as Slurm still knows it."""
        from jupyter_slurm.services.submission.foreign_submission import foreign_submission

        return await foreign_submission(self, reference)

    # -- commands

    async def run_command(self, argv: list[str], *, table: bool, context: api.Context) -> api.CommandResult:
        """Run a Slurm command as the user typed it; with ``table``, as a table if the command has one."""
        from jupyter_slurm.services.slurm.passthrough import pass_through

        answer = await pass_through(self.client, argv, table=table, context=context)
        if argv[0] == "scancel":
            self.poller.wake()
            for word in filter(str.isdecimal, argv[1:]):
                if (entry := self.tracker.find(word)) is not None:
                    self.jobs.checks.note_cancel(entry)
        return answer

    async def command_options(self, command: str) -> api.Options:
        """Return the options of a command in this version of Slurm."""
        table = await self.client.options(command)
        version = await self.client.version()
        return {"command": command, "version": list(version or ()), "options": table.as_list()}
