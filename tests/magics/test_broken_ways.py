"""Tests of a cut connection to a step that prints: the step continues, and so does its cell after the reconnection."""

from __future__ import annotations

import ast
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.carrier("paramiko", "openssh")]

WaitFor = Callable[..., Any]

COUNT = """\
import os, time
print('up')
n = 0
while not os.path.exists({!r}):
    print('line', n)
    n += 1
    time.sleep(0.02)
print('last')
"""


@pytest.fixture
def allocation(kernel: Any, way: Any) -> Iterator[None]:
    kernel.ok("%salloc -p arandu as=cpu wait")
    yield
    if way.is_remote and way.host.listener is None:
        way.host.start()
    kernel.ok("cpu.release()")


def _drawn_under(kernel: Any, request: str) -> str:
    kernel.pump()
    cards = [
        m for m in kernel.under(request) if "jupyter-slurm-job" in m["content"].get("data", {}).get("text/html", "")
    ]
    return kernel.text(cards[0]["content"]["transient"]["display_id"]) if cards else ""


def _cut(kernel: Any, way: Any) -> None:
    """Break all connections to the host, and refuse new ones; without a host, kill the agent."""
    if way.is_remote:
        way.host.stop()
        way.host.kill_sessions()
    else:
        pid = "__import__('jupyter_slurm.client.clusters.cluster').client.clusters.cluster.current().client.get('/v1/agent')['pid']"
        os.kill(int(kernel.value(pid)), signal.SIGKILL)


def test_no_byte_is_lost_or_comes_twice(
    kernel: Any, way: Any, allocation: None, gate: Callable[[str], Path], wait_for: WaitFor
) -> None:
    stop = gate("stop")
    kernel.ok(f"%%srun as=step\n{COUNT.format(str(stop))}")
    shown = kernel.ok("step").display
    wait_for(lambda: "line 20" in kernel.text(shown), "output")
    _cut(kernel, way)
    if way.is_remote:
        wait_for(lambda: "Trying again. The job continues" in kernel.text(shown), "that it is told")
        way.host.start()
    before = kernel.text(shown).count("\nline")
    wait_for(lambda: kernel.text(shown).count("\nline") > before + 20, "output, again")
    stop.touch()
    kernel.ok("step.wait()")
    written = kernel.value("repr(str(step.stdout))")
    lines = ast.literal_eval(written).splitlines()
    assert lines == ["up", *(f"line {n}" for n in range(len(lines) - 2)), "last"]
    assert kernel.text(shown).endswith("\n" + "\n".join(lines))


def test_an_interrupt_while_the_way_is_cut_says_whether_it_came_there(
    kernel: Any, way: Any, allocation: None, gate: Callable[[str], Path], wait_for: WaitFor
) -> None:
    stop = gate("stop")
    request = kernel.begin(f"%%srun wait as=step\n{COUNT.format(str(stop))}")
    wait_for(lambda: "line 20" in _drawn_under(kernel, request), "output")
    if way.is_remote:
        _cut(kernel, way)
        wait_for(lambda: "Trying again. The job continues" in _drawn_under(kernel, request), "that it is told")
    kernel.manager.signal_kernel(signal.SIGINT)
    ran = kernel.end(request)
    assert ran.error == "WaitInterrupted"
    assert re.search(r"Step \d+\.\d+ \(cell.py\)", ran.traceback)
    if way.is_remote:
        assert "could NOT be interrupted and may keep running. The connection to far is lost" in ran.traceback
        way.host.start()
        stop.touch()
        kernel.ok("step.wait(check=False)")  # the interrupt may arrive late
    else:
        assert "was interrupted; its allocation stays open." in ran.traceback
        assert kernel.value("step.wait(check=False).state") == "CANCELLED"
