"""Event bus: each subscriber receives the latest state of every object."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from typing import Any

__all__ = ["EventBus"]

Event = tuple[str, Mapping[str, object]]


class EventBus:
    """Deliver every event to all listeners.

    Each event carries the whole state of one object. A slow listener misses intermediate states, but never the latest
    one. This happens, for example, if a query of the queue finds thousands of changed jobs.

    Parameters
    ----------
    size : int
        Events that may wait for one listener before outdated ones are dropped.
    """

    def __init__(self, size: int = 1000) -> None:
        self._size = size
        self._queues: dict[_Queue, bool] = {}

    @property
    def listeners(self) -> int:
        """Return the number of listeners."""
        return len(self._queues)

    @property
    def is_watched(self) -> bool:
        """Return whether a listener acts for a user in front of a screen."""
        return any(self._queues.values())

    def publish(self, event: str, data: Mapping[str, object]) -> None:
        """Send an event to all listeners, without waiting."""
        for queue in self._queues:
            queue.add((event, data))

    def close(self) -> None:
        """End all subscriptions."""
        for queue in self._queues:
            queue.add(None)

    @contextlib.asynccontextmanager
    async def subscribe(self, *, is_watched: bool = True) -> AsyncIterator[AsyncIterator[Event]]:
        """Listen until the context ends or the bus is closed; ``is_watched``: for a user in front of a screen."""
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
    """Events that wait for one listener: at most twice the number of objects."""

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
            newest.pop(thing, None)  # moves the object to the end
            newest[thing] = item
        self._items = deque(newest.values())
        self._max_items = max(self._size, 2 * len(self._items))


async def _events(queue: _Queue) -> AsyncGenerator[Event, None]:
    while (item := await queue.get()) is not None:
        yield item
