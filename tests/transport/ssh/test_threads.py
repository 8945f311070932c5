"""Tests of the threads for blocking calls."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from jupyter_slurm.transport.ssh.link.threads import DaemonThreadPool


def test_a_session_of_a_broken_connection_that_nobody_wants_any_more_raises_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raised: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    pool, begun, go, threads = DaemonThreadPool(), threading.Event(), threading.Event(), list[threading.Thread]()

    def work() -> str:
        threads.append(threading.current_thread())
        begun.set()
        go.wait(60)
        return "session"

    def close(session: str) -> None:
        closed.append(session)
        raise EOFError

    closed: list[str] = []

    async def give_up() -> None:
        call = asyncio.create_task(pool.call(work, close))
        await asyncio.to_thread(begun.wait, 60)
        call.cancel()

    asyncio.run(give_up())
    go.set()
    pool.close()
    threads[0].join(60)
    assert (closed, raised) == (["session"], [])
