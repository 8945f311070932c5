"""Event loop in a thread of its own, for all background work of a kernel."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextvars import Context
from typing import Any, TypeVar

__all__ = ["cancel_reader", "spawn"]

_T = TypeVar("_T")
_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_pid = 0


def spawn(work: Coroutine[Any, Any, _T], context: Context) -> Future[_T]:
    """Run a coroutine in the background, in the given context.

    The context decides where a kernel publishes: with the context of the cell, later output appears under the cell.
    Cancelling the returned future ends the work. The thread is a daemon: it does not prevent the end of the
    interpreter.
    """
    loop = _running_loop()
    result: Future[_T] = Future()

    def start() -> None:
        task = loop.create_task(work, context=context)
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)
        task.add_done_callback(lambda done: _pass_result(done, result))
        result.add_done_callback(
            lambda done: loop.call_soon_threadsafe(cancel_reader, task) if done.cancelled() else None
        )

    loop.call_soon_threadsafe(start)
    return result


def cancel_reader(task: asyncio.Future[Any]) -> None:
    """Cancel a task of the running loop that may read from the agent's socket.

    It is cancelled after the events of sockets of the same turn of the loop. If it were cancelled before them, anyio
    would still set the result of the read, and the loop would log an InvalidStateError.
    """
    asyncio.get_running_loop().call_later(0, task.cancel)  # a loop runs timers after the events of sockets


_tasks: set[asyncio.Task[Any]] = set()  # the loop itself holds its tasks weakly


def _pass_result(task: asyncio.Task[_T], result: Future[_T]) -> None:
    if task.cancelled() or result.cancelled():
        result.cancel()
    elif (error := task.exception()) is not None:
        result.set_exception(error)
    else:
        result.set_result(task.result())


def _running_loop() -> asyncio.AbstractEventLoop:
    global _loop, _pid
    with _lock:
        if _loop is None or _pid != os.getpid():  # a fork leaves the loop without its thread
            _loop, _pid = asyncio.new_event_loop(), os.getpid()
            threading.Thread(target=_run, args=(_loop,), name="jupyter-slurm-live", daemon=True).start()
        return _loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
