"""Benchmark of the cancellation of a thousand jobs by one request of the panel, compared with scancel."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from jupyter_slurm.embedded import EmbeddedCluster

pytestmark = [pytest.mark.bench, pytest.mark.slurm, pytest.mark.timeout(900)]

JOBS, RUNS = 1000, 2
# The aim on a quiet machine. What is asserted is the ratio to scancel with as many numbers, which a busy machine slows, too:
# 2.9 was measured, with 0.41 s of scancel.
CANCEL_MS = 3000
AT_MOST = 6.0
PIECE = 100


def _submit(cluster: EmbeddedCluster) -> list[str]:
    """Submit the jobs, which are held; return their numbers."""
    script = f"for n in $(seq {JOBS}); do sbatch --parsable --hold -o /dev/null --wrap true || exit 1; done"
    done = subprocess.run(["sh", "-c", script], env=cluster.env(), cwd="/", check=True, capture_output=True, text=True)
    return done.stdout.split()


def _by_scancel(cluster: EmbeddedCluster, numbers: list[str], piece: int) -> None:
    for first in range(0, len(numbers), piece):
        subprocess.run(["scancel", *numbers[first : first + piece]], env=cluster.env(), check=True)


def test_a_thousand_jobs_are_cancelled_as_fast_as_by_scancel(
    lab: Any, cluster: EmbeddedCluster, wait_for: Callable[..., Any], new_table: Callable[[str], Any]
) -> None:
    """From the request to the answer, which has the result of each job."""
    with httpx.Client(headers={"Authorization": f"token {lab.token}"}, timeout=300) as panel:
        (known,) = panel.get(lab.api("v1/clusters")).raise_for_status().json()
        jobs, acts = (lab.api(f"v1/clusters/{known['id']}/{what}") for what in ("jobs", "acts"))

        def by_the_panel(numbers: list[str]) -> None:
            answer = panel.post(acts, json={"act": "cancel", "jobs": numbers}).raise_for_status().json()
            assert [one["job"] for one in answer if one["error"] is None] == numbers

        def is_listed(numbers: list[str]) -> bool:
            return set(numbers) <= {job["id"] for job in panel.get(jobs).raise_for_status().json()}

        table = new_table(f"{JOBS} pending jobs are cancelled (aim: {CANCEL_MS} ms)")
        ways: dict[str, Callable[[list[str]], None]] = {
            "one scancel": lambda numbers: _by_scancel(cluster, numbers, JOBS),
            f"a scancel of each {PIECE}": lambda numbers: _by_scancel(cluster, numbers, PIECE),
            "the panel": by_the_panel,
        }
        for _ in range(RUNS):
            for row, cancel in ways.items():
                numbers = _submit(cluster)
                wait_for(lambda numbers=numbers: is_listed(numbers), "the agent knows the jobs", 120)
                began = time.perf_counter()
                cancel(numbers)
                table.add(row, (time.perf_counter() - began) * 1000)
                assert not cluster.run("squeue", "-h", "--me", "-t", "PENDING").stdout.split()
    assert table.ratio("the panel", "one scancel") <= AT_MOST, table.lines()
