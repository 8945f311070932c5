"""One cluster as the agent serves it: submissions, jobs, commands."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from jupyter_slurm.config import Settings
from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.errors import CommandError, JobNotFound, SlurmError, SubmissionUnknown
from jupyter_slurm.services.allocations.kernels import Kernels
from jupyter_slurm.services.allocations.leases import Leases
from jupyter_slurm.services.allocations.steps import Steps
from jupyter_slurm.services.clusters.completion import NameCompletion
from jupyter_slurm.services.clusters.job_actions import JobActions
from jupyter_slurm.services.environments.resolver import Environments
from jupyter_slurm.services.event_bus import EventBus
from jupyter_slurm.services.inventory.accounting_usage import UsageReports
from jupyter_slurm.services.inventory.all_jobs import AllJobs
from jupyter_slurm.services.inventory.facts import ClusterFacts
from jupyter_slurm.services.inventory.resources import ResourceInventory
from jupyter_slurm.services.jobdir.index import JobIndex
from jupyter_slurm.services.jobdir.job_directory import FORMAT, ClusterFolder
from jupyter_slurm.services.jobs import array_tasks
from jupyter_slurm.services.jobs.array_parts import check_task, task_of
from jupyter_slurm.services.jobs.directory_scan import JobDirectoryScan
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.job_views import SlurmView
from jupyter_slurm.services.jobs.runner_events import RunnerEvents
from jupyter_slurm.services.jobs.serialize import job_dict
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.results.reader import ResultReader
from jupyter_slurm.services.slurm.client import SlurmClient, cluster_name, printable
from jupyter_slurm.services.slurm.location import ClusterLocation
from jupyter_slurm.services.slurm.passthrough import pass_through
from jupyter_slurm.services.slurm.poller import Poller
from jupyter_slurm.services.staging.machine_seal import MachineSeal
from jupyter_slurm.services.staging.manager import Staging
from jupyter_slurm.services.submission.recovery import SubmissionRecovery
from jupyter_slurm.services.submission.resubmit import asked_again
from jupyter_slurm.services.submission.submitter import SubmissionServices, Submitter
from jupyter_slurm.transport.base import Transport

__all__ = ["Cluster"]

log = logging.getLogger(__name__)

_SIGNS_EVERY = 0.5
_SIGNS_SOON = 0.025  # on this machine, where somebody waits for a session that is about to be there
_SIGNS_UNWATCHED = 10
_GLANCE = 1.0
_AT_ONCE = 500  # jobs
_LISTED = 15.0  # a controller that is down is given up after nine seconds, a configuration that is gone after sixty


class Cluster:
    """One Slurm and this user's jobs on it.

    Parameters
    ----------
    where : ClusterLocation
        Its place.
    transport : Transport
        The way there.
    """

    def __init__(
        self,
        where: ClusterLocation,
        *,
        transport: Transport,
        settings: Settings,
        store: JobIndex,
        bus: EventBus,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.id, self.name, self.where = where.id, "", where
        self._settings, self._transport, self._clock = settings, transport, clock
        self.folder = ClusterFolder(where.folder)
        self.client = SlurmClient(transport, where, settings.command_timeout)
        self.tracker = Tracker(self.id, self.client, self.folder, store, bus, clock)
        self.watcher = Poller(
            self._look,
            needed=self._is_looked_for,
            waited_for=self._is_waited_for,
            shortest=where.poll_shortest,
            longest=max(where.poll_shortest, settings.poll_longest),
            told=lambda: bus.publish("cluster", self.as_dict()),
        )
        self.settler = SubmissionRecovery(self.tracker, self.client, self.watcher, settings.submit_timeout)
        self.shelf = JobDirectoryScan(
            self.tracker, lambda entry: (self.steps if entry.is_step else self.settler).resume(entry)
        )
        self.kernels = Kernels(self.client, self.tracker, Environments(where, transport, clock), where.home)
        self.steps = Steps(self.client, self.tracker, self.shelf, self.kernels, settings.submit_timeout)
        self.releases = Leases(self.tracker, self.cancel)
        known = (self.client, self.tracker, self.settler, self.releases, self.watcher)
        self.acts = JobActions(*known, find=functools.partial(self.entry, is_shown=False), cancel=self.cancel)
        self.signs = RunnerEvents(self.tracker, self.shelf, self.steps.learn, self.watcher.wake)
        self._facts = ClusterFacts(self.client, where.user, clock, where.advice)
        known_names = (where.environments, where.known)
        self.names = NameCompletion(self._facts, self.tracker, self.watcher, self._learn_names, *known_names)
        self.resources = ResourceInventory(
            self.client, self._facts, where.user, interval=where.poll_shortest, cost=where.cost, clock=clock
        )
        self.others = AllJobs(self.client, where.user, interval=where.poll_shortest, clock=clock)
        self.usage = UsageReports(self.client, where.user, cost=where.cost, clock=clock)
        self.staging = Staging(self.tracker, where, MachineSeal(settings.state_dir))
        pieces = (self.client, self.shelf, self.settler, self.tracker, self._facts, self.staging)
        self._intake = Submitter(self.about, where, settings, SubmissionServices(*pieces))
        self.reached: Callable[[], dict[str, Any]] = dict  # what is told beside: how one gets there
        self.reader = ResultReader(
            self.client, self.tracker, self.watcher.wake, lambda: self.reached(), find=self.entry, shown=self.task_of
        )
        self.tending: list[Callable[[], Awaitable[None]]] = [self.signs.read, self.steps.tend, self.releases.tend]
        self._bus = bus
        self._watching: asyncio.Task[None] | None = None
        self._glancing: asyncio.Task[None] | None = None

    # -- life

    async def start(self) -> None:
        """Know again what was known, and begin to watch."""
        await self.shelf.refresh()
        self.staging.resume()
        self.watcher.start()
        self._watching = asyncio.create_task(self._watch_signs(), name="signs")
        if self.tracker.active():
            self.watcher.wake()

    async def stop(self) -> None:
        """End the watching; jobs and executions of sbatch go on."""
        asking = (self.staging, self._intake, self.names, self.resources, self.others, self._facts)
        for part in (*asking, self.settler, self.steps, self.watcher, self.reader, self.tracker):
            await part.stop()
        for task in (self._watching, self._glancing):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def identify(self) -> None:
        """Learn the cluster's own name; while it does not answer, the id stands for it."""
        if self.name:
            return
        try:
            self.name = cluster_name(await self.client.configuration(), "")
        except SlurmError as error:
            log.info("cluster %s has no name yet: %s", self.id, error.message)

    def about(self) -> dict[str, Any]:
        """Return what stands in cluster.json: how the cluster is found again."""
        where = self.where
        return {"format": FORMAT, "id": self.id, "name": self.name, "slurm_conf": where.slurm_conf, "path": where.path}

    def as_dict(self) -> dict[str, Any]:
        """Return the cluster as the API tells it."""
        active = [entry for entry in self.tracker.active() if not entry.is_step]
        return {
            "id": self.id,
            "name": self.name or self.id,
            "slurm_conf": self.where.slurm_conf,
            "folder": self.folder.path,
            "active": len({entry.part.of if entry.part else id(entry) for entry in active}),
            "poll": self.watcher.status(),
            "launch": {"idle": self._settings.session_idle, **self.where.launch},
            **self.reached(),
        }

    # -- submission

    async def submit(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Submit a job, or show what would be submitted.

        Raises
        ------
        UsageError, SubmitRefused
            Nothing was submitted.
        """
        told = await self._intake.submit(asked)
        self.releases.asked_for(asked)
        return told

    async def prepare(self) -> None:
        """Have the files of the runner there."""
        await self._intake.prepare()

    def runner(self, name: str) -> str:
        """Return where a file of the runner lies there."""
        return self._intake.runner_path(name)

    # -- jobs

    async def jobs(self, *, active: bool) -> list[dict[str, Any]]:
        """Return the jobs of this user, newest first; as fresh as the shortest interval and Slurm allow."""
        await self._glance(_LISTED)
        if self.watcher.error is None:
            with contextlib.suppress(SlurmError):
                await self._learn_names()
        entries = self.tracker.wholes(self.tracker.active() if active else self.tracker.everybody())
        newest_first = sorted((e for e in entries if not e.is_step), key=lambda e: e.submit_time or 0.0, reverse=True)
        found = []
        for place, entry in enumerate(newest_first):
            if place % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)  # fifty thousand take seconds, and others wait for answers, too
            if (told := self.tracker.told(entry)) is not None:
                found.append(told)
        return found

    async def _learn_names(self) -> None:
        """Ask once what the jobs are called that others than we submitted: the poll asks for no free text."""
        if self.tracker.nameless() and self.client.singles.is_ready():
            await self.client.singles.take()
            self.tracker.name_them(await self.client.names())

    async def job(self, reference: str) -> dict[str, Any]:
        """Return one job, or one task of an array (``12_3``)."""
        entry = await self.entry(reference)
        if entry.is_finished and not entry.is_step:  # nobody looks at the queue for its sake; it may be requeued
            await self._glance()
        return await self.steps.with_memory(entry, job_dict(self.task_of(reference, entry)))

    async def _glance(self, patience: float = _GLANCE) -> None:
        """Look at the queue if that is due; a controller that is slow is not waited for longer."""
        if self._glancing is None:
            self._glancing = asyncio.create_task(self._look_once(), name="glance")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await asyncio.shield(self._glancing)

    async def _look_once(self) -> None:
        try:
            with contextlib.suppress(SlurmError):
                await self.watcher.fresh()
        finally:
            self._glancing = None

    async def entry(self, reference: str, *, is_shown: bool = True) -> TrackedJob:
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
        entry = self.tracker.find(reference) or await self.shelf.get(reference)
        if entry is not None:
            check_task(reference, entry)
            if is_shown:
                await self._describe_once(entry)
            if task_of(reference, entry) is not None:
                await array_tasks.load(self._transport, entry)
            return entry
        try:
            job = JobId(JobId.parse(reference).job)
        except SlurmError:
            raise JobNotFound(
                f"there is no job {printable(reference)}", hint="`jupyter_slurm.jobs()` lists yours."
            ) from None
        records = await self.client.look_up(job) or await self._remembered(job)
        mine = [record for record in records if not record.user or record.user == self.where.user]
        if not mine:
            raise JobNotFound(
                f"you have no job {job}" + (" (it belongs to somebody else)" if records else ""),
                hint="`%squeue --me` shows the queue, `jupyter_slurm.jobs()` also what is over.",
            )
        entry = await self._made_beside_us(mine)
        if entry is None:
            entry = TrackedJob(self.id, id=job, state=mine[0].state, slurm=SlurmView(described=True))
            entry.see(mine, self._clock())
            self.tracker.add(entry)
        self.watcher.wake()
        return entry

    async def one(self, reference: str) -> TrackedJob:
        """Return a job, or one task of an array (``12_3``) in the form of a job of its own; see :meth:`entry`."""
        return self.task_of(reference, await self.entry(reference))

    def task_of(self, reference: str, entry: TrackedJob) -> TrackedJob:
        """Return what a reference means of an entry that it has found: one task, or all of it, its parts as one."""
        task = task_of(reference, entry)
        return self.tracker.whole(entry) if task is None else entry.of_task(task)

    async def _made_beside_us(self, records: list[JobRecord]) -> TrackedJob | None:
        """Return the job if its script lies in a job directory: another agent of this user has submitted it."""
        below = f"{self.folder.path}/"
        keys = [command[len(below) :].split("/")[0] for r in records if (command := r.command or "").startswith(below)]
        return await self.shelf.get(keys[0]) if keys else None

    async def _describe_once(self, entry: TrackedJob) -> None:
        """Learn name and output of a job that the poller found: not its business, but that of who asks for it."""
        if entry.folder is not None or entry.id is None or entry.slurm.described:
            return
        with contextlib.suppress(SlurmError):
            records = await self.client.look_up(entry.id)
            entry.slurm.described = True
            if records and entry.is_shown_by(records):
                entry.see(records, self._clock())

    async def _remembered(self, job: JobId) -> list[JobRecord]:
        try:
            return await self.client.history([job], 0)
        except CommandError:
            return []

    async def cancel(self, reference: str, signal: str | None = None) -> dict[str, Any]:
        """Cancel a job or send it a signal; what then became of it is asked for at once."""
        entry = await self.entry(reference, is_shown=False)
        if signal is None and entry.submission.upload is not None and entry.submission.upload.give_up():
            return job_dict(entry)
        if entry.is_step:
            return await self.steps.send(entry, signal, self.cancel)
        task = task_of(reference, entry)
        parts = self.tracker.parts(entry) if task is None else [entry]
        if task is None and signal is None:
            parts[0].submission.is_growing = False
        for part in parts:
            is_named = entry.part is None and reference != entry.key
            target = reference if is_named else str(part.of_task(task).id)
            await self._cancel_one(part, target, signal, task)
        return job_dict(self.task_of(reference, entry))

    async def _cancel_one(self, entry: TrackedJob, target: str, signal: str | None, task: int | None = None) -> None:
        if entry.id is None and not entry.is_finished:
            if signal:
                raise SubmissionUnknown(f"{entry.key} has no id yet: it can get no signal", hint="Wait a moment.")
            self.releases.note(entry, signal)
            self.settler.give_up(entry)
        elif not entry.is_finished:
            await self.settler.scancel(entry, target, signal)
            self.releases.note(entry, signal)
            if task is not None and signal is None:
                array_tasks.cancelled(entry, task, self._clock())
                self.tracker.tell(entry)
            # In a loop over many jobs the next look at the queue tells.
            if entry.id is not None and not entry.is_finished and self.client.singles.is_ready():
                await self.tracker.see(entry, await self.client.describe(entry.id))
            self.watcher.wake()

    async def resubmit(self, reference: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Submit a job of ours again, under a key of its own; see
        :func:`jupyter_slurm.services.submission.resubmit.asked_again`.
        """
        known = self.tracker.find(asked["key"]) or await self.shelf.get(asked["key"])
        if known is not None:  # the request came before, and its answer was lost
            return job_dict(known)
        return await self.submit(await asked_again(self, reference, asked))

    # -- commands

    async def command(self, argv: list[str], *, table: bool, context: Mapping[str, Any]) -> dict[str, Any]:
        """Run a Slurm command as a person typed it; with ``table``, as a table where the command has one."""
        answer = await pass_through(self.client, argv, table=table, context=context)
        if argv[0] == "scancel":
            self.watcher.wake()
        return answer

    async def options(self, command: str) -> dict[str, Any]:
        """Return the options of a command as this Slurm has them."""
        table = await self.client.options(command)
        version = await self.client.version()
        return {"command": command, "version": list(version or ()), "options": table.as_list()}

    def _is_looked_for(self) -> bool:
        """Whether jobs of ours go on, or somebody would want to see those that a terminal has submitted."""
        going = any(entry.id is not None for entry in self.tracker.active()) or bool(self.tracker.unverified())
        return going or self._bus.is_looked_at

    def _is_waited_for(self) -> bool:
        """Whether somebody is in front of a screen on which only the queue tells what becomes of a job."""
        if self.tracker.is_listened_to():
            return True
        return self._bus.is_looked_at and any(
            entry.state.is_pending or not entry.gives_signs for entry in self.tracker.active() if entry.id is not None
        )

    async def _look(self) -> bool:
        await self.shelf.refresh()
        changed = await self.tracker.look()
        if self._bus.is_looked_at:
            with contextlib.suppress(SlurmError):
                await self._learn_names()
        return changed

    def _is_eager(self) -> bool:
        return not self.where.is_far and any(
            entry.kind == "session" and entry.state.is_running and entry.session.server is None
            for entry in self.tracker.active()
        )

    async def _watch_signs(self) -> None:
        """Look at the events folder while runners of ours are at work: seldom when nobody watches."""
        for turn in itertools.count():
            await asyncio.sleep(_SIGNS_SOON if self._is_eager() else _SIGNS_EVERY)
            interested = self._bus.listeners > 0 or self.tracker.is_listened_to()
            if not interested and turn % _SIGNS_UNWATCHED:
                continue
            if self.signs.are_left or any(entry.gives_signs for entry in self.tracker.active()):
                try:
                    for tend in self.tending:
                        await tend()
                except Exception:  # whatever is wrong with one job, the others go on
                    log.exception("the events folder of %s could not be worked off", self.id)
