"""The life of a kernel on a node: start, pending, restart, death, shutdown; and who may die beside it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.embedded import EmbeddedCluster

pytestmark = pytest.mark.slurm

_here = pytest.mark.here_only("what is different over SSH is in the first one")

_JOB = "__import__('os').environ['SLURM_JOB_ID']"


def jobs(cluster: EmbeddedCluster) -> set[str]:
    """Return the jobs that are not over."""
    states = "--states=PENDING,RUNNING,CONFIGURING"
    return set(cluster.run("squeue", "--noheader", "--format=%A", states).stdout.split())


@pytest.mark.carrier("paramiko")
def test_a_kernel_begins_lives_and_gives_back_what_it_had(
    node_kernel: Any, study: Any, cluster: EmbeddedCluster, wait_for: Callable[..., Any]
) -> None:
    kernel = node_kernel("-p", "arandu", "--gpus", "1")
    job = kernel.value(_JOB)
    (record,) = (study.folder / "jobs").rglob(f"{kernel.post['allocation']}/job.json")
    assert json.loads(record.read_text())["kernel"]["display_name"] == "A far kernel"
    assert job in jobs(cluster)
    assert kernel.value("__import__('os').environ['CUDA_VISIBLE_DEVICES']") == "0"
    secret = kernel.post["secret"]
    told = cluster.run("scontrol", "show", "job", job).stdout
    assert secret not in told
    assert secret not in kernel.value("open('/proc/self/environ').read()")

    # Another kernel can share it, and takes nothing along.
    other = node_kernel(f"on={kernel.post['label']}")
    assert other.value(_JOB) == job
    other.stop()
    assert kernel.value(_JOB) == job

    # A restart keeps the allocation, and none of the variables.
    kernel.run("x = 1")
    kernel.manager.restart_kernel()
    kernel.listen()
    assert kernel.value(_JOB) == job
    assert kernel.run("x").kind == "NameError"

    # So does a death, which says why: this is what a restarter of jupyter_client does then.
    died = kernel.run("import os; os.kill(os.getpid(), 9)")
    assert died.kind == "KernelDied"
    assert "SIGKILL" in died.error
    wait_for(lambda: not kernel.manager.is_alive(), "the front has ended")
    kernel.manager.restart_kernel(now=True)
    kernel.listen()
    assert kernel.value(_JOB) == job

    kernel.stop()
    wait_for(lambda: job not in jobs(cluster), "the allocation is given back")
    assert not kernel.post


@_here
def test_a_cell_says_what_it_waits_for_and_can_be_given_up(
    node_kernel: Any, cluster: EmbeddedCluster, wait_for: Callable[..., Any]
) -> None:
    before = jobs(cluster)
    kernel = node_kernel("-p", "arandu", "--begin=now+1hour")
    cell = kernel.begin("1")
    wait_for(lambda: "Waits for its allocation (PENDING)" in kernel.said(cell), "the cell says what it waits for")
    kernel.manager.interrupt_kernel()
    assert kernel.end(cell).kind == "KeyboardInterrupt"
    assert len(jobs(cluster) - before) == 1, "the allocation is waited for"
    kernel.client.stop_channels()
    kernel.manager.shutdown_kernel(now=True)
    wait_for(lambda: jobs(cluster) <= before, "it is given back, although its front was killed at once")


@_here
def test_what_slurm_refuses_says_so_in_the_cell_and_is_not_asked_for_again(node_kernel: Any) -> None:
    kernel = node_kernel("-p", "nosuch")
    told = kernel.run("1")
    assert told.kind == "KernelNotStarted"
    assert "nosuch" in told.error or "partition" in told.error
    assert kernel.manager.is_alive()


@_here
def test_the_kernel_goes_on_when_front_and_agent_are_killed(
    node_kernel: Any, study: Any, cluster: EmbeddedCluster, wait_for: Callable[..., Any]
) -> None:
    kernel = node_kernel("-p", "arandu")
    gate = study.folder / "go-on"
    cell = kernel.begin(
        f"import pathlib, time\nx = 1\nprint('begun', flush=True)\n"
        f"while not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.05)\n"
        "for number in range(5000): print(number)\n"
    )
    wait_for(lambda: "begun" in kernel.said(cell), "the cell has begun")
    front = kernel.front
    os.kill(front, signal.SIGKILL)
    wait_for(lambda: kernel.manager.is_alive() and kernel.front != front, "another front has taken its place")
    gate.touch()
    printed = kernel.end(cell).stdout
    assert printed == "begun\n" + "".join(f"{number}\n" for number in range(5000))

    os.kill(_agent(study.folder), signal.SIGKILL)
    assert kernel.value("x") == "1"

    # One that is killed as it asks for an allocation has not heard which one it was given.
    job, front = kernel.value(_JOB), kernel.front
    os.kill(front, signal.SIGSTOP)
    unheard = {**kernel.post, "allocation": None, "step": None, "state": "starting"}
    Path(f"{kernel.manager.connection_file}.slurm").write_text(json.dumps(unheard) + "\n")
    os.kill(front, signal.SIGKILL)
    wait_for(lambda: kernel.manager.is_alive() and kernel.front != front, "another front has taken its place")
    kernel.listen()
    assert kernel.value(_JOB) == job
    cluster.run("scancel", job)


def _agent(folder: Path) -> int:
    """Return the process of the agent."""
    records = [json.loads(path.read_text()) for path in (folder / "run").rglob("*.json")]
    return next(int(record["pid"]) for record in records if "pid" in record)


@_here
def test_an_allocation_that_ends_says_why_and_a_restart_asks_for_another(
    node_kernel: Any, cluster: EmbeddedCluster
) -> None:
    kernel = node_kernel("-p", "arandu")
    job = kernel.value(_JOB)
    cell = kernel.begin("import time; time.sleep(600)")
    cluster.run("scancel", job)
    told = kernel.end(cell)
    assert told.kind == "KernelEnded"
    assert job in told.error
    assert kernel.manager.is_alive(), "nothing is asked of Slurm before a person does"
    assert kernel.run("1").kind == "KernelEnded"
    kernel.manager.restart_kernel()
    kernel.listen()
    assert kernel.value(_JOB) != job


@_here
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_notebook_finds_its_kernel_again_after_its_jupyter_server_has_ended(
    jupyter: Any, cluster: EmbeddedCluster, wait_for: Callable[..., Any], number: signal.Signals
) -> None:
    server = jupyter()
    kernel = server.open("a.ipynb")
    kernel.run("x = 1")
    job = kernel.value(_JOB)
    server.end(number)
    server = jupyter()
    kernel = server.open("a.ipynb")
    assert kernel.value("x") == "1"
    assert job in jobs(cluster)
    server.close()
    wait_for(lambda: job not in jobs(cluster), "the allocation is given back")
