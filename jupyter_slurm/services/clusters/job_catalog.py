"""The jobs of a user on one cluster: listed, looked up by key or Slurm id, and the tasks of arrays."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.errors import CommandError, JobNotFound, SlurmError
from jupyter_slurm.services.allocations.steps import Steps
from jupyter_slurm.services.clusters.polled_queue import PolledQueue
from jupyter_slurm.services.jobs import array_tasks
from jupyter_slurm.services.jobs.array_parts import check_task, task_of
from jupyter_slurm.services.jobs.directory_scan import JobDirectoryScan
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.job_views import SlurmView
from jupyter_slurm.services.jobs.serialize import job_dict
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.slurm.client import SlurmClient, printable
from jupyter_slurm.services.slurm.poller import Poller

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["JobCatalog", "JobSources"]

_GLANCE_S = 1.0
_BATCH_JOBS = 500
_LIST_S = 15.0  # a controller that is down is given up after nine seconds, a configuration that is gone after sixty


@dataclass(frozen=True)
class JobSources:
    """Where what is known of the jobs of a cluster comes from: Slurm, the job directories, the poller of the queue."""

    client: SlurmClient
    tracker: Tracker
    scan: JobDirectoryScan
    queue: PolledQueue
    poller: Poller


class JobCatalog:
    """All jobs of one user on one cluster.

    Parameters
    ----------
    sources : JobSources
        Where what is known of them comes from.
    steps : Steps
        Know how much memory the process of a step has.
    user : str
        Whose jobs they are.
    """

    def __init__(self, sources: JobSources, steps: Steps, user: str) -> None:
        self._client, self._tracker, self._scan = sources.client, sources.tracker, sources.scan
        self._queue, self._poller = sources.queue, sources.poller
        self._steps, self._user = steps, user
        self._glancing: asyncio.Task[None] | None = None

    async def stop(self) -> None:
        """Break off a look at the queue."""
        if self._glancing is not None:
            self._glancing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._glancing

    # -- for the API

    async def list_jobs(self, *, active: bool) -> list[api.Job]:
        """Return the jobs of this user, newest first; as fresh as the shortest interval and Slurm allow."""
        await self._glance(_LIST_S)
        if self._poller.error is None:
            with contextlib.suppress(SlurmError):
                await self._queue.learn_names()
        entries = self._tracker.wholes(self._tracker.active() if active else self._tracker.everybody())
        newest_first = sorted((e for e in entries if not e.is_step), key=lambda e: e.submit_time or 0.0, reverse=True)
        found = []
        for place, entry in enumerate(newest_first):
            if place % _BATCH_JOBS == _BATCH_JOBS - 1:
                await asyncio.sleep(0)  # fifty thousand take seconds, and others wait for answers, too
            if (told := self._tracker.told(entry)) is not None:
                found.append(told)
        return found

    async def describe(self, reference: str) -> api.Job:
        """Return one job, or one task of an array (``12_3``)."""
        entry = await self.find(reference)
        if entry.is_finished and not entry.is_step:  # nobody looks at the queue for its sake; it may be requeued
            await self._glance()
        return await self._steps.with_memory(entry, job_dict(self.select_task(reference, entry)))

    async def tasks(self, reference: str, *, parameters: bool) -> api.Tasks:
        """Return the tasks of an array; see :func:`jupyter_slurm.services.jobs.array_tasks.told`."""
        entry = await self.find(reference)
        for part in self._tracker.parts(entry):
            await array_tasks.load(self._client.transport, part)
        return await array_tasks.told(self._client.transport, self._tracker.whole(entry), parameters=parameters)

    async def task_values(self, reference: str, first: int) -> api.Values:
        """Return what tasks of an array left; see :func:`jupyter_slurm.services.jobs.array_tasks.values`."""
        parts = self._tracker.parts(await self.find(reference))
        return await array_tasks.values(self._client.transport, parts, first)

    # -- for other services

    async def find(self, reference: str, *, is_shown: bool = True) -> TrackedJob:
        """Return a job by key or Slurm id; a job that is not known yet is asked for.

        Parameters
        ----------
        is_shown : bool
            What the queue does not tell of it is wanted, too: where something is done with many jobs, that would be a
            question for each.

        Raises
        ------
        JobNotFound
            This user has no such job.
        """
        entry = self._tracker.find(reference) or await self._scan.get(reference)
        if entry is not None:
            check_task(reference, entry)
            if is_shown:
                await self._describe_once(entry)
            if task_of(reference, entry) is not None:
                await array_tasks.load(self._client.transport, entry)
            return entry
        try:
            job = JobId(JobId.parse(reference).job)
        except SlurmError:
            raise JobNotFound(
                f"there is no job {printable(reference)}", hint="`jupyter_slurm.jobs()` lists yours."
            ) from None
        records = await self._client.look_up(job) or await self._remembered(job)
        mine = [record for record in records if not record.user or record.user == self._user]
        if not mine:
            raise JobNotFound(
                f"you have no job {job}" + (" (it belongs to somebody else)" if records else ""),
                hint="`%squeue --me` shows the queue, `jupyter_slurm.jobs()` also what is over.",
            )
        entry = await self._from_directory(mine)
        if entry is None:
            entry = TrackedJob(self._tracker.name, id=job, state=mine[0].state, slurm=SlurmView(described=True))
            entry.see(mine, self._tracker.clock())
            self._tracker.add(entry)
        self._poller.wake()
        return entry

    async def find_task(self, reference: str) -> TrackedJob:
        """Return a job, or one task of an array (``12_3``) in the form of a job of its own; see :meth:`find`."""
        return self.select_task(reference, await self.find(reference))

    def select_task(self, reference: str, entry: TrackedJob) -> TrackedJob:
        """Return what a reference means of a job that it has found: one task, or all of it, its parts as one."""
        task = task_of(reference, entry)
        return self._tracker.whole(entry) if task is None else entry.of_task(task)

    async def _from_directory(self, records: list[JobRecord]) -> TrackedJob | None:
        """Return the job if its script lies in a job directory: another agent of this user has submitted it."""
        below = f"{self._tracker.folder.path}/"
        keys = [command[len(below) :].split("/")[0] for r in records if (command := r.command or "").startswith(below)]
        return await self._scan.get(keys[0]) if keys else None

    async def _describe_once(self, entry: TrackedJob) -> None:
        """Learn name and output of a job that the poller found: not its business, but that of who asks for it."""
        if entry.folder is not None or entry.id is None or entry.slurm.described:
            return
        with contextlib.suppress(SlurmError):
            records = await self._client.look_up(entry.id)
            entry.slurm.described = True
            if records and entry.is_shown_by(records):
                entry.see(records, self._tracker.clock())

    async def _remembered(self, job: JobId) -> list[JobRecord]:
        try:
            return await self._client.history([job], 0)
        except CommandError:
            return []

    # -- the queue, looked at for the sake of one request

    async def _glance(self, patience: float = _GLANCE_S) -> None:
        """Look at the queue if that is due; a controller that is slow is not waited for longer."""
        if self._glancing is None:
            self._glancing = asyncio.create_task(self._look_once(), name="glance")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await asyncio.shield(self._glancing)

    async def _look_once(self) -> None:
        try:
            with contextlib.suppress(SlurmError):
                await self._poller.fresh()
        finally:
            self._glancing = None
