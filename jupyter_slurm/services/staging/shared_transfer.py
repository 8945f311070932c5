"""Shared work that runs once for all callers that request it before its start."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from jupyter_slurm.transport.base import Sent

__all__ = ["SharedTransfer"]

T = TypeVar("T")


class SharedTransfer(Generic[T]):
    """Work that starts when allowed, reports its progress to all callers, and ends when nobody waits any more.

    Parameters
    ----------
    work : callable
        ``work(joint, sent)``; it calls :meth:`close` before the point at which a new caller would be too late.
    """

    def __init__(self, work: Callable[[SharedTransfer[T], Sent], Awaitable[T]]) -> None:
        self.is_open = True
        self._waiting: list[Sent] = []
        self._task = asyncio.ensure_future(work(self, self._notify))

    @property
    def count(self) -> int:
        """Return the number of waiting callers."""
        return len(self._waiting)

    def close(self) -> None:
        """Stop accepting callers."""
        self.is_open = False

    def _notify(self, done: int, total: int) -> None:
        for sent in list(self._waiting):
            sent(done, total)

    async def join(self, sent: Sent) -> T:
        """Wait for the work; ``sent`` receives the progress. Cancelling one caller does not affect the others."""
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
