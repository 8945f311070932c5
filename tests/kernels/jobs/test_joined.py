"""Tests of remote kernels in running jobs that were submitted in a terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jupyter_slurm.embedded import EmbeddedCluster

pytestmark = [pytest.mark.slurm, pytest.mark.here_only("what is different over SSH is in the tests of steps")]

_JOB = "__import__('os').environ['SLURM_JOB_ID']"


def test_a_kernel_runs_in_a_job_of_a_terminal_and_ends_only_itself(
    node_kernel: Any, cluster: EmbeddedCluster, wait_for: Callable[..., Any]
) -> None:
    words = ("sbatch", "--parsable", "-p", "arandu", "--gpus=1", "--output=/dev/null", "--time=30:00")
    job = cluster.run(*words, "--wrap=exec sleep 1000").stdout.strip()
    try:
        wait_for(lambda: "R" in cluster.run("squeue", "-h", "-o", "%t", "-j", job).stdout, "the job of the terminal")
        kernel = node_kernel(f"on={job}")
        assert kernel.value(_JOB) == job
        assert kernel.value("__import__('os').environ['CUDA_VISIBLE_DEVICES']") == "0"
        kernel.run("x = 41")
        kernel.manager.restart_kernel()
        kernel.listen()
        assert kernel.value("'x' in globals()") == "False"
        assert kernel.value(_JOB) == job
        kernel.stop()
        wait_for(
            lambda: cluster.run("squeue", "--steps", "-h", "-o", "%i", "-j", job).stdout.count(".") <= 3, "its end"
        )
        assert cluster.run("squeue", "-h", "-o", "%T", "-j", job).stdout.strip() == "RUNNING"
    finally:
        cluster.run("scancel", job)
