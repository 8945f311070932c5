"""Poller of a cluster: the times of its queries, not their content."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from jupyter_slurm.errors import SlurmError
from jupyter_slurm.services.slurm.rate_limit import TokenBucket

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["Polled", "Poller", "query_allowance"]

log = logging.getLogger(__name__)

_BACKOFF_FACTOR = 1.5
_WAITED_FOR_S = 30.0
# With 0.05 a second about single jobs, 0.2 queries a second on average; at once as many as a user may send.
_USUAL_INTERVAL_S, _RATE, _BURST = 10.0, 0.15, 15.0
_CAUTIOUS_BURST = 3.0  # where a site or a user asks for a longer interval


def query_allowance(min_interval: float, clock: Callable[[], float] = time.monotonic) -> TokenBucket:
    """Return the allowance of queries of the queue, regular and early ones.

    An interval longer than usual is a wish of the site or of the user: it stays the long-run mean, and few queries come
    early.
    """
    if min_interval > _USUAL_INTERVAL_S:
        return TokenBucket(1 / min_interval, _CAUTIOUS_BURST, clock)
    return TokenBucket(_RATE, _BURST, clock)


class Polled(Protocol):
    """Source of a poller's answers, and the need for them."""

    async def poll_once(self) -> bool:
        """Query once and process the answer; return whether a job has changed."""

    def is_needed(self) -> bool:
        """Return whether there is anything to query."""

    def is_waited_for(self) -> bool:
        """Return whether a user waits in front of a screen; then the interval stays at 30 s or below."""


class Poller:
    """Query at an adaptive interval: the shortest while jobs change, growing while nothing changes.

    No query runs while there is no active job and no viewer. A missing answer doubles the
    interval. :meth:`poll_early` queries between, as often as :func:`query_allowance` permits.

    Parameters
    ----------
    polled : Polled
        Source of the answers.
    min_interval, max_interval : float
        Bounds of the interval, in seconds.
    memory : callable, optional
        Returns for how many seconds Slurm remembers the end of a job that nobody else reports; infinite if there is no
        such job. The interval stays at half of it or below, but not below the shortest.
    clock : callable, optional
        Monotonic seconds.

    Attributes
    ----------
    on_change : list of callable
        Called when an answer is missing, and when answers return.
    """

    def __init__(
        self,
        polled: Polled,
        *,
        min_interval: float,
        max_interval: float,
        memory: Callable[[], float] = lambda: math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._polled, self._memory, self._clock = polled, memory, clock
        self.on_change: list[Callable[[], object]] = []
        self._min_interval, self._max_interval = min_interval, max(min_interval, max_interval)
        self.interval = min_interval
        self._allowance = query_allowance(min_interval, clock)
        self.last: float | None = None
        self.error: SlurmError | None = None
        self._failing_since: float | None = None
        self._hurry = asyncio.Event()
        self._poll_lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start."""
        self._task = asyncio.create_task(self._run(), name="poller")

    async def stop(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def wake(self) -> None:
        """Query as soon as the shortest interval allows, because something happened."""
        self.interval = self._min_interval
        self._hurry.set()

    async def wait_fresh(self, within: float | None = None) -> None:
        """Ensure an answer not older than ``within`` seconds (default: the shortest interval); query if there is none.

        Raises
        ------
        SlurmError
            There was no answer.
        """
        within = self._min_interval if within is None else within
        async with self._poll_lock:
            if self.last is None or self._clock() - self.last >= within:
                await self._poll_once()
        if self.error is not None:
            raise self.error

    async def poll_early(self, max_age: float = 0.0) -> bool:
        """Query before the interval is over, if the allowance permits; return whether there is a new answer.

        One of the last ``max_age`` seconds is new enough.
        """
        wanted = self._clock() - max_age
        async with self._poll_lock:
            if self.last is None or self.last < wanted:
                if self.error is not None or not self._allowance.is_ready():
                    return False
                await self._poll_once(is_early=True)
        return self.error is None

    def status(self) -> api.ClusterPoll:
        """Return the status of polling: seconds since the last query, without an answer, and between two queries."""
        now = self._clock()
        return {
            "seconds_since": None if self.last is None else round(now - self.last, 3),
            "failing_for": None if self._failing_since is None else round(now - self._failing_since, 3),
            "interval": self._bounded(),
            "error": self.error.to_problem() if self.error else None,
        }

    async def _run(self) -> None:
        while True:
            await self._pause()
            if self._polled.is_needed():
                async with self._poll_lock:
                    try:
                        await self._poll_once()
                    except Exception:  # an error in one job must not stop the others
                        log.exception("what the queue showed could not be worked off")

    async def _pause(self) -> None:
        """Sleep until the next query is due; an urgent request shortens that to the shortest interval."""
        while True:
            wait = self._min_interval if self._hurry.is_set() else self._bounded()
            if not self._polled.is_needed():
                self._hurry.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._min_interval):  # new viewers do not announce themselves
                        await self._hurry.wait()
                continue
            left = 0.0 if self.last is None else self.last + wait - self._clock()
            if left <= 0:
                self._hurry.clear()
                return
            if self._hurry.is_set():
                await asyncio.sleep(left)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(
                    min(left, self._min_interval)
                ):  # nor do users who begin to wait for an answer
                    await self._hurry.wait()

    def _bounded(self) -> float:
        longest = (
            self._max_interval
            if not self._polled.is_waited_for()
            else max(self._min_interval, min(_WAITED_FOR_S, self._max_interval))
        )
        if self.error is None:  # a silent controller is asked less and less
            longest = min(longest, max(self._min_interval, self._memory() / 2))
        return min(self.interval, longest)

    async def _poll_once(self, *, is_early: bool = False) -> None:
        """Query once. The interval counts from the start of the query: a slow controller is not queried more often.

        An early query in vain does not make the interval longer.
        """
        self.last = self._clock()
        if self._allowance.is_ready():
            self._allowance.reserve()
        try:
            changed = await self._polled.poll_once()
        except SlurmError as error:
            is_news, self.error = self.error is None, error
            self.interval = min(self._max_interval, self.interval * 2)
            if is_news:
                log.warning("the queue cannot be read: %s", error.message)
                self._failing_since = self.last
                self._publish()
            return
        is_news, self.error, self._failing_since = self.error is not None, None, None
        if changed:
            self.interval = self._min_interval
        elif not is_early:
            self.interval = min(self._max_interval, self.interval * _BACKOFF_FACTOR)
        if is_news:
            log.info("the queue can be read again")
            self._publish()

    def _publish(self) -> None:
        for publish in self.on_change:
            publish()
