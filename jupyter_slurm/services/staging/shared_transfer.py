"""Work that several want at once, and that is done once for all who asked before it began."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from jupyter_slurm.transport.base import Sent

__all__ = ["SharedTransfer"]

T = TypeVar("T")


class SharedTransfer(Generic[T]):
    """Work that begins once it may, of which all are told how far it is, and that ends when nobody waits any more.

    Parameters
    ----------
    work : callable
        ``work(joint, sent)``; it calls :meth:`close` when who comes later would come too late.
    """

    def __init__(self, work: Callable[[SharedTransfer[T], Sent], Awaitable[T]]) -> None:
        self.is_open = True
        self._waiting: list[Sent] = []
        self._task = asyncio.ensure_future(work(self, self._notify))

    @property
    def count(self) -> int:
        """How many wait for it."""
        return len(self._waiting)

    def close(self) -> None:
        """Take nobody else in."""
        self.is_open = False

    def _notify(self, done: int, total: int) -> None:
        for sent in list(self._waiting):
            sent(done, total)

    async def join(self, sent: Sent) -> T:
        """Wait for it; ``sent`` is told how far it is. Who is cancelled leaves it to the others."""
        self._waiting.append(sent)
        try:
            return await asyncio.shield(self._task)
        finally:
            self._waiting.remove(sent)
            if not self._waiting and not self._task.done():
                self.is_open = False
                self._task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await self._task
