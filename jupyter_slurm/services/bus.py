"""Who wants to know: a broadcast with bounded queues."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any

__all__ = ["Bus"]

Event = tuple[str, dict[str, Any]]


class Bus:
    """Hand every event to everybody who listens.

    A listener that does not keep up loses its oldest events: each event carries the whole state of one thing, so that
    the newest is what matters.

    Parameters
    ----------
    size : int
        Events that may wait for one listener.
    """

    def __init__(self, size: int = 1000) -> None:
        self._size = size
        self._queues: dict[asyncio.Queue[Event | None], bool] = {}

    @property
    def listeners(self) -> int:
        """How many listen now."""
        return len(self._queues)

    @property
    def is_looked_at(self) -> bool:
        """Whether one of those that listen stands for a person in front of a screen."""
        return any(self._queues.values())

    def publish(self, event: str, data: dict[str, Any]) -> None:
        """Tell everybody; never waits."""
        for queue in self._queues:
            _put(queue, (event, data))

    def close(self) -> None:
        """End all subscriptions."""
        for queue in self._queues:
            _put(queue, None)

    @contextlib.asynccontextmanager
    async def subscribe(self, *, is_looked_at: bool = True) -> AsyncIterator[AsyncIterator[Event]]:
        """Listen from now on, until the context is left or the bus is closed; for a person, if ``is_looked_at``."""
        with self._queue(is_looked_at) as queue:
            yield _events(queue)

    @contextlib.contextmanager
    def _queue(self, is_looked_at: bool) -> Iterator[asyncio.Queue[Event | None]]:
        queue: asyncio.Queue[Event | None] = asyncio.Queue(self._size)
        self._queues[queue] = is_looked_at
        try:
            yield queue
        finally:
            del self._queues[queue]


def _put(queue: asyncio.Queue[Event | None], item: Event | None) -> None:
    if queue.full():
        queue.get_nowait()
    queue.put_nowait(item)


async def _events(queue: asyncio.Queue[Event | None]) -> AsyncGenerator[Event, None]:
    while (item := await queue.get()) is not None:
        yield item
