"""Benchmark of a sweep of ten thousand tasks, each run to its end: duration, and queries to the controller.

The start of that many processes takes the time (minutes on two cores), so that it is a benchmark.
tests/services/jobs/test_tasks.py shows that ten thousand tasks are listed and cancelled without queries about each.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from jupyter_slurm.embedded import EmbeddedCluster

pytestmark = [pytest.mark.bench, pytest.mark.slurm, pytest.mark.timeout(1800)]

SIZE, FAILS = 10_000, 7_777
_LOOKS_EVERY = 10.0  # minimum seconds between two queries of the queue
_TOLD = "import json\nprint(json.dumps([len(many), many.data['tasks'], [task.index for task in many.failed()]]))"


def test_ten_thousand_tasks_run_whole(
    start_kernel: Callable[..., Any], cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    def looks() -> int:
        counts = re.findall(r"REQUEST_JOB(?:_USER)?_INFO +\(.*count:(\d+)", cluster.run("sdiag").stdout)
        return sum(map(int, counts))  # root's `squeue --me` sends the first request, that of other users the second

    kernel = start_kernel()
    kernel.run(f"%load_ext jupyter_slurm\ntable = [{{'n': n}} for n in range({SIZE})]")
    kernel.run("%squeue -h")
    before, began = looks(), time.monotonic()
    script = f'#!/bin/sh\n[ "$n" != {FAILS} ]'
    kernel.run(f"%%sbatch -p arandu -n1 --mem=10 sweep=table as=many\n{script}")
    submitted = time.monotonic() - began
    kernel.run("many.wait(check=False)", timeout=1500)
    lasted, asked = time.monotonic() - began, looks() - before
    with capsys.disabled():
        print(
            f"\n{SIZE} tasks: submitted in {submitted:.2f} s, over after {lasted:.0f} s "
            f"({SIZE / lasted:.0f} a second), {asked} looks at the queue"
        )
    assert json.loads(kernel.run(_TOLD)) == [SIZE, {"COMPLETED": SIZE - 1, "FAILED": 1}, [FAILS]]
    assert asked <= 2 + lasted / _LOOKS_EVERY
