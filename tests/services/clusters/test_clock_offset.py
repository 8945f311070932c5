"""A laptop's clock an hour off: durations until now are those of the cluster, with a real login node."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_slurm.client.render import job_card, present_time
from jupyter_slurm.client.render.allocation_card import remaining_time
from jupyter_slurm.embedded import EmbeddedCluster
from jupyter_slurm.services.slurm.cluster_clock import ClockOffset
from jupyter_slurm.transport.base import Completed
from jupyter_slurm.widgets import job_row

HOUR = 3600.0


class Host:
    """Transport to a host with a clock of its own."""

    def __init__(self, ahead: float) -> None:
        self.ahead, self.now, self.asked, self.is_lost = ahead, 1_000_000.0, 0, False

    async def run(self, argv: list[str]) -> Completed:
        assert argv == ["date", "+%s"]
        self.asked += 1
        told = int(self.now + self.ahead)
        self.now += 0.25  # the way back
        return Completed(0, b"nothing\n" if self.is_lost else b"%d\n" % told, b"")


@pytest.mark.parametrize("ahead", [-HOUR, 0.0, 0.4, HOUR])
async def test_the_clocks_are_compared_now_and_then_and_after_one_was_set(ahead: float) -> None:
    host, monotonic = Host(ahead), [50.0]
    clock = ClockOffset(host, lambda: host.now, lambda: monotonic[0])  # type: ignore[arg-type]
    assert await clock.refresh() == (abs(ahead) > 1)
    assert clock.seconds == pytest.approx(ahead if abs(ahead) > 1 else 0.0, abs=1.0)
    first = clock.seconds
    for _ in range(3):
        assert not await clock.refresh()
    assert host.asked == 1
    host.now, monotonic[0] = host.now + 700, monotonic[0] + 700
    assert not await clock.refresh()
    assert (host.asked, clock.seconds) == (2, first)
    host.now, host.ahead = host.now - 2 * HOUR, host.ahead + 2 * HOUR  # the clock of this computer was set
    monotonic[0] += 60
    host.now += 60
    host.is_lost = True
    assert not await clock.refresh()
    host.is_lost = False
    assert not await clock.refresh(), "not again at once"
    monotonic[0] += 60
    host.now += 60
    assert await clock.refresh()
    assert clock.seconds == pytest.approx(first + 2 * HOUR, abs=1.5)


@pytest.mark.slurm
@pytest.mark.slow
@pytest.mark.carrier("openssh")
@pytest.mark.parametrize("ahead", [-HOUR, HOUR])
async def test_durations_until_now_are_those_of_the_cluster(
    cluster: EmbeddedCluster,
    tmp_path: Path,
    open_far_desk: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    ahead: float,
) -> None:
    real = time.time

    def laptop() -> float:
        return real() + ahead

    monkeypatch.setattr(present_time, "time", SimpleNamespace(time=laptop))
    async with open_far_desk(cluster, tmp_path, clock=laptop) as desk:
        script = await desk.submit("#!/bin/sh\nsleep 600", "-p", "arandu", "--time=1:00:00")
        cell = await desk.submit("#!/bin/sh\nsleep 600", "-p", "arandu", "--time=1:00:00", "--begin=now+1hour")
        running = await desk.until(
            script["key"], lambda job: job["state"] == "RUNNING" and bool(job["nodes"]) and bool(job["clock_offset"])
        )
        waiting = await desk.until(cell["key"], lambda job: bool(job["reason"]) and bool(job["clock_offset"]))
        assert running["clock_offset"] == pytest.approx(-ahead, abs=30)
        left = remaining_time(running)
        assert left is not None
        assert HOUR / 2 < left <= HOUR + 30  # as exact as the offset
        (ran,) = [fact for fact in job_card.facts(running) if fact.startswith("running for")]
        assert ran.count(":") == 1, "minutes and seconds, no hours"
        assert "-" not in ran
        (waited,) = [fact for fact in job_card.facts(waiting) if fact.startswith("waiting for")]
        assert waited.count(":") == 1
        assert " of 1:00:00" in job_row.progress(running)
        report = await desk.core.cluster(desk.id).results.report(script["key"])
        assert 0 <= report["elapsed"] < HOUR / 2
        await desk.core.cluster(desk.id).actions.cancel(script["key"])
        await desk.core.cluster(desk.id).actions.cancel(cell["key"])


@pytest.mark.parametrize("told", [b"nan", b"inf", b"1e300", b"-5", b"9" * 30, b""])
async def test_only_seconds_are_a_time(told: bytes) -> None:
    """Times that are no times would erase the stored history, and run through all durations."""

    async def run(argv: list[str]) -> Completed:
        return Completed(0, told + b"\n", b"")

    clock = ClockOffset(SimpleNamespace(run=run), lambda: 1_000.0, lambda: 50.0)  # type: ignore[arg-type]
    assert not await clock.refresh()
    assert clock.seconds == 0.0
