"""Blocking calls in threads of their own: the event loop never waits for them, and neither does the interpreter."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar

from jupyter_slurm.transport.local.detached import DetachedProcesses

__all__ = ["DaemonThreadPool"]

T = TypeVar("T")


class DaemonThreadPool:
    """Run blocking work; a wait that is cancelled leaves the work going."""

    def __init__(self) -> None:
        self._workers = DetachedProcesses()

    async def call(self, work: Callable[[], T]) -> T:
        """Return what ``work`` returns, and raise what it raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(act: Callable[[], None]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is gone, and with it whoever asked
                loop.call_soon_threadsafe(lambda: None if future.done() else act())

        def run() -> None:
            try:
                value = work()
            except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
                reason = error
                settle(lambda: future.set_exception(reason))
            else:
                settle(lambda: future.set_result(value))

        self._workers.run(run)
        return await future

    def later(self, work: Callable[[], None]) -> None:
        """Do a thing that nobody waits for; it must not raise."""
        self._workers.run(work)

    def close(self) -> None:
        """Let the idle threads go."""
        self._workers.close()
