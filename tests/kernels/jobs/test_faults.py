"""Tests of faults of Slurm and of nodes: a cell reports the end of its kernel, a restart gets another one."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.embedded import EmbeddedCluster, load_description
from jupyter_slurm.embedded.description import Partition, Preemption
from jupyter_slurm.embedded.machine.processes import find_daemons

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.root,
    pytest.mark.here_only("what Slurm and nodes do is the same over SSH"),
    pytest.mark.xdist_group("kernel-faults"),  # they share a cluster
]

FIRST, SECOND = "c4aiscw1", "c4aiscw2"
JOB = "__import__('os').environ['SLURM_JOB_ID']"
FOLDER = "__import__('os').path.dirname(__import__('sys').argv[-1])"
SLEEPS = "import time\nprint('sleeps', flush=True)\nwhile True: time.sleep(600)"
STAYS = "import time\nprint('sleeps', flush=True)\nwhile True:\n try: time.sleep(600)\n except BaseException: pass"


@pytest.fixture(scope="module")
def cluster(short_tmp: Path) -> Iterator[EmbeddedCluster]:
    """Provide two nodes to disturb; jobs in ``high`` take the nodes of those in ``low``."""
    arandu = load_description()
    nodes = replace(arandu.nodes[1], names=(FIRST, SECOND))
    low = Partition("low", nodes.names, default=True, priority_tier=1, preempt_mode="requeue")
    description = replace(
        arandu,
        nodes=(nodes,),
        partitions=(low, Partition("high", nodes.names, priority_tier=10, preempt_mode="off")),
        preemption=Preemption("partition", "requeue"),
        extra=(*arandu.extra, "KillWait=1"),
    )
    with EmbeddedCluster(description, directory=short_tmp / "kf") as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def limited(study: Any, cluster: EmbeddedCluster, wait_for: Callable[..., Any]) -> Iterator[tuple[Any, str, str, str]]:
    """Provide a kernel with a minute, during other tests: with its job, the folder of its sockets, and a cell."""
    kernel = study.start_kernel("-w", FIRST, "--time=1")
    yield kernel, kernel.value(JOB), kernel.value(FOLDER), begun(kernel, wait_for)
    kernel.stop()


@pytest.fixture
def nothing_left(cluster: EmbeddedCluster, wait_for: Callable[..., Any]) -> Callable[..., None]:
    """Return ``nothing_left(*folders)``, which checks for new jobs, processes of them, and those folders."""

    def jobs() -> set[str]:
        return set(cluster.run("squeue", "--noheader", "--format=%A", check=False).stdout.split())

    before = jobs()
    others = {f"SLURM_JOB_ID={job}".encode() for job in before}

    def left(folders: tuple[str, ...]) -> list[str]:
        found = sorted(jobs() - before)
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                env = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                is_ours = f"SLURM_CONF={cluster.slurm_conf}".encode() in env
                if is_ours and any(one.startswith(b"SLURM_JOB_ID=") for one in env) and not others & set(env):
                    found.append(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "))
        return found + [folder for folder in folders if os.path.exists(folder)]

    def check(*folders: str) -> None:
        wait_for(lambda: not left(folders) or None, f"nothing is left, of {left(folders)}", 120)

    return check


def keeper_of(folder: str) -> int:
    """Return the process that owns the folder of a kernel's sockets."""
    return int(Path(folder, "holder").read_text().split("/")[-2])


def restarted(kernel: Any) -> str:
    """Restart a kernel, as a user or a restarter does; return its job."""
    kernel.manager.restart_kernel()
    kernel.listen()
    return str(kernel.value(JOB))


def begun(kernel: Any, wait_for: Callable[..., Any], code: str = SLEEPS) -> str:
    """Start a cell that sleeps."""
    cell = str(kernel.begin(code))
    wait_for(lambda: "sleeps" in kernel.said(cell), "the cell runs")
    return cell


