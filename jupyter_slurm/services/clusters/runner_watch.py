"""Watch over the events folder of a cluster while runners of its jobs are active."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Awaitable, Callable, Sequence

from jupyter_slurm.services.event_bus import EventBus
from jupyter_slurm.services.jobs.runner_events import RunnerEvents
from jupyter_slurm.services.jobs.tracker import Tracker

__all__ = ["RunnerWatch"]

log = logging.getLogger(__name__)

_INTERVAL_S = 0.5
_EAGER_INTERVAL_S = 0.025  # on this machine, while a user waits for a session that is almost ready
_UNWATCHED_TURNS = 10  # one turn of this number while nobody watches


class RunnerWatch:
    """Do the chores of a cluster at short intervals while jobs run; seldom if nobody watches.

    Parameters
    ----------
    tracker : Tracker
        Jobs of the cluster.
    events : RunnerEvents
        Signs of the runners in the events folder.
    bus : EventBus
        Its listeners watch.
    is_far : bool
        Whether SSH reaches the cluster.
    """

    def __init__(self, tracker: Tracker, events: RunnerEvents, bus: EventBus, *, is_far: bool) -> None:
        self._tracker, self._events, self._bus, self._is_far = tracker, events, bus, is_far
        self._task: asyncio.Task[None] | None = None

    def start(self, chores: Sequence[Callable[[], Awaitable[None]]]) -> None:
        """Start; read the events folder before the other chores."""
        self._task = asyncio.create_task(self._run((self._events.read, *chores)), name="signs")

    async def stop(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self, chores: Sequence[Callable[[], Awaitable[None]]]) -> None:
        for turn in itertools.count():
            await asyncio.sleep(_EAGER_INTERVAL_S if self._is_eager() else _INTERVAL_S)
            interested = self._bus.listeners > 0 or self._tracker.is_listened_to()
            if not interested and turn % _UNWATCHED_TURNS:
                continue
            if self._events.has_unremoved or any(entry.reports_events for entry in self._tracker.active()):
                try:
                    for chore in chores:
                        await chore()
                except Exception:  # an error in one job must not stop the others
                    log.exception("the events folder of %s could not be worked off", self._tracker.name)

    def _is_eager(self) -> bool:
        return not self._is_far and any(
            entry.kind == "session" and entry.state.is_running and entry.session.server is None
            for entry in self._tracker.active()
        )
