"""Ages count the time that this computer sleeps: a login page, and the proof of a port's owner."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from jupyter_slurm.services import elapsed_time
from jupyter_slurm.services.elapsed_time import AgeTimer, elapsed
from jupyter_slurm.services.sessions.login_pages import LoginPages


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the lengths of the computer's sleeps so far, in which the monotonic clock stands still."""
    passed: list[float] = []
    monkeypatch.setattr(elapsed_time, "elapsed", lambda: elapsed() + sum(passed))
    monkeypatch.setattr(elapsed_time, "_CHECK_INTERVAL_S", 0.01)
    return passed


async def until_gone(path: str) -> None:
    async with asyncio.timeout(60):
        while os.path.exists(path):
            await asyncio.sleep(0.01)


async def test_a_login_page_ends_with_its_time_although_the_computer_sleeps(
    tmp_path: Path, sleeps: list[float]
) -> None:
    pages = LoginPages(str(tmp_path / "pages"))
    path = pages.write("a", "http://127.0.0.1:8000/", "http://a.localhost:8000/", "token")
    sleeps.append(300.0)
    await asyncio.sleep(0.1)
    assert Path(path).exists()
    path = pages.write("a", "http://127.0.0.1:8000/", "http://a.localhost:8000/", "token")  # its time begins again
    sleeps.append(400.0)
    await asyncio.sleep(0.1)
    assert Path(path).exists()
    sleeps.append(201.0)
    await until_gone(path)


async def test_a_timer_calls_once_and_not_after_it_was_cancelled(sleeps: list[float]) -> None:
    called: list[str] = []
    cancelled = AgeTimer(100.0, lambda: called.append("cancelled"))
    AgeTimer(100.0, lambda: called.append("late"))
    AgeTimer(-1.0, lambda: called.append("at once"))
    cancelled.cancel()
    assert called == []
    sleeps.append(100.0)
    async with asyncio.timeout(60):
        while len(called) < 2:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    assert sorted(called) == ["at once", "late"]


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="needs Linux")
def test_the_clock_is_one_that_goes_on_in_a_sleep() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= elapsed() <= time.clock_gettime(time.CLOCK_BOOTTIME)
