"""Tests of news that arrive late: accounting that learns of a job's end after the controller has forgotten it."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.embedded import EmbeddedCluster, load_description
from jupyter_slurm.errors import SlurmError

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.carrier("paramiko")]


@pytest.fixture(scope="module")
def late(short_tmp: Path) -> Iterator[EmbeddedCluster]:
    """Provide a cluster with slurmdbd, whose controller forgets jobs two seconds after their end."""
    description = load_description()
    extra = (*description.extra, "MinJobAge=2")
    description = dataclasses.replace(description, extra=extra, accounting=True)
    with EmbeddedCluster(description, directory=short_tmp / "late") as running:
        yield running


def _send(cluster: EmbeddedCluster, number: int) -> None:
    for process in cluster._processes("slurmdbd"):
        process.send(number)


ABSENCES: dict[str, tuple[Callable[[EmbeddedCluster], None], Callable[[EmbeddedCluster], None]]] = {
    "stopped": (lambda cluster: cluster.stop_slurmdbd(), lambda cluster: cluster.start_slurmdbd()),
    "suspended": (lambda cluster: _send(cluster, signal.SIGSTOP), lambda cluster: _send(cluster, signal.SIGCONT)),
}


@pytest.mark.timeout(400)
@pytest.mark.parametrize("absence", ABSENCES)
async def test_accounting_that_learns_of_an_end_late(
    late: EmbeddedCluster, open_desk: Callable[..., Any], tmp_path: Path, wait_for: Callable[..., Any], absence: str
) -> None:
    """Check that a job is neither failed nor unknown while slurmdbd is away, and has its own end later."""
    leave, come_back = ABSENCES[absence]
    seen: set[tuple[str, int | None]] = set()

    def is_over(job: dict[str, Any]) -> bool:
        if job["finished"]:
            seen.add((job["state"], job["exit_code"]))
        return bool(job["finished"])

    def is_forgotten() -> bool:
        argv = ["squeue", "-h", "-t", "all", "-j", script["id"], "-o", "%T"]
        done = subprocess.run(argv, env=late.env(), capture_output=True, text=True, check=False)
        return not done.stdout.strip()

    async with open_desk(late, tmp_path, command_timeout=5.0) as desk:
        cluster = desk.core.cluster(desk.id)
        script = await desk.submit("#!/bin/sh\nuntil [ -e go ]; do sleep 0.1; done\nexit 5\n")
        await desk.until(script["key"], lambda job: job["state"] == "RUNNING")
        leave(late)
        try:
            Path(desk.folder, "go").touch()
            wait_for(is_forgotten, "the controller forgets the job", 120)
            for _ in range(2):
                with contextlib.suppress(SlurmError):
                    await cluster.poller.wait_fresh(0.0)
                told = await desk.job(script["key"])
                assert (is_over(told), told["state"]) == (False, "RUNNING")
            await desk.until(
                script["key"], lambda job: not job["known"], 60
            )  # the card says that Slurm does not answer
        finally:
            come_back(late)
        await desk.until(script["key"], is_over, 150)
        assert seen == {("FAILED", 5)}
