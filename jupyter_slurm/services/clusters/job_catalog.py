"""Catalog of a user's jobs on one cluster: list, lookup by key or Slurm ID, and tasks of arrays."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.errors import CommandError, ControllerError, JobNotFound, SlurmError, UsageError
from jupyter_slurm.services.allocations.steps import Steps
from jupyter_slurm.services.clusters.job_checks import JobChecks
from jupyter_slurm.services.clusters.job_history import JobHistory
from jupyter_slurm.services.clusters.polled_queue import PolledQueue
from jupyter_slurm.services.clusters.waiting_jobs import WaitingJobs
from jupyter_slurm.services.inventory.accounting_usage import TrackedRun
from jupyter_slurm.services.jobs import array_tasks
from jupyter_slurm.services.jobs.array_parts import check_task, task_index
from jupyter_slurm.services.jobs.directory_scan import JobDirectoryScan
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.job_views import SlurmView
from jupyter_slurm.services.jobs.serialize import is_listed, job_dict
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.slurm.accounting import has_no_accounting, why_no_answer
from jupyter_slurm.services.slurm.client import SlurmClient, printable
from jupyter_slurm.services.slurm.poller import Poller

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["JobCatalog", "JobSources", "further_tasks", "newest_first", "tracked_runs"]

_GLANCE_S = 1.0
_LIST_HINT = "`%squeue --me` shows your jobs in the queue, `jupyter_slurm.jobs()` also those that have ended."
_BATCH_JOBS = 500
_HISTORY_S = 3.0  # seconds that a list waits for accounting; later answers are published
_LIST_S = 15.0  # Slurm gives up a controller that is down after 9 s, and a missing configuration after 60 s


@dataclass(frozen=True)
class JobSources:
    """Sources of job data of a cluster: Slurm, the job directories, the poller, checks of one job, and the history."""

    client: SlurmClient
    tracker: Tracker
    scan: JobDirectoryScan
    queue: PolledQueue
    poller: Poller
    checks: JobChecks
    history: JobHistory


def further_tasks(tracker: Tracker) -> int:
    """Return how many array tasks run beyond one for each array: Slurm counts each as a job."""
    running = [entry.counts().get("RUNNING", 0) for entry in tracker.active()]
    return sum(count - 1 for count in running if count > 1)


def newest_first(entries: Iterable[TrackedJob]) -> list[TrackedJob]:
    """Return jobs in the order of their submission, the last one first. Slurm's times are whole seconds."""
    return sorted(
        entries, key=lambda e: (int(e.submit_time or 0), e.id.job if e.id is not None else math.inf), reverse=True
    )


def tracked_runs(tracker: Tracker, start: float, end: float) -> list[TrackedRun]:
    """Return the known jobs that ran within a period; steps are part of their allocation."""
    now, offset = tracker.clock(), tracker.clock_offset
    return [
        TrackedRun(
            number=str(entry.id.job),
            account=(entry.latest.account if entry.latest else "") or "",
            seconds=min(entry.end_time or now, end) - max(entry.start_time, start),
            ended=None if entry.end_time is None else entry.end_time - offset,
        )
        for entry in tracker.all_entries()
        if entry.id is not None
        and not entry.is_step
        and entry.start_time is not None
        and max(entry.start_time, start) <= min(entry.end_time or now, end)
    ]


