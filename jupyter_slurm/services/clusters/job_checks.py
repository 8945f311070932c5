"""Early looks at awaited jobs that may have changed: the queue is read too seldom to see a short job end at once."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from dataclasses import dataclass

from jupyter_slurm.errors import SlurmError, TransportError
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.slurm.client import SlurmClient
from jupyter_slurm.services.slurm.poller import Poller

__all__ = ["JobChecks"]

_LOOKS_S = (0.5, 1.0, 2.0, 4.0, 8.0)  # seconds after a submission, a start or a cancellation
_PAUSES_S = (0.5, *(b - a for a, b in itertools.pairwise(_LOOKS_S)))
_REST_S = 60.0  # seconds after which a job with many looks in vain gets another one
_RESERVED_QUERIES = 3.0  # queries about single jobs that are left to the poller; after a cancellation, one is enough
_SHARED_S, _SHARED_BY_JOB_S = 0.3, 0.02  # seconds within which looks are one query: at least, and for each job
_MAX_TASKS = 500  # of an array whose end markers are counted
_FRESH_S = 2.0
_INTEREST_S = 5.0  # seconds that a request for the state of jobs counts as waiting
_WAITS_FOR_LONG = frozenset({"BeginTime", "Dependency", "DependencyNeverSatisfied", "JobHeldAdmin", "JobHeldUser"})
_END_MARKER = re.compile(r"end\.[0-9]{1,10}\.json")


@dataclass(eq=False)
class _Watched:
    """A job that is likely to change, and the number of looks in vain since the last event."""

    entry: TrackedJob
    is_asked: bool = False
    is_running: bool = False
    news_at: float = 0.0
    looked_at: float = 0.0
    vain: int = 0
    task: asyncio.Task[None] | None = None


class JobChecks:
    """Look at a job soon after its submission, start, output or cancellation, and after the last task of an array.

    A look is a query about the one job (``SlurmClient.singles``: a few at once, then one in 20 s), or an early query of
    the queue, as the allowance of the poller permits. A job that goes on gets fewer and fewer of them.

    Parameters
    ----------
    client : SlurmClient
        Queries Slurm.
    tracker : Tracker
        Jobs of the cluster.
    poller : Poller
        Queries the queue.
    """

    def __init__(self, client: SlurmClient, tracker: Tracker, poller: Poller) -> None:
        self._client, self._tracker, self._poller = client, tracker, poller
        self._watched: dict[int, _Watched] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._counted: dict[str, float] = {}
        self._read_at = -_INTEREST_S
        tracker.on_end.append(self._forget)

    async def stop(self) -> None:
        """Stop."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def wake(self) -> None:
        """Request a query of the queue soon."""
        self._poller.wake()

    def note_interest(self) -> None:
        """Note that a front end reads the state of jobs: it waits, without following them."""
        self._read_at = asyncio.get_running_loop().time()

    def note_submission(self, entry: TrackedJob) -> None:
        """Look at a new job soon: it may start, and a short one end, before the queue is read again.

        A runner reports the start and the end of its job itself.
        """
        if not entry.reports_events:
            self._expect_change(entry)

    def note_starts(self) -> None:
        """Look soon at the followed jobs that the queue shows as running for the first time."""
        if self._tracker.is_listened_to():
            for entry in self._tracker.active():
                if entry.state.is_running and not entry.reports_events and self._tracker.follows(entry):
                    one = self._watched.get(id(entry))
                    if one is None or not one.is_running:
                        self._expect_change(entry)

    def note_news(self, entry: TrackedJob) -> None:
        """Look at a followed job soon, because it has written output or started: it may be over in a moment.

        A runner reports the end of its job itself.
        """
        if not (entry.reports_events or entry.is_array):
            self._expect_change(entry)

    def note_cancel(self, entry: TrackedJob) -> None:
        """Look at a job soon, because it was cancelled, or its runner has reported an end that Slurm has to explain."""
        self._poller.wake()
        self._expect_change(entry, is_asked=True)

    async def check_arrays(self) -> None:
        """Look at a followed array of Python cells soon if each of its tasks has written its end marker."""
        for entry in self._tracker.active():
            tasks = entry.all_tasks if entry.is_array and entry.reports_events and entry.id is not None else None
            if tasks is None or not self._tracker.follows(entry) or not 0 < tasks.count() <= _MAX_TASKS:
                continue
            if await self._count_ends(entry) >= tasks.count():
                self._expect_change(entry)

    async def _count_ends(self, entry: TrackedJob) -> int:
        """Return the number of end markers; 0 if the job directory has not changed since the last time."""
        if entry.folder is None:
            return 0
        transport = self._client.transport
        try:
            changed = (await transport.stat(entry.folder.path)).mtime
            if self._counted.get(entry.folder.key) == changed:
                return 0
            names = await transport.list_dir(entry.folder.path)
        except (FileNotFoundError, TransportError):
            return 0
        # A change within the same tick of the file system's clock would not be noticed.
        if self._tracker.clock() - changed > _FRESH_S:
            self._counted[entry.folder.key] = changed
        return sum(_END_MARKER.fullmatch(name) is not None for name in names)

    def _expect_change(self, entry: TrackedJob, *, is_asked: bool = False) -> None:
        if entry.id is None or entry.is_finished or entry.is_step:
            return
        now = asyncio.get_running_loop().time()
        one = self._watched.setdefault(id(entry), _Watched(entry))
        one.is_asked |= is_asked
        one.news_at = now
        if is_asked or self._has_started(one):
            one.vain = 0
        if one.task is not None:
            return
        if one.vain >= len(_PAUSES_S):
            if now - one.looked_at < _REST_S:
                return
            one.vain = len(_PAUSES_S) - 1
        one.task = asyncio.create_task(self._look_until_over(one), name="look")
        self._tasks.add(one.task)
        one.task.add_done_callback(self._tasks.discard)

    @staticmethod
    def _has_started(one: _Watched) -> bool:
        """Return whether a job runs that did not run at the last event."""
        was_running, one.is_running = one.is_running, one.entry.state.is_running
        return one.is_running and not was_running

    async def _look_until_over(self, one: _Watched) -> None:
        clock, entry = asyncio.get_running_loop().time, one.entry
        try:
            while one.vain < len(_PAUSES_S):
                if (left := one.news_at + _PAUSES_S[one.vain] - clock()) > 0:
                    await asyncio.sleep(left)
                    continue
                if entry.is_finished or entry.id is None or (one.vain and self._waits_for_long(entry)):
                    return
                one.news_at = one.looked_at = clock()
                one.vain += 1
                if not self._is_awaited(one):
                    continue
                with contextlib.suppress(SlurmError):
                    await self._look(one)
                if self._has_started(one):
                    one.vain = 0
        finally:
            one.task = None

    @staticmethod
    def _waits_for_long(entry: TrackedJob) -> bool:
        """Return whether the last answer of Slurm says that a job will not start soon."""
        return entry.state.is_pending and entry.latest is not None and entry.latest.reason in _WAITS_FOR_LONG

    def _is_awaited(self, one: _Watched) -> bool:
        """Return whether a user waits for a change of a job: no look is spent on other jobs."""
        is_shown = self._tracker.bus.is_watched or one.looked_at - self._read_at < _INTEREST_S
        return one.is_asked or is_shown or self._tracker.follows(one.entry)

    async def _look(self, one: _Watched) -> None:
        """Query Slurm about one job; or the queue, if several jobs may change, or if such queries are used up."""
        entry, reserved = one.entry, 1 if one.is_asked else _RESERVED_QUERIES
        is_single = self._client.singles.is_ready(1 + reserved)
        if (len(self._tasks) > 1 or not is_single) and await self._poller.poll_early(self._shared_s()):
            return
        if is_single and entry.id is not None and self._client.singles.is_ready(1 + reserved):
            await self._tracker.update_from_slurm(entry, await self._client.describe(entry.id))

    def _shared_s(self) -> float:
        """Return for how many seconds a query of the queue counts for all jobs: the longer, the more jobs there are."""
        return max(_SHARED_S, _SHARED_BY_JOB_S * len(self._tasks))

    def _forget(self, entry: TrackedJob) -> None:
        """Drop a finished job; its task ends by itself."""
        self._watched.pop(id(entry), None)
        if entry.folder is not None:
            self._counted.pop(entry.folder.key, None)
