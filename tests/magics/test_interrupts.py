"""Tests of interrupted waits: the decision about the job is made once, and reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("paramiko", "openssh"), pytest.mark.by_day()]


def _until(path: Path) -> str:
    return f"import os, time\nwhile not os.path.exists('{path}'): time.sleep(0.1)"


def _interrupted(kernel: Any, wait_for: Callable[..., Any], gate: Path) -> tuple[Any, str]:
    """Interrupt a waiting cell as soon as its job runs; return its message and the job's number."""
    cell = f"open('{gate}.started', 'w').close()\n{_until(gate)}"
    request = kernel.begin(f"%%sbatch wait as=held\n{cell}")
    wait_for(lambda: kernel.pump() or Path(f"{gate}.started").exists(), "the job runs")
    kernel.manager.interrupt_kernel()
    ran = kernel.end(request)
    return ran, kernel.value("held")


@pytest.mark.parametrize(("answer", "state"), [("c", "CANCELLED"), ("k", "RUNNING"), ("what?", "RUNNING")])
def test_it_asks(
    kernel: Any, wait_for: Callable[..., Any], gate: Callable[[str], Path], answer: str, state: str
) -> None:
    kernel.answer, kernel.asked = (lambda: answer), []
    try:
        ran, number = _interrupted(kernel, wait_for, gate("go"))
    finally:
        kernel.answer = None
    assert "Cancel Job " + number in kernel.asked[0]
    assert len(kernel.asked) == (3 if answer == "what?" else 1)
    assert ran.error == "WaitInterrupted"
    assert ("was cancelled" if state == "CANCELLED" else "keeps running") in ran.traceback
    gate("go").touch()
    over = kernel.value("held.wait(check=False).state")
    assert over == ("CANCELLED" if state == "CANCELLED" else "COMPLETED")


def test_where_nobody_can_be_asked_the_job_goes_on(
    kernel: Any, wait_for: Callable[..., Any], gate: Callable[[str], Path]
) -> None:
    ran, number = _interrupted(kernel, wait_for, gate("go"))
    assert ran.error == "WaitInterrupted"
    assert "keeps running" in ran.traceback
    assert f"job ID is {number}" in ran.traceback
    assert "no prompt is possible" in ran.traceback
    assert "Traceback" not in ran.traceback
    gate("go").touch()
    assert kernel.value("held.wait().state") == "COMPLETED"


def test_an_interrupt_at_the_question_keeps_the_job_and_says_so(
    kernel: Any, wait_for: Callable[..., Any], gate: Callable[[str], Path]
) -> None:
    def interrupt_again() -> str:
        kernel.manager.interrupt_kernel()
        return ""

    kernel.answer = interrupt_again
    try:
        ran, _ = _interrupted(kernel, wait_for, gate("go"))
    finally:
        kernel.answer = None
    assert ran.error == "WaitInterrupted"
    assert "keeps running" in ran.traceback
    gate("go").touch()
    kernel.ok("held.wait()")


@pytest.mark.parametrize(("setting", "state"), [("cancel", "CANCELLED"), ("keep", "COMPLETED")])
def test_the_setting_decides_without_a_question(
    kernel: Any, wait_for: Callable[..., Any], gate: Callable[[str], Path], setting: str, state: str
) -> None:
    kernel.ok(f"from jupyter_slurm.client.settings import settings\nsettings().on_interrupt = {setting!r}")
    kernel.answer, kernel.asked = (lambda: "c"), []
    try:
        ran, _ = _interrupted(kernel, wait_for, gate("go"))
    finally:
        kernel.answer = None
        kernel.ok("settings().on_interrupt = 'ask'")
    assert kernel.asked == []
    assert "setting on_interrupt" in ran.traceback
    gate("go").touch()
    assert kernel.value("held.wait(check=False).state") == state


def test_a_cancelled_await_says_that_the_job_goes_on(kernel: Any, gate: Callable[[str], Path]) -> None:
    kernel.ok(f"%%sbatch as=awaited\n{_until(gate('go'))}")
    ran = kernel.run("import asyncio\nasync with asyncio.timeout(0.3):\n    await awaited")
    assert ran.error == "TimeoutError"
    assert "keeps running" in ran.stderr
    gate("go").touch()
    kernel.ok("awaited.wait()")