class JobCatalog:
    """All jobs of one user on one cluster.

    Parameters
    ----------
    sources : JobSources
        Sources of job data.
    steps : Steps
        Know the memory of a step's process.
    waiting : WaitingJobs
        Explain in numbers what a pending job waits for.
    user : str
        Owner of the jobs.
    """

    def __init__(self, sources: JobSources, steps: Steps, waiting: WaitingJobs, user: str) -> None:
        self._client, self._tracker, self._scan = sources.client, sources.tracker, sources.scan
        self._queue, self._poller, self._history = sources.queue, sources.poller, sources.history
        self.checks = sources.checks
        self._steps, self._waiting, self._user = steps, waiting, user
        self._glancing: asyncio.Task[None] | None = None
        sources.queue.after_poll += [waiting.refresh_followed, sources.checks.note_starts]

    async def stop(self) -> None:
        """Cancel running queries of the queue and of accounting."""
        await self._waiting.stop()
        await self._history.stop()
        if self._glancing is not None:
            self._glancing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._glancing

    # -- for the API

    async def list_jobs(self, *, active: bool, days: float | None = None) -> list[api.Job]:
        """Return the user's jobs, newest first, as recent as the shortest interval and Slurm allow.

        Parameters
        ----------
        active : bool
            Leave out finished jobs.
        days : float, optional
            Finished jobs of so many days instead of the usual period, if that is longer; 0: all that accounting has.

        Raises
        ------
        ControllerError, CommandError
            Accounting has no answer for the longer period.
        """
        self.checks.note_interest()
        await self._glance(_LIST_S)
        if self._poller.error is None:
            with contextlib.suppress(SlurmError):
                await self._queue.learn_files()
        if not active:
            await self._history.refresh(_HISTORY_S)
            if days is not None:
                await self._history.extend(days)
        entries = self._tracker.wholes(self._tracker.active() if active else self._tracker.all_entries())
        listed = (e for e in entries if is_listed(e) and self._history.is_listed(e, days))
        found = []
        for place, entry in enumerate(newest_first(listed)):
            if place % _BATCH_JOBS == _BATCH_JOBS - 1:
                await asyncio.sleep(0)  # 50,000 jobs take seconds, and other requests wait
            if (told := self._tracker.to_api(entry)) is not None:
                found.append(told)
        return found

    async def describe(self, reference: str) -> api.Job:
        """Return one job, or one task of an array (``12_3``)."""
        self.checks.note_interest()
        entry = await self.find(reference)
        # the poller does not watch finished jobs; this one may have been requeued
        if entry.is_finished and not entry.is_step:
            await self._glance()
        await self._waiting.explain(entry)
        return await self._steps.with_memory(entry, job_dict(self.select_task(reference, entry)))

    async def tasks(self, reference: str, *, parameters: bool) -> api.Tasks:
        """Return the tasks of an array; see :func:`jupyter_slurm.services.jobs.array_tasks.tasks_to_api`."""
        entry = await self.find(reference)
        for part in self._tracker.parts(entry):
            await array_tasks.load(self._client.transport, part)
        return await array_tasks.tasks_to_api(self._client.transport, self._tracker.whole(entry), parameters=parameters)

    async def task_values(self, reference: str, first: int) -> api.Values:
        """Return the values of the tasks of an array; see :func:`jupyter_slurm.services.jobs.array_tasks.values`."""
        parts = self._tracker.parts(await self.find(reference))
        return await array_tasks.values(self._client.transport, parts, first)

    # -- for other services

    def watched_count(self) -> int:
        """Return the number of active jobs whose end is lost if nobody looks at the queue, while it can be read."""
        return 0 if self._poller.error is not None else self._queue.watched_count()

    async def find(self, reference: str, *, is_shown: bool = True) -> TrackedJob:
        """Return a job by key or Slurm ID; ask Slurm for an unknown job.

        Parameters
        ----------
        is_shown : bool
            Whether details that the queue does not show are needed, too. For actions on many jobs this would be one
            request for each job.

        Raises
        ------
        JobNotFound
            The user has no such job.
        UsageError
            It is the second number that Slurm has for a task or a component.
        ControllerError, CommandError
            The job is not in the queue, and accounting gave no answer.
        """
        entry = self._tracker.find(reference) or await self._scan.get(reference)
        if entry is None:
            await self._history.recall(_HISTORY_S)
            entry = self._tracker.find(reference)
        if entry is not None:
            check_task(reference, entry)
            if is_shown:
                await self._describe_once(entry)
            if task_index(reference, entry) is not None:
                await array_tasks.load(self._client.transport, entry)
            return entry
        try:
            job = JobId(JobId.parse(reference).job)
        except SlurmError:
            raise JobNotFound(
                f"There is no job {printable(reference)}.", hint="List your jobs with `jupyter_slurm.jobs()`."
            ) from None
        if not self._client.named.is_ready() and await self._poller.poll_early() and self._tracker.find(reference):
            return await self.find(reference, is_shown=is_shown)  # one query of the queue for many named jobs
        records = await self._client.find_jobs(job) or await self._remembered(job)
        mine = [record for record in records if not record.user or record.user == self._user]
        if not mine:
            raise JobNotFound(
                f"You have no job {job}" + (", it belongs to another user." if records else "."),
                hint=_LIST_HINT,
            )
        if (own := mine[0].id).job != job.job:  # Slurm has a second number for it
            raise UsageError(f"Job {job} is {own}, which is a part of job {own.job}.", hint=f"Give the ID {own}.")
        entry = await self._from_directory(mine)
        if entry is None:
            entry = TrackedJob(self._tracker.name, id=job, state=mine[0].state, slurm=SlurmView(described=True))
            entry.update_from_slurm(mine, self._tracker.clock())
            self._tracker.add(entry)
        self._poller.wake()
        return entry

    async def find_task(self, reference: str) -> TrackedJob:
        """Return a job, or one task of an array (``12_3``) as a job of its own; see :meth:`find`."""
        return self.select_task(reference, await self.find(reference))

    def select_task(self, reference: str, entry: TrackedJob) -> TrackedJob:
        """Return the part of a job that a reference means: one task, or the whole job with its parts joined."""
        task = task_index(reference, entry)
        return self._tracker.whole(entry) if task is None else entry.task_view(task)

    async def _from_directory(self, records: list[JobRecord]) -> TrackedJob | None:
        """Return the job if its script lies in a job directory: another agent of the user submitted the job."""
        below = f"{self._tracker.folder.path}/"
        keys = [command[len(below) :].split("/")[0] for r in records if (command := r.command or "").startswith(below)]
        return await self._scan.get(keys[0]) if keys else None

    async def _describe_once(self, entry: TrackedJob) -> None:
        """Learn name and output of a job found by the poller, on the first request for them."""
        if entry.folder is not None or entry.id is None or entry.slurm.described:
            return
        if entry.is_finished and entry.id.job not in self._tracker.in_queue:
            return
        with contextlib.suppress(SlurmError):
            if not self._client.named.is_ready():
                await self._queue.learn_files()  # one query for all such jobs, instead of a wait for each
                if entry.latest is not None and entry.latest.work_dir is not None:
                    return
            records = await self._client.find_jobs(entry.id)
            entry.slurm.described = True
            if records and entry.is_described_by(records):
                entry.update_from_slurm(records, self._tracker.clock())

    async def _remembered(self, job: JobId) -> list[JobRecord]:
        """Ask accounting about a job that is not in the queue; without an answer, it is not known whether it exists."""
        try:
            return await self._client.accounting.history([job], 0, await self._client.version())
        except (CommandError, ControllerError) as error:
            if has_no_accounting(error):
                raise JobNotFound(
                    f"You have no job {job}. If it ended a while ago, it is not known any more: "
                    "this cluster keeps no accounting.",
                    hint=_LIST_HINT,
                ) from None
            raise type(error)(
                f"It is not known whether you have a job {job}: it is not in the queue, and {why_no_answer(error)}.",
                hint=_LIST_HINT,
            ) from None

    # -- query of the queue for one request

    async def _glance(self, patience: float = _GLANCE_S) -> None:
        """Query the queue if due; limit the wait for a slow controller."""
        if self._glancing is None:
            self._glancing = asyncio.create_task(self._look_once(), name="glance")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await asyncio.shield(self._glancing)

    async def _look_once(self) -> None:
        try:
            with contextlib.suppress(SlurmError):
                await self._poller.wait_fresh()
        finally:
            self._glancing = None
