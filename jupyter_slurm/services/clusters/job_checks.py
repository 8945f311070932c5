"""Checks of one awaited job when its end is likely: the queue is read too seldom to see a short job end at once."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass

from jupyter_slurm.errors import SlurmError, TransportError
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.slurm.client import SlurmClient

__all__ = ["JobChecks"]

_FIRST_QUIET_S, _MAX_QUIET_S = 0.4, 5.0  # seconds without news before a look; doubled after a look in vain
_PAUSE_S = 60.0  # seconds after which a job with many checks in vain gets another one
_RESERVED_QUERIES = 3.0  # queries about single jobs that are left to the poller; after a cancellation, one is enough
_MAX_TASKS = 500  # of an array whose end markers are counted
_FRESH_S = 2.0
_END_MARKER = re.compile(r"end\.[0-9]{1,10}\.json")


@dataclass(eq=False)
class _Watched:
    """A job whose end is likely, and the quiet time before the next look."""

    entry: TrackedJob
    is_asked: bool = False
    news_at: float = 0.0
    looked_at: float = 0.0
    quiet: float = _FIRST_QUIET_S
    task: asyncio.Task[None] | None = None


class JobChecks:
    """Ask Slurm about one job after its output has stopped, after it was cancelled, and after its last task.

    The queries count as those about single jobs (``SlurmClient.singles``): a few at once, then one in 20 s. A job that
    goes on gets fewer and fewer of them.

    Parameters
    ----------
    client : SlurmClient
        Queries Slurm.
    tracker : Tracker
        Jobs of the cluster.
    wake : callable
        Requests a query of the queue soon.
    """

    def __init__(self, client: SlurmClient, tracker: Tracker, wake: Callable[[], None]) -> None:
        self._client, self._tracker, self._wake = client, tracker, wake
        self._watched: dict[int, _Watched] = {}
        self._counted: dict[str, float] = {}
        tracker.on_end.append(self._forget)

    async def stop(self) -> None:
        """Stop."""
        tasks = [one.task for one in self._watched.values() if one.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def wake(self) -> None:
        """Request a query of the queue soon."""
        self._wake()

    def note_news(self, entry: TrackedJob) -> None:
        """Look at a followed job soon, because it has written output or started: it may be over in a moment.

        A runner reports the end of its job itself.
        """
        if not (entry.reports_events or entry.is_array):
            self._expect_end(entry)

    def note_cancel(self, entry: TrackedJob) -> None:
        """Look at a job soon, because it was cancelled."""
        self._expect_end(entry, is_asked=True)

    async def check_arrays(self) -> None:
        """Look at a followed array of Python cells soon if each of its tasks has written its end marker."""
        for entry in self._tracker.active():
            tasks = entry.all_tasks if entry.is_array and entry.reports_events and entry.id is not None else None
            if tasks is None or not self._tracker.follows(entry) or not 0 < tasks.count() <= _MAX_TASKS:
                continue
            if await self._count_ends(entry) >= tasks.count():
                self._expect_end(entry)

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

    def _expect_end(self, entry: TrackedJob, *, is_asked: bool = False) -> None:
        if entry.id is None or entry.is_finished or entry.is_step:
            return
        now = asyncio.get_running_loop().time()
        one = self._watched.setdefault(id(entry), _Watched(entry))
        one.is_asked |= is_asked
        one.news_at = now
        if one.task is not None:
            return
        if is_asked:
            one.quiet = _FIRST_QUIET_S
        elif one.quiet > _MAX_QUIET_S:
            if now - one.looked_at < _PAUSE_S:
                return
            one.quiet = _MAX_QUIET_S
        one.task = asyncio.create_task(self._look_until_over(one), name="look")

    async def _look_until_over(self, one: _Watched) -> None:
        clock, entry = asyncio.get_running_loop().time, one.entry
        try:
            while one.quiet <= _MAX_QUIET_S:
                if (left := one.news_at + one.quiet - clock()) > 0:
                    await asyncio.sleep(left)
                    continue
                if entry.is_finished or entry.id is None or not (one.is_asked or self._tracker.follows(entry)):
                    return
                if not self._client.singles.is_ready(1 + (1 if one.is_asked else _RESERVED_QUERIES)):
                    return  # the queue will show the end
                one.news_at = one.looked_at = clock()
                with contextlib.suppress(SlurmError):
                    records = await self._client.describe(entry.id)
                    if not entry.is_finished:
                        await self._tracker.update_from_slurm(entry, records)
                one.quiet *= 2
        finally:
            one.task = None

    def _forget(self, entry: TrackedJob) -> None:
        """Drop a finished job; its task ends by itself."""
        self._watched.pop(id(entry), None)
        if entry.folder is not None:
            self._counted.pop(entry.folder.key, None)
