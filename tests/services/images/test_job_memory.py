"""Tests of the memory of a job on its node, for Docker, against what Slurm allocated."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from typing import Any

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.here_only("it is about a file of the runner")]

_ASKED = [
    ["--mem=300M"],
    ["--mem=0"],
    ["--mem-per-cpu=100M", "-c2"],
    ["--gpus=2", "--mem-per-gpu=200M"],
    ["--gpus-per-node=1", "--mem-per-gpu=200M"],
    ["--gpus-per-task=1", "-n2", "-N1", "--mem-per-gpu=100M"],
    ["--gpus=1", "--mem-per-gpu=200M", "--exclusive"],
    ["-N2", "--mem=0"],
    ["-N2", "-n3"],
    [],
]


def _memory_and_allocation(cluster: Any, options: list[str]) -> tuple[int, int]:
    """Return the MB that the runner finds in a job, and those on the job's first node in the controller."""
    script = resources.files("jupyter_slurm.runner").joinpath("container/job_memory.py")
    program = f"import os, runpy; print(runpy.run_path({str(script)!r})['memory_of'](os.environ) >> 20)"
    text = f'#!/bin/sh\n{sys.executable} -c "{program}"\nscontrol --details show job $SLURM_JOB_ID\n'
    output = cluster.directory / "memory.out"
    argv = ["sbatch", "--wait", f"--output={output}", "--chdir=/", *options]
    subprocess.run(argv, input=text, text=True, env={**os.environ, **cluster.env()}, check=True, capture_output=True)
    found, _, shown = output.read_text().partition("\n")
    allocated = re.search(r" Mem=(\d+)", shown)
    assert allocated, shown
    return int(found), int(allocated[1])


@pytest.mark.parametrize("options", _ASKED, ids=lambda options: " ".join(options) or "default")
def test_memory_is_what_slurm_gave(cluster: Any, options: list[str]) -> None:
    where = ["-p", "arandu" if any("gpu" in option for option in options) else "devwork"]
    found, allocated = _memory_and_allocation(cluster, [*where, *options])
    assert found == allocated > 0


@pytest.mark.slow
@pytest.mark.parametrize("default", ["DefMemPerNode=300", "JobDefaults=DefMemPerGPU=300"])
def test_memory_is_what_slurm_gives_by_default(new_cluster: Callable[..., Any], default: str) -> None:
    running = new_cluster()
    argv = ["scontrol", "update", "PartitionName=devwork", default]
    subprocess.run(argv, env={**os.environ, **running.env()}, check=True)
    assert _memory_and_allocation(running, ["--gpus=1"]) == (300, 300)
