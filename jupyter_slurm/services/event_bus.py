"""Who wants to know: a broadcast in which nobody misses how a thing is now."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from typing import Any

__all__ = ["EventBus"]

Event = tuple[str, Mapping[str, Any]]


class EventBus:
    """Hand every event to everybody who listens.

    Each event carries the whole state of one thing. A listener that does not keep up, as when a look at the queue finds
    thousands of jobs changed, misses how things were in between, and never how they are.

    Parameters
    ----------
    size : int
        Events that may wait for one listener before those that are out of date go.
    """

    def __init__(self, size: int = 1000) -> None:
        self._size = size
        self._queues: dict[_Queue, bool] = {}

    @property
    def listeners(self) -> int:
        """How many listen now."""
        return len(self._queues)

    @property
    def is_watched(self) -> bool:
        """Whether one of those that listen stands for a person in front of a screen."""
        return any(self._queues.values())

    def publish(self, event: str, data: Mapping[str, Any]) -> None:
        """Tell everybody; never waits."""
        for queue in self._queues:
            queue.add((event, data))

    def close(self) -> None:
        """End all subscriptions."""
        for queue in self._queues:
            queue.add(None)

    @contextlib.asynccontextmanager
    async def subscribe(self, *, is_watched: bool = True) -> AsyncIterator[AsyncIterator[Event]]:
        """Listen from now on, until the context is left or the bus is closed; for a person, if ``is_looked_at``."""
        with self._queue(is_watched) as queue:
            yield _events(queue)

    @contextlib.contextmanager
    def _queue(self, is_watched: bool) -> Iterator[_Queue]:
        queue = _Queue(self._size)
        self._queues[queue] = is_watched
        try:
            yield queue
        finally:
            del self._queues[queue]


class _Queue:
    """What waits for one listener: at most twice as much as there are things."""

    def __init__(self, size: int) -> None:
        self._size = self._max_items = size
        self._items: deque[Event | None] = deque()
        self._filled = asyncio.Event()

    def add(self, item: Event | None) -> None:
        self._items.append(item)
        self._filled.set()
        if len(self._items) > self._max_items:
            self._drop_old()

    async def get(self) -> Event | None:
        await self._filled.wait()
        item = self._items.popleft()
        if not self._items:
            self._filled.clear()
            self._max_items = self._size
        return item

    def _drop_old(self) -> None:
        newest: dict[Any, Event | None] = {}
        for item in self._items:
            thing = item and (item[0], item[1].get("cluster"), item[1].get("key") or item[1].get("id"))
            newest.pop(thing, None)  # it stands where it was last
            newest[thing] = item
        self._items = deque(newest.values())
        self._max_items = max(self._size, 2 * len(self._items))


async def _events(queue: _Queue) -> AsyncGenerator[Event, None]:
    while (item := await queue.get()) is not None:
        yield item
