"""Composition of a cluster from the services of one Slurm, each made once and given its dependencies."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from jupyter_slurm.config import Settings
from jupyter_slurm.services.allocations.joined_jobs import JoinedJobs
from jupyter_slurm.services.allocations.kernels import Kernels
from jupyter_slurm.services.allocations.leases import Leases
from jupyter_slurm.services.allocations.step_environment import StepEnvironments
from jupyter_slurm.services.allocations.steps import Steps
from jupyter_slurm.services.clusters.cluster import Cluster, ClusterIdentity, ConnectionState
from jupyter_slurm.services.clusters.completion_names import NameCompletion
from jupyter_slurm.services.clusters.job_actions import JobActions
from jupyter_slurm.services.clusters.job_catalog import JobCatalog, JobSources, further_tasks, tracked_runs
from jupyter_slurm.services.clusters.job_checks import JobChecks
from jupyter_slurm.services.clusters.job_history import JobHistory
from jupyter_slurm.services.clusters.polled_queue import PolledQueue
from jupyter_slurm.services.clusters.runner_watch import RunnerWatch
from jupyter_slurm.services.clusters.waiting_jobs import WaitingJobs
from jupyter_slurm.services.environments.environment_offers import EnvironmentOffers
from jupyter_slurm.services.environments.environment_search import EnvironmentSearch
from jupyter_slurm.services.environments.place_names import PlaceNames
from jupyter_slurm.services.environments.resolver import Environments
from jupyter_slurm.services.event_bus import EventBus
from jupyter_slurm.services.files.cluster_files import ClusterFiles
from jupyter_slurm.services.inventory.inventory import Inventory, TrackedJobs
from jupyter_slurm.services.jobdir.index import JobIndex
from jupyter_slurm.services.jobdir.job_directory import ClusterFolder
from jupyter_slurm.services.jobs.directory_scan import JobDirectoryScan
from jupyter_slurm.services.jobs.runner_events import RunnerEvents
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.login_commands.runner import LoginCommands
from jupyter_slurm.services.results.reader import ResultReader
from jupyter_slurm.services.slurm.client import SlurmClient
from jupyter_slurm.services.slurm.cluster_clock import ClockOffset
from jupyter_slurm.services.slurm.location import ClusterLocation
from jupyter_slurm.services.slurm.poller import Poller
from jupyter_slurm.services.staging.cluster_paths import expand_path
from jupyter_slurm.services.staging.job_staging import Staging
from jupyter_slurm.services.staging.local_path_seal import MachineSeal
from jupyter_slurm.services.submission.lost_answer_recovery import SubmissionRecovery
from jupyter_slurm.services.submission.submitter import SubmissionServices, Submitter
from jupyter_slurm.transport.base import Transport

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["AgentContext", "compose_cluster"]

_START_VALUES = {"gpus": 1, "cpus": 4, "memory": "16G", "time": "4:00:00"}
"""Start values of a form that launches a session, where the profile has no others."""


@dataclass(frozen=True)
class AgentContext:
    """Dependencies shared by all clusters of an agent.

    Attributes
    ----------
    settings : Settings
        User's settings.
    store : JobIndex
        Index of finished jobs.
    bus : EventBus
        Publishes changes.
    clock : callable
        Seconds since the epoch.
    """

    settings: Settings
    store: JobIndex
    bus: EventBus
    clock: Callable[[], float] = time.time


def compose_cluster(
    location: ClusterLocation, transport: Transport, agent: AgentContext, describe_connection: ConnectionState
) -> Cluster:
    """Make the services of one Slurm; no request and no task begins before :meth:`Cluster.start`.

    Parameters
    ----------
    location : ClusterLocation
        Location of the cluster.
    transport : Transport
        Runs commands on the cluster.
    agent : AgentContext
        Dependencies shared by all clusters.
    describe_connection : callable
        Returns the connection fields of the API.
    """
    settings, sources = agent.settings, _job_sources(location, transport, agent)
    client, tracker, scan, poller = sources.client, sources.tracker, sources.scan, sources.poller
    identity, staging = ClusterIdentity(location, client), Staging(tracker, location, MachineSeal(settings.state_dir))
    recovery = SubmissionRecovery(tracker, client, poller, settings.submit_timeout)
    kernels, steps = _steps(location, transport, sources, agent)
    inventory = _inventory(location, client, tracker, agent.clock)
    jobs = JobCatalog(sources, steps, WaitingJobs(client, tracker, inventory, location.user), location.user)
    search, leases = EnvironmentSearch(location, transport), Leases(tracker)
    parts = (client, scan, recovery, tracker, inventory.facts, staging)
    submitter = Submitter(identity.record, location, settings, SubmissionServices(*parts))
    joined = _joined_jobs(sources, jobs, steps, submitter, settings)
    return Cluster(
        identity=identity,
        location=location,
        describe_connection=describe_connection,
        launch=cast("api.ClusterLaunch", {"idle": settings.session_idle, **_START_VALUES, **location.launch}),
        bus=agent.bus,
        client=client,
        tracker=tracker,
        scan=scan,
        poller=poller,
        runner_watch=_runner_watch(location, sources, steps, agent),
        recovery=recovery,
        submitter=submitter,
        environment_offers=EnvironmentOffers(location, search, settings.state_dir, tracker.publish),
        leases=leases,
        jobs=jobs,
        actions=JobActions(sources, jobs, recovery, leases, steps, joined),
        results=ResultReader(client, tracker, sources.checks, describe_connection, jobs.find, jobs.select_task),
        steps=steps,
        kernels=kernels,
        completion=_completion(location, sources, inventory, search),
        inventory=inventory,
        staging=staging,
        login_commands=LoginCommands(transport, location),
        files=ClusterFiles(transport, location),
    )


def _steps(
    location: ClusterLocation, transport: Transport, sources: JobSources, agent: AgentContext
) -> tuple[Kernels, Steps]:
    """Make the services of kernels and steps."""
    client, tracker, timeout = sources.client, sources.tracker, agent.settings.submit_timeout
    environments = Environments(location, transport, agent.clock)
    kernels = Kernels(client, tracker, location.home)
    in_steps = StepEnvironments(client, environments)
    return kernels, Steps(client, tracker, sources.scan, kernels, in_steps, timeout)


def _runner_watch(location: ClusterLocation, sources: JobSources, steps: Steps, agent: AgentContext) -> RunnerWatch:
    """Make the watch of the events of runners."""
    events = RunnerEvents(sources.tracker, sources.scan, steps.apply_start, sources.checks.note_cancel)
    return RunnerWatch(sources.tracker, events, agent.bus, is_far=location.is_remote)


def _joined_jobs(
    sources: JobSources, jobs: JobCatalog, steps: Steps, submitter: Submitter, settings: Settings
) -> JoinedJobs:
    """Make the service that joins running jobs."""

    async def installed_path(name: str) -> str:
        await submitter.prepare()
        return submitter.runner_path(name)

    given = (partial(jobs.find, is_shown=False), installed_path, steps.apply_start)
    return JoinedJobs(sources.client, sources.tracker, *given, settings)


def _inventory(
    location: ClusterLocation, client: SlurmClient, tracker: Tracker, clock: Callable[[], float]
) -> Inventory:
    """Make the inventory."""
    expand = partial(expand_path, location=location, transport=client.transport)
    known = TrackedJobs(partial(tracked_runs, tracker), partial(further_tasks, tracker))
    return Inventory(client, location, known, clock, lambda: tracker.clock_offset, expand)


def _completion(
    location: ClusterLocation, sources: JobSources, inventory: Inventory, search: EnvironmentSearch
) -> NameCompletion:
    """Make the completion of names."""
    tracker = sources.tracker
    places = PlaceNames(location, sources.client.transport, search, tracker.all_entries)
    return NameCompletion(inventory.facts, tracker, sources.poller, location.profile_names, places)


def _job_sources(location: ClusterLocation, transport: Transport, agent: AgentContext) -> JobSources:
    """Make the sources of jobs: client, tracker, scan of the job directories, and poller of the queue."""
    client = SlurmClient(transport, location, agent.settings.command_timeout)
    tracker = Tracker(location.id, client, ClusterFolder(location.folder), agent.store, agent.bus, agent.clock)
    scan = JobDirectoryScan(tracker)
    history = JobHistory(client, tracker, agent.settings.history_days)
    clock = ClockOffset(transport, agent.clock) if location.is_remote else None
    queue = PolledQueue(client, tracker, scan, agent.bus, history, clock)
    longest = max(location.min_poll_interval, agent.settings.poll_longest)
    poller = Poller(queue, min_interval=location.min_poll_interval, max_interval=longest, memory=queue.memory)
    return JobSources(client, tracker, scan, queue, poller, JobChecks(client, tracker, poller), history)
