"""Tests of nodes that do not see all files of this machine: an embedded cluster hides a directory from them."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import pytest

from jupyter_slurm.embedded import load_description

pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.carrier("paramiko")]


@pytest.fixture
def far(new_cluster, short_tmp):
    """Provide a cluster whose node does not see a directory of this machine, and that directory."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount something over a directory")
    directory = short_tmp / "here"
    directory.mkdir(exist_ok=True)
    node = replace(load_description().nodes[1], names=("far1",), hidden=(str(directory),))
    partition = replace(load_description().partitions[1], nodes=node.names)
    return new_cluster(nodes=(node,), partitions=(partition,)), directory


async def test_a_python_that_the_node_does_not_see_is_told_before_and_after(far, open_desk, tmp_path):
    cluster, directory = far
    (directory / "python").symlink_to(sys.executable)
    python = str(directory / "python")
    async with open_desk(cluster, tmp_path) as desk:
        shown = await desk.core.cluster(desk.id).submit(desk.asked("print(1)", python=python, dry_run=True))
        (warning,) = shown["warnings"]
        assert python in warning
        assert "the nodes may not have it" in warning
        assert "Give python=PATH" in warning
        job = await desk.submit("print(1)", python=python)
        assert job["warnings"] == [warning]
        job = await desk.finished(job["key"])
        assert (job["state"], job["exit_code"]) == ("FAILED", 127)
        assert await desk.text(job["key"], "stderr") == (
            f"Node far1 has no {python}\nUse python=PATH with a Python that the node sees\n"
        )
        job = await desk.finished((await desk.submit("print(1)", python="/usr/bin/python3"))["key"])
        assert (job["state"], job["warnings"]) == ("COMPLETED", [])


@pytest.mark.parametrize(("text", "python"), [("#!/bin/sh\n", None), ("print(1)", "/usr/bin/python3")])
async def test_job_folders_that_the_node_does_not_see_are_told(far, open_desk, tmp_path, text, python):
    """Slurm itself opens the output, and reports only a number."""
    cluster, directory = far
    async with open_desk(cluster, tmp_path, job_root=str(directory / "jobs")) as desk:
        job = await desk.finished((await desk.submit(text, python=python))["key"])
        assert (job["state"], job["nodes"]) == ("FAILED", "far1")
        assert "output file could not be opened" in job["reason_text"]
        assert "c.JupyterSlurm.job_root" in job["next_step"]
