"""Tests of kernels in containers on a node: real runtimes, and an image with another ipykernel."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from containers import Docker

from jupyter_slurm.embedded import EmbeddedCluster

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.here_only("what a node does is the same over SSH"),
]


@pytest.fixture(params=["docker", "charliecloud"])
def contained(
    request: pytest.FixtureRequest, docker: Docker, jupyter_tar: Path, jupyter_tree: Path
) -> tuple[str, dict[str, str]]:
    """Provide the keyword of an image with an ipykernel, and the environment variables of its runtime."""
    if request.param == "charliecloud":
        return f"image={jupyter_tree}", {}
    docker.run("import", str(jupyter_tar), "jupyter-slurm/notebook:6")
    return "image=jupyter-slurm/notebook:6", {"DOCKER_HOST": docker.host}


def test_a_kernel_lives_in_a_container(
    node_kernel: Any,
    notebook: Any,
    contained: tuple[str, dict[str, str]],
    cluster: EmbeddedCluster,
    docker: Docker,
    wait_for: Callable[..., Any],
) -> None:
    word, variables = contained
    kernel = node_kernel("-p", "arandu", word, **variables)
    image = word.partition("=")[2]
    assert kernel.value("__import__('os').environ['JUPYTER_SLURM_CONTAINER']").endswith(image)
    assert kernel.value("__import__('sys').executable") == "/usr/bin/python3"  # Python of the image
    assert kernel.value("__import__('ipykernel').version_info[0]") == "6"
    # An interrupt reaches the cell in the container, and the kernel continues.
    kernel.run("x = 1")
    cell = kernel.begin("import time\nprint('sleeps', flush=True)\nwhile True: time.sleep(0.1)")
    wait_for(lambda: "sleeps" in kernel.said(cell), "the cell runs")
    kernel.manager.interrupt_kernel()
    assert kernel.end(cell).kind == "KeyboardInterrupt"
    assert kernel.value("x") == "1"
    # Another notebook runs a cell in the kernel, after a failed cell of the first one.
    failing = kernel.begin("1 / 0")
    told = notebook.run(
        "%%remote kernel out=y\nx += 1\ny = [x]\nimport asyncio; await asyncio.sleep(0)\nprint('there')\nx"
    )
    assert told.stdout.endswith("there\n2\n"), told.error
    assert kernel.end(failing).kind == "ZeroDivisionError"
    assert (notebook.value("y"), kernel.value("x")) == ("[2]", "2")
    cell = notebook.begin("%%remote kernel\nprint('sleeps', flush=True)\nwhile True: time.sleep(0.1)")
    wait_for(lambda: "sleeps" in notebook.said(cell), "the cell runs")
    notebook.manager.interrupt_kernel()
    assert "was interrupted" in notebook.end(cell).error
    assert kernel.value("x") == "2"
    # A restart is another container in the same allocation.
    job = kernel.value("__import__('os').environ['SLURM_JOB_ID']")
    kernel.manager.restart_kernel()
    kernel.listen()
    assert kernel.run("x").kind == "NameError"
    assert kernel.value("__import__('os').environ['SLURM_JOB_ID']") == job
    kernel.stop()
    wait_for(lambda: not docker.running(), "no container is left")


def test_another_image_comes_with_a_restart_in_the_same_allocation_and_other_options_with_another(
    node_kernel: Any, study: Any, jupyter_tree: Path, cluster: EmbeddedCluster, wait_for: Callable[..., Any]
) -> None:
    job, container = "__import__('os').environ['SLURM_JOB_ID']", "'JUPYTER_SLURM_CONTAINER' in __import__('os').environ"
    kernel = node_kernel("-p", "arandu")
    before = kernel.value(job)
    assert kernel.value(container) == "False"
    study.change(kernel, "-p", "arandu", f"image={jupyter_tree}")
    kernel.manager.restart_kernel()
    kernel.listen()
    assert (kernel.value(container), kernel.value(job)) == ("True", before)
    study.change(kernel, "-p", "arandu", "-c2", f"image={jupyter_tree}")
    kernel.manager.restart_kernel()
    kernel.listen()
    assert kernel.value(container) == "True"
    assert kernel.value(job) != before
    queued = ["squeue", "--noheader", "--format=%A"]
    wait_for(lambda: before not in cluster.run(*queued).stdout.split(), "the allocation before is given back")


def test_a_kernel_in_an_allocation_has_its_image(node_kernel: Any, notebook: Any, jupyter_tree: Path) -> None:
    container = "'JUPYTER_SLURM_CONTAINER' in __import__('os').environ"
    assert notebook.run(f'%salloc -p arandu "image={jupyter_tree}" as=box wait').error == ""
    kernel = node_kernel("on=box", "python=/usr/bin/python3")
    assert kernel.value(container) == "True"
    kernel.stop()
    assert node_kernel("on=box", "image=none", f"python={sys.executable}").value(container) == "False"
    notebook.run("%salloc release on=box")


def test_a_docker_that_dies_under_it_is_told_and_so_is_an_image_that_nobody_has(
    node_kernel: Any, cluster: EmbeddedCluster, jupyter_tar: Path, new_docker: Callable[[str], Any]
) -> None:
    """A dead daemon ends no container: the end of the step does."""
    with new_docker("kernels") as docker:
        docker.run("import", str(jupyter_tar), "jupyter-slurm/notebook:6")
        reached = {"DOCKER_HOST": docker.host}
        missing = node_kernel("-p", "arandu", "image=example.invalid/no/such:1", **reached)
        kernel = node_kernel("-p", "arandu", "image=jupyter-slurm/notebook:6", **reached)
        assert kernel.value("__import__('os').environ['JUPYTER_SLURM_CONTAINER']").startswith("docker ")
        told = missing.run("1")
        assert told.kind == "KernelNotStarted"
        assert "The image example.invalid/no/such:1" in told.error, told.error
        cell = kernel.begin("import time; time.sleep(600)")
        os.kill(docker.pid, signal.SIGKILL)
        told = kernel.end(cell)
        assert told.kind == "KernelDied"
        assert "The daemon of docker does not answer on this node" in told.error, told.error
        kernel.manager.restart_kernel()
        kernel.listen()
        told = kernel.run("1")
        assert told.kind == "KernelNotStarted"
        assert "The daemon of docker does not answer on this node" in told.error, told.error


def test_an_image_without_a_kernel_says_so_in_the_cell(node_kernel: Any, docker: Docker) -> None:
    told = node_kernel("-p", "arandu", f"image={docker.image}", DOCKER_HOST=docker.host).run("1")
    assert told.status == "error"
    assert "has no ipykernel" in told.error, told.error
    assert f"The image {docker.image}" in told.error, told.error
