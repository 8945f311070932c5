"""Targets of terminals: a running job by its ID, key or name, and the step that runs the shell in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from jupyter_slurm.domain.queries.cluster import expand_hosts
from jupyter_slurm.errors import JobError, JobNotFound, ParseError, UsageError
from jupyter_slurm.services.clusters.job_catalog import JobCatalog
from jupyter_slurm.services.jobdir.job_directory import is_key
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.lookup import check_not_suspended
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.slurm.client import printable

__all__ = ["ClusterJobs", "Target", "find_target", "node_of"]

_NUMBER: Final = re.compile(r"[0-9]+(?:[_+.][0-9]+)*", re.ASCII)
_JOBS_HINT = "`jupyter slurm jobs` shows your jobs, `jupyter slurm sessions` your sessions."
_LISTED = 5


class ClusterJobs(Protocol):
    """Jobs of a cluster: :class:`jupyter_slurm.services.clusters.cluster.Cluster`."""

    @property
    def jobs(self) -> JobCatalog:
        """Return the catalog of the user's jobs."""

    @property
    def tracker(self) -> Tracker:
        """Return the jobs that are known."""


@dataclass(frozen=True)
class Target:
    """A running job, or a kernel in one.

    Attributes
    ----------
    job : str
        ID of the job, as shown to the user.
    name : str
        Name of the job, session, kernel or allocation; may be empty.
    node : str
        Node of the shell; empty: not known.
    step : list of str
        Command line of srun, without the program.
    container : str
        Job directory that describes the container of the job; empty: it has none.
    """

    job: str
    name: str
    node: str
    step: Sequence[str]
    container: str


async def find_target(cluster: ClusterJobs, reference: str) -> Target:
    """Return the running job that a job ID, a key or a name means.

    Raises
    ------
    JobNotFound
        There is no such job.
    UsageError
        Several jobs have the name, or the job is an array.
    JobError
        The job is not running, or suspended.
    """
    if is_key(reference) or _NUMBER.fullmatch(reference):
        entry = await cluster.jobs.find_task(reference)
    else:
        entry = await _find_named(cluster, reference)
    allocation = await _allocation(cluster, entry)
    if not _are_running(entry, allocation) or not _first_node(entry):
        await cluster.jobs.list_jobs(active=True)  # it may have started since the last look at the queue
    if not _are_running(entry, allocation) or allocation.id is None:
        raise JobError(
            f"Job {reference} is not running. It has no terminal.",
            hint="Wait for its start: `jupyter slurm jobs` shows its state.",
        )
    if allocation.is_array and allocation.id.task is None:
        raise UsageError(
            f"Job {allocation.id} is an array. A terminal is inside one of its tasks.",
            hint=f"Name a task: {allocation.id}_INDEX.",
        )
    await check_not_suspended(cluster.tracker, allocation.id, "no terminal can start in it")
    number = (allocation.latest.raw_id if allocation.latest else None) or allocation.id
    step, node = ["srun", f"--jobid={number}", "--overlap", "--nodes=1", "--ntasks=1"], _first_node(entry)
    if node and entry is not allocation:
        step.append(f"--nodelist={node}")
    names = _names(entry) or _names(allocation) or _slurm_names(allocation)
    is_contained = entry.record is not None and entry.record.environment is not None and entry.record.environment.image
    container = entry.folder.path if is_contained and entry.folder is not None else ""
    return Target(str(allocation.id), next(iter(names), ""), node, [*step, "--pty"], container)


def node_of(cluster: ClusterJobs, job: str) -> str | None:
    """Return the node of a terminal that was started before the nodes of its job were known; None: still unknown."""
    entry = cluster.tracker.find(job)
    return None if entry is None else _first_node(cluster.jobs.select_task(job, entry)) or None


def _are_running(*entries: TrackedJob) -> bool:
    return all(one.state.is_running and not one.is_finished for one in entries)


async def _find_named(cluster: ClusterJobs, name: str) -> TrackedJob:
    """Return the only active job of that name; running ones and names of jupyter_slurm come first."""
    found = _named(cluster.tracker, name)
    if not found:
        await cluster.jobs.list_jobs(active=True)  # jobs that started since the last look at the queue
        found = _named(cluster.tracker, name)
    if not found:
        raise JobNotFound(f"No job, session, kernel or allocation has the name {printable(name)}.", hint=_JOBS_HINT)
    if len(found) > 1:
        listed = ", ".join(_described(one) for one in found[:_LISTED])
        more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
        raise UsageError(f"Several jobs have the name {printable(name)}: {listed}{more}.", hint="Name one by its ID.")
    return found[0]


def _named(tracker: Tracker, name: str) -> list[TrackedJob]:
    active = [one for one in tracker.active() if one.kind == "kernel" or not one.is_step]
    found = [one for one in active if name in _names(one)]
    found = found or [one for one in active if name in _slurm_names(one)]
    found = [one for one in found if one.state.is_running] or found
    hosts = {one.allocation for one in found if one.kind == "kernel"}  # the allocation that a kernel asked for
    return [one for one in tracker.wholes(found) if one.key is None or one.key not in hosts]


def _names(entry: TrackedJob) -> list[str]:
    """Return the names that jupyter_slurm knows a job by, the best one first."""
    if (record := entry.record) is None:
        return []
    kernel = (record.kernel.display_name, record.kernel.name) if record.kernel is not None else ()
    return [name for name in (record.label, *kernel) if name]


def _slurm_names(entry: TrackedJob) -> list[str]:
    return [name for known in (entry.record, entry.latest) if known is not None and (name := known.name)]


def _described(entry: TrackedJob) -> str:
    number = entry.number or entry.id or entry.key
    kind = entry.kind if entry.kind in ("session", "allocation", "kernel") else "job"
    return f"{number} ({kind}, {entry.state.name})"


async def _allocation(cluster: ClusterJobs, entry: TrackedJob) -> TrackedJob:
    """Return the allocation of a step; of any other job, the job itself."""
    return entry if entry.allocation is None else await cluster.jobs.find(entry.allocation, is_shown=False)


def _first_node(entry: TrackedJob) -> str:
    """Return the node of a step, or the first node of a job, where srun starts a single task."""
    nodes = entry.reported_nodes or (entry.latest.nodes if entry.latest else None) or ""
    try:
        return next(iter(expand_hosts(nodes)), "")
    except ParseError:
        return ""