def test_a_step_that_slurm_ends_says_so_and_its_allocation_has_the_next_one(
    node_kernel: Any, cluster: EmbeddedCluster, wait_for: Callable[..., Any], nothing_left: Callable[..., None]
) -> None:
    """By scancel, by its memory, by a signal to its keeper."""
    kernel = node_kernel("--mem=300")
    job, folders = kernel.value(JOB), [kernel.value(FOLDER)]
    cell = begun(kernel, wait_for)
    cluster.run("scancel", f"{job}.0")
    told = kernel.end(cell)
    assert told.kind == "KernelDied"
    assert re.search(rf"STEP {job}\.0 ON c4aiscw. CANCELLED AT ", told.error), told.error

    assert restarted(kernel) == job
    folders.append(kernel.value(FOLDER))
    told = kernel.run("x = b'x' * (1 << 30)")
    assert told.kind == "KernelDied"
    assert "The kernel used more memory than its allocation has" in told.error
    assert re.search("oom[-_]kill event", told.error), told.error

    assert restarted(kernel) == job
    folders.append(kernel.value(FOLDER))
    os.kill(keeper_of(folders[-1]), signal.SIGKILL)
    told = kernel.run("1")
    assert told.kind == "KernelDied"
    assert "task 0: Killed" in told.error
    wait_for(lambda: not os.path.exists(folders[-1]), "its folder is removed")
    assert restarted(kernel) == job

    folders.append(kernel.value(FOLDER))
    cell = begun(kernel, wait_for, STAYS)
    cluster.run("scancel", job)
    told = kernel.end(cell)
    assert (told.kind, f"Allocation {job}" in told.error, "CANCELLED" in told.error) == ("KernelEnded", True, True)
    kernel.stop()
    nothing_left(*folders)


def test_slurms_daemons_may_be_away_while_it_runs_and_while_it_starts(
    node_kernel: Any, cluster: EmbeddedCluster, wait_for: Callable[..., Any], nothing_left: Callable[..., None]
) -> None:
    def slurmd() -> list[Any]:
        found = find_daemons(cluster.state.mark)
        return [one for one in found if one.role == f"slurmd/{FIRST}" and one.name == "slurmd"]

    running = node_kernel("-w", FIRST)
    job, folder = running.value(JOB), running.value(FOLDER)
    cluster.stop_controller()
    assert running.value("6 * 7") == "42"
    other = node_kernel("-w", SECOND)
    waits = other.begin("print('is there')")
    wait_for(lambda: "Waiting for its allocation (SUBMITTING)" in other.said(waits), "its cell says what it waits for")
    cluster.start_controller()
    assert other.end(waits).stdout == "is there\n"
    other.stop()

    for one in slurmd():
        one.send(signal.SIGKILL)
    try:
        wait_for(lambda: not slurmd(), "slurmd is gone")
        assert running.value("6 * 7") == "42"
        running.manager.restart_kernel()
        running.listen()
        waits = running.begin(f"print({JOB})")
        wait_for(lambda: "Starting on" in running.said(waits), "its cell says what it waits for")
    finally:
        cluster.start_node(FIRST)
    assert running.end(waits).stdout == f"{job}\n"
    running.stop()
    nothing_left(folder)


def test_what_there_is_not_is_said_and_nothing_is_left(
    node_kernel: Any, user_python: tuple[list[str], dict[str, str]], nothing_left: Callable[..., None]
) -> None:
    asked = {
        ("--gpus=9",): "--gpus=9 is more than all nodes in partition low have: 2 GPUs",
        ("--mem=90G",): "--mem=90G is more than any node in partition low has: at most 64G",
        ("--mem=60",): "The kernel used more memory than its allocation has",
        ("kernel=nosuch",): "has no kernel nosuch. Available kernels: ",
        ("dir=/no/such",): "has no folder /no/such. Choose another folder with dir=FOLDER.",
        ("image=/nosuch.sif",): "/nosuch.sif",
        ("python=/nosuch/python",): "has no /nosuch/python. Use python=PATH with a Python that the node sees.",
    }
    kernels = {words: node_kernel(*words) for words in asked}
    cells = {words: kernel.begin("1") for words, kernel in kernels.items()}
    for words, kernel in kernels.items():
        told = kernel.end(cells[words])
        assert told.kind == "KernelNotStarted"
        assert asked[words] in told.error, told.error
        is_kept = words[0] in ("--mem=60", "kernel=nosuch", "dir=/no/such", "image=/nosuch.sif")
        assert ("is kept for another start, for 1 h" in told.error) == is_kept, told.error
        kernel.stop()
    nothing_left()


