"""Tests of the messages after Slurm ended a cell: its time limit, or its memory limit."""

from __future__ import annotations

import re
from typing import Any

import pytest

from jupyter_slurm.embedded import EmbeddedCluster
from jupyter_slurm.embedded.machine import cgroups

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.here_only("what Slurm and the runner say of an end is the same either way"),
]


@pytest.mark.skipif(not cgroups.detect()[0], reason="no control groups")
def test_a_cell_that_takes_too_much_memory_says_so_and_what_to_ask_for(kernel: Any) -> None:
    ran = kernel.run("%%sbatch -p devwork --mem=150M wait as=big\nprint('so far')\nmuch = bytearray(600 << 20)")
    assert ran.error == "JobFailed"
    for said in ("OUT_OF_MEMORY", "used more memory than it requested", "--mem=", "oom[-_]kill event"):
        assert re.search(said, ran.traceback), ran.traceback
    shown = kernel.text(ran.display)
    assert "OUT_OF_MEMORY" in shown
    assert "so far" in shown
    assert "Request more memory: --mem=" in shown


@pytest.mark.slow
@pytest.mark.root
def test_what_ends_at_the_time_limit_says_so_and_what_to_do(kernel: Any, cluster: EmbeddedCluster) -> None:
    """A job, and the step, the process and the cell of an allocation; an administrator may change their limit."""
    sleeps = "import time\nprint('so far', flush=True)\ntime.sleep(1000)"
    kernel.ok("%salloc -p devwork -n2 --time 10 as=short wait")
    kernel.ok(f"%%remote on=short nowait as=cell\n{sleeps}")
    kernel.ok("%srun on=short as=step -n1 sleep 1000")
    kernel.ok(f"%%sbatch -p devwork --time 10 as=late\n{sleeps}")
    kernel.ok(
        "while {one.refresh().state for one in (cell, step, late)} != {'RUNNING'} or 'so far' not in cell.stdout + late.stdout: time.sleep(0.1)".replace(
            "while", "import time\nwhile", 1
        )
    )
    for name in ("short", "late"):
        cluster.run("scontrol", "update", f"JobId={kernel.value(f'{name}.id')}", "EndTime=now+1")
    late = kernel.run("late.wait()")
    for said in ("TIMEOUT", "reached its time limit", "with a longer --time", "`resume`", "DUE TO TIME LIMIT"):
        assert said in late.traceback, late.traceback
    for name in ("cell", "step"):
        ran = kernel.run(f"{name}.wait()")
        assert ran.error == "JobFailed"
        assert "The allocation reached its time limit." in ran.traceback, ran.traceback
        assert "Request a new allocation with %salloc." in ran.traceback
        assert "Run %%remote again" not in ran.traceback
    kernel.ok("while short.refresh().state == 'COMPLETING': time.sleep(0.1)")
    ran = kernel.run("%%remote on=short\n1")
    assert "has ended: TIMEOUT" in ran.traceback, ran.traceback
