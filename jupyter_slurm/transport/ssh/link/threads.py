"""Daemon threads for blocking calls: neither the event loop nor the interpreter's exit waits for them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar

from jupyter_slurm.transport.local.detached import DetachedProcesses

__all__ = ["DaemonThreadPool"]

T = TypeVar("T")


class DaemonThreadPool:
    """Pool of daemon threads for blocking work; cancelling a wait does not end the work."""

    def __init__(self) -> None:
        self._workers = DetachedProcesses()

    async def call(self, work: Callable[[], T], discard: Callable[[T], object] = lambda value: None) -> T:
        """Return the result of ``work``, and raise its exceptions; ``discard`` gets the result of a cancelled call.

        A connection that ``discard`` is to close may have broken before.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(act: Callable[[], object], otherwise: Callable[[], object] = lambda: None) -> None:
            try:
                loop.call_soon_threadsafe(lambda: otherwise() if future.done() else act())
            except RuntimeError:  # the loop is closed, and the caller with it
                otherwise()

        def discard_quietly(value: T) -> None:
            with contextlib.suppress(OSError, EOFError):
                discard(value)

        def run() -> None:
            try:
                value = work()
            except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
                reason = error
                settle(lambda: future.set_exception(reason))
            else:
                settle(lambda: future.set_result(value), lambda: discard_quietly(value))

        self._workers.run(run)
        return await future

    def run_later(self, work: Callable[[], None]) -> None:
        """Run a function that nobody waits for; it must not raise."""
        self._workers.run(work)

    def close(self) -> None:
        """End the idle threads."""
        self._workers.close()