@pytest.fixture
def small(new_study: Callable[..., Any], tmp_path: Path) -> Iterator[Any]:
    """Provide a workplace whose job directories are on a disk of two megabytes."""
    disk = tmp_path / "small"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2M,mode=700", "none", str(disk)], check=True)
    try:
        with new_study(disk) as study:
            yield study
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_it_goes_on_while_the_disk_of_job_directories_is_full_and_restarts_when_there_is_room(
    small: Any, tmp_path: Path, wait_for: Callable[..., Any], nothing_left: Callable[..., None]
) -> None:
    kernel = small.start_kernel("-w", FIRST)
    job, folder = kernel.value(JOB), kernel.value(FOLDER)
    full = next((tmp_path / "small").iterdir()) / "others"
    with contextlib.suppress(OSError), full.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    told = kernel.run("import os\nos.write(2, b'z' * 9000)\nprint('goes on')")
    assert (told.status, told.stdout) == ("ok", "goes on\n")
    kernel.manager.restart_kernel()
    kernel.listen()
    told = kernel.run("1")
    assert told.kind == "KernelNotStarted"
    assert "No space left on device" in told.error
    assert "The disk is full" in told.error
    full.unlink()
    assert restarted(kernel) == job
    kernel.stop()
    nothing_left(folder)


def test_at_its_time_limit_the_cell_was_warned_and_says_so(limited: Any, nothing_left: Callable[..., None]) -> None:
    kernel, job, folder, cell = limited
    told = kernel.end(cell)
    assert told.kind == "KernelEnded"
    assert f"Allocation {job}" in told.error
    assert "TIMEOUT" in told.error or "COMPLETING" in told.error
    assert "reached its time limit of 1:00" in told.error
    assert "Warning: this kernel's allocation ends in 0:0" in kernel.said(cell)
    nothing_left(folder)


def test_a_node_that_fails_ends_it_and_a_restart_asks_for_another_allocation(
    node_kernel: Any, cluster: EmbeddedCluster, wait_for: Callable[..., Any], nothing_left: Callable[..., None]
) -> None:
    kernel = node_kernel("-w", SECOND)
    job = kernel.value(JOB)
    cell = begun(kernel, wait_for)
    cluster.kill_node(SECOND)
    cluster.run("scontrol", "update", f"nodename={SECOND}", "state=down", "reason=test")
    try:
        told = kernel.end(cell)
        assert told.kind == "KernelEnded"
        assert "NODE_FAIL" in told.error
        assert "A node of the job failed" in told.error
        assert kernel.run("1").kind == "KernelEnded", "nothing is asked of Slurm before a person does"
    finally:
        cluster.start_node(SECOND)
        cluster.run("scontrol", "update", f"nodename={SECOND}", "state=resume", check=False)
    assert restarted(kernel) != job
    kernel.stop()
    nothing_left()


def test_a_preempted_one_says_so_and_begins_anew_where_its_allocation_was_requeued(
    node_kernel: Any, cluster: EmbeddedCluster, wait_for: Callable[..., Any], nothing_left: Callable[..., None]
) -> None:
    ended, requeued = node_kernel("-w", FIRST), node_kernel("-w", SECOND, "--requeue")
    jobs = [ended.value(JOB), requeued.value(JOB)]
    folders = [ended.value(FOLDER), requeued.value(FOLDER)]
    first, second = begun(ended, wait_for), begun(requeued, wait_for)
    high = ["--parsable", "-p", "high", "-N2", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 1000"]
    taker = cluster.run("sbatch", *high).stdout.strip()

    told = ended.end(first)
    assert told.kind == "KernelEnded"
    assert f"Allocation {jobs[0]}" in told.error
    assert "PREEMPTED" in told.error
    ended.stop()

    told = requeued.end(second)
    assert told.kind == "KernelDied"
    assert "Slurm requeued its allocation" in told.error
    wait_for(lambda: not requeued.manager.is_alive(), "the front has ended: Jupyter starts another one")
    requeued.manager.restart_kernel(now=True)
    requeued.listen()
    cell = requeued.begin(f"print({JOB})")
    cluster.run("scancel", taker)
    state = ["squeue", "--noheader", f"--jobs={jobs[1]}", "--format=%T %r"]
    wait_for(lambda: cluster.run(*state).stdout == "PENDING BeginTime\n", "it waits for about two minutes")
    cluster.run("scontrol", "update", f"jobid={jobs[1]}", "starttime=now")
    assert requeued.end(cell).stdout == f"{jobs[1]}\n"

    folders.append(requeued.value(FOLDER))
    cell = begun(requeued, wait_for)
    cluster.kill_node(SECOND)  # no process of the node reports the end of a step
    cluster.run("scontrol", "update", f"nodename={SECOND}", "state=down", "reason=test")
    try:
        assert requeued.end(cell).kind == "KernelDied"
    finally:
        cluster.start_node(SECOND)
        cluster.run("scontrol", "update", f"nodename={SECOND}", "state=resume", check=False)
    requeued.stop()
    nothing_left(*folders[:2])
