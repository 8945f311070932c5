"""Tests of a training loop that loses no epoch, whatever ends its job."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.embedded import EmbeddedCluster, load_description
from jupyter_slurm.embedded.description import Partition, Preemption
from jupyter_slurm.errors import OptionError

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.carrier("paramiko")]

LOOP = """
import pathlib, time
from jupyter_slurm_job import checkpoint_dir, interrupted

go, saved = pathlib.Path({go!r}), checkpoint_dir() / "epoch"
for epoch in range(int(saved.read_text()) if saved.exists() else 0, 6):
    while epoch == 3 and not go.exists() and not ({asks} and interrupted()):
        time.sleep(0.05)
    print("epoch", epoch)
    (checkpoint_dir() / "new").write_text(str(epoch + 1))
    (checkpoint_dir() / "new").replace(saved)
    if {asks} and interrupted():
        break
else:
    print("all done")
"""

# Longest wait for a second run, in seconds: where the order to start at once comes too early, Slurm waits two minutes.
SECOND_RUN = 400

SCRIPT = """#!/bin/bash
{trap}
cd "$JUPYTER_SLURM_CHECKPOINT_DIR" && srun true || exit
for ((epoch = $(cat epoch || echo 0); epoch < 6; epoch++)); do
    while [ $epoch = 3 ] && [ ! -e {go} ] && [ ! "$told" ]; do sleep 0.05; done
    echo "epoch $epoch"
    echo $((epoch + 1)) > new && mv new epoch
    [ ! "$told" ] || {{ [ -e "$JUPYTER_SLURM_INTERRUPTED" ]; exit; }}
done
echo "all done" "$@"
"""


@pytest.fixture(scope="module")
def preempting(short_tmp: Path) -> Iterator[EmbeddedCluster]:
    """Provide a cluster of two nodes and two partitions; jobs of one preempt those of the other, after a grace time."""
    arandu = load_description()
    nodes = dataclasses.replace(arandu.nodes[1], names=("c4aiscw1", "c4aiscw2"))
    low = Partition("low", nodes.names, default=True, priority_tier=1, preempt_mode="requeue", grace_time=16)
    high = Partition("high", nodes.names, priority_tier=10, preempt_mode="off")
    description = dataclasses.replace(
        arandu,
        nodes=(nodes,),
        partitions=(low, high),
        preemption=Preemption("partition", "requeue"),
    )
    with EmbeddedCluster(description, directory=short_tmp / "resume") as running:
        yield running


def begun(job: dict[str, Any]) -> Callable[[], bool]:
    """Return whether a job waits in its fourth epoch."""
    output = Path(job["folder"], "stdout")
    return lambda: output.exists() and "epoch 2\n" in output.read_text()


def start_now(cluster: EmbeddedCluster, job: dict[str, Any]) -> bool:
    """Start a requeued job without the two minutes for which the credentials of its last run are valid."""
    cluster.run("scontrol", "update", f"jobid={job['id']}", "excnodelist=", "starttime=now", check=False)
    shown = cluster.run("squeue", "-h", "-j", job["id"], "-O", "state,restartcnt").stdout.split()
    return shown[1:] == ["1"] and shown[0] != "PENDING"  # a short run may be over by now


async def ended_well(desk: Any, job: dict[str, Any], *, lost: int = 0) -> str:
    """Follow a job to its end, check that every epoch is there in order, and return its other output."""
    ended = await desk.finished(job["key"])
    said = await desk.text(job["key"], "stderr")
    assert (ended["state"], ended["restarts"]) == ("COMPLETED", 1), said
    epochs = [int(number) for number in re.findall("epoch ([0-9])", await desk.text(job["key"]))]
    assert epochs == [0, 1, 2, 3, 4, 5]
    assert (await desk.text(job["key"])).endswith("all done\n")
    assert json.loads(Path(job["folder"], "end.json").read_text())["restarts"] == 1
    assert "Restart 1 of 5" in said
    return said


async def preempt(desk: Any, cluster: EmbeddedCluster, job: dict[str, Any], node: str) -> None:
    """Preempt a running job with a job of higher priority; return when the preempted job waits again."""
    cluster.run("sbatch", "-p", "high", "-w", node, "--exclusive", "-o", "/dev/null", "--wrap", "true")
    waits = await desk.until(job["key"], lambda job: job["restarts"] == 1 and job["state"] == "PENDING")
    assert not waits["finished"]


async def preempted(
    desk: Any, cluster: EmbeddedCluster, go: Path, wait_for: Any, node: str, asks: bool, launcher: str | None = None
) -> str:
    """Run a loop that is preempted; return its other output."""
    options = ["-p", "low", "-w", node, "-c1", "--mem=200", "-t", "10"]
    job = await desk.submit(LOOP.format(go=str(go), asks=asks), *options, resume=5, launcher=launcher)
    await asyncio.to_thread(wait_for, begun(job), "the fourth epoch")
    cluster.run("sbatch", "-p", "high", "-w", node, "--exclusive", "-o", "/dev/null", "--wrap", "true")
    waits = await desk.until(job["key"], lambda job: job["restarts"] == 1 and job["state"] == "PENDING")
    assert not waits["finished"]
    go.touch()
    await asyncio.to_thread(wait_for, lambda: start_now(cluster, job), "the second run", SECOND_RUN)
    return await ended_well(desk, job)


async def script_goes_on(desk: Any, cluster: EmbeddedCluster, go: Path, wait_for: Any, *options: str, trap: str) -> str:
    """Run a script whose node or time is taken; return its other output."""
    text = SCRIPT.format(go=go, trap=trap)
    job = await desk.submit(text, *options, resume=5, python=sys.executable)
    waits = await desk.until(job["key"], lambda job: job["restarts"] == 1 and job["state"] == "PENDING", timeout=120)
    assert not waits["finished"]
    go.touch()
    await asyncio.to_thread(wait_for, lambda: start_now(cluster, job), "the second run", SECOND_RUN)
    assert (await desk.core.cluster(desk.id).results.source(job["key"])).decode() == text
    return await ended_well(desk, job)


async def test_preempted_it_goes_on_whether_or_not_it_asks(preempting, open_desk, tmp_path, wait_for):
    async with open_desk(preempting, tmp_path) as desk:
        # A rank gets the signal of the preemption directly, and must not end sooner than any other cell.
        ranks = None if desk.way.is_remote else "srun"
        saves = preempted(desk, preempting, tmp_path / "go1", wait_for, "c4aiscw1", asks=True, launcher=ranks)
        if desk.way.is_remote:  # a run is independent of the connection
            await saves
            return
        goes_on = preempted(desk, preempting, tmp_path / "go2", wait_for, "c4aiscw2", asks=False)
        few = ["-p", "low", "-c1", "--mem=200", "-t", "10"]
        trap = script_goes_on(desk, preempting, tmp_path / "go3", wait_for, *few, "-wc4aiscw1", trap="trap told=1 USR1")
        deaf = script_goes_on(desk, preempting, tmp_path / "go4", wait_for, *few, "-wc4aiscw2", trap="")
        for said, words in zip(
            await asyncio.gather(saves, goes_on, trap, deaf),
            (
                "The cell has stopped for now",
                "The cell is still running at the end of this run",
                "The script has stopped for now",
                "The script is still running at the end of this run",
            ),
            strict=True,
        ):
            assert "this run is to end: a job of higher priority takes the nodes; " in said
            assert "The run before ended: a job of higher priority takes the nodes" in said
            assert words in said


async def at_its_time_limit(desk: Any, cluster: EmbeddedCluster, folder: Path, wait_for: Any) -> None:
    options = ["-t", "1", "--signal=B:USR1@59", "-p", "high", "-w", "c4aiscw2", "-c1", "--mem=200"]
    job = await desk.submit(LOOP.format(go=str(folder / "go1"), asks=True), *options, resume=5)
    await desk.until(job["key"], lambda job: job["restarts"] == 1 and job["state"] == "PENDING", timeout=120)
    (folder / "go1").touch()
    await asyncio.to_thread(wait_for, lambda: start_now(cluster, job), "the second run", SECOND_RUN)
    said = await ended_well(desk, job)
    assert "this run is to end: the time limit is near; " in said
    assert "has stopped for now" in said


async def script_at_its_time_limit(desk: Any, cluster: EmbeddedCluster, folder: Path, wait_for: Any) -> None:
    options = ["-t", "1", "--signal=B:USR2@59", "-p", "high", "-w", "c4aiscw2", "-c1", "--mem=200"]
    said = await script_goes_on(desk, cluster, folder / "go5", wait_for, *options, trap="trap told=1 USR1")
    assert "this run is to end: the time limit is near; " in said


async def an_array_at_its_time_limit(desk: Any, cluster: EmbeddedCluster, folder: Path, wait_for: Any) -> None:
    """The number of one task is that of the array: this task is requeued, and no other one."""
    text = LOOP.format(go=str(folder / "go3"), asks=True)
    only = f"import os\nif os.environ['SLURM_JOB_ID'] != os.environ['SLURM_ARRAY_JOB_ID']:\n    exit(print('once'))\n{text}"
    options = ["--array=0-1", "-t", "1", "--signal=B:USR1@59", "-p", "high", "-w", "c4aiscw2", "-c1", "--mem=200"]
    job = await desk.submit(only, *options, resume=5)

    def tasks() -> dict[str, list[str]]:
        shown = cluster.run(
            "squeue", "-h", "-r", "-t", "all", "-j", job["id"], "-O", "arraytaskid,state,restartcnt"
        ).stdout
        return {task: rest for task, *rest in map(str.split, shown.splitlines())}

    await asyncio.to_thread(wait_for, lambda: ["PENDING", "1"] in tasks().values(), "the task that is requeued")
    assert ["COMPLETED", "0"] in tasks().values(), tasks()
    (folder / "go3").touch()
    (task,) = (task for task, (state, _) in tasks().items() if state == "PENDING")
    again = ("scontrol", "update", f"jobid={job['id']}_{task}", "excnodelist=", "starttime=now")

    def is_started() -> bool:
        cluster.run(*again, check=False)
        return tasks()[task][0] != "PENDING"

    await asyncio.to_thread(wait_for, is_started, "the second run", SECOND_RUN)
    ended = await desk.finished(job["key"])
    said = Path(job["folder"], f"stderr.{task}").read_text()
    assert ended["state"] == "COMPLETED", said
    printed = [Path(job["folder"], f"stdout.{number}").read_text() for number in ("0", "1")]
    assert "once\n" in printed, printed
    assert re.findall("epoch ([0-9])", "".join(printed)) == list("012345"), printed
    assert "Restart 1 of 5" in said


async def on_a_node_that_fails(desk: Any, cluster: EmbeddedCluster, folder: Path, wait_for: Any) -> None:
    job = await desk.submit(LOOP.format(go=str(folder / "go2"), asks=True), "--exclude=c4aiscw2", resume=5)
    await asyncio.to_thread(wait_for, begun(job), "the fourth epoch")
    cluster.kill_node("c4aiscw1")
    cluster.run("scontrol", "update", "nodename=c4aiscw1", "state=down", "reason=test")  # detected at once
    try:
        await desk.until(job["key"], lambda job: job["restarts"] == 1 and job["state"] == "PENDING")
        (folder / "go2").touch()
        await asyncio.to_thread(wait_for, lambda: start_now(cluster, job), "the second run, elsewhere", SECOND_RUN)
        assert "without a warning" in await ended_well(desk, job)
    finally:
        cluster.start_node("c4aiscw1")
        # the node may be back by itself
        cluster.run("scontrol", "update", "nodename=c4aiscw1", "state=resume", check=False)


@pytest.mark.here_only("nothing of it depends on the way there")
async def test_it_outlives_its_time_limit_and_its_node(preempting, open_desk, tmp_path, wait_for):
    async with open_desk(preempting, tmp_path) as desk:
        await asyncio.gather(
            at_its_time_limit(desk, preempting, tmp_path, wait_for),
            on_a_node_that_fails(desk, preempting, tmp_path, wait_for),
            script_at_its_time_limit(desk, preempting, tmp_path, wait_for),
            an_array_at_its_time_limit(desk, preempting, tmp_path, wait_for),
        )


@pytest.mark.here_only("nothing of it depends on the way there")
async def test_what_fails_or_is_cancelled_stays_so(desk, tmp_path, wait_for):
    job = await desk.submit("from jupyter_slurm_job import interrupted\nassert not interrupted()\n1 / 0", resume=5)
    ended = await desk.finished(job["key"])
    assert (ended["state"], ended["exit_code"], ended["restarts"]) == ("FAILED", 1, 0)
    job = await desk.submit("import time\nprint('here')\ntime.sleep(1000)", resume=5)
    output = Path(job["folder"], "stdout")
    await asyncio.to_thread(wait_for, lambda: output.exists() and output.read_text(), "the cell to run")
    # No job of this cluster preempts another: no step of the job waits for the signal.
    argv = ["squeue", "-h", "-s", "-j", job["id"], "-o", "%i"]
    steps = subprocess.run(argv, env={**os.environ, **desk.env}, capture_output=True, text=True, check=True).stdout
    assert {step.partition(".")[2] for step in steps.split()} == {"batch"}
    await desk.core.cluster(desk.id).actions.cancel(job["key"], None)
    ended = await desk.finished(job["key"])
    assert (ended["state"], ended["restarts"]) == ("CANCELLED", 0)
    assert not Path(job["folder"], "end.json").exists()


def test_it_is_restarted_as_often_as_was_said(tmp_path):
    cell = {"source": "print('ran')", "filename": "<cell>"}
    record = {"key": "k", "events": str(tmp_path), "cell": cell, "resume": 1}
    (tmp_path / "job.json").write_text(json.dumps(record))
    runner = str(resources.files("jupyter_slurm.runner.lifecycle").joinpath("resume.py"))
    env = {"PATH": "/nowhere", "SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "2"}
    argv = [sys.executable, "-u", runner, str(tmp_path)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "No more restarts are allowed. Use resume=N to allow more." in done.stderr
    assert json.loads((tmp_path / "end.json").read_text())["exit_code"] == 1


async def test_what_is_submitted_with_it_and_what_contradicts_it(desk):
    def options(*given, **more):
        return desk.core.cluster(desk.id).submit(desk.asked("1", *given, dry_run=True, resume=3, **more))

    argv = (await options())["argv"]
    assert {"--requeue", "--open-mode=append", "--signal=B:USR1@120"} <= set(argv)
    argv = (await options("-t", "2", "-o", "there.txt"))["argv"]
    assert {"--open-mode=append", "--signal=B:USR1@30"} <= set(argv)
    argv = (await options("--signal=B:USR2@7", "--open-mode=truncate"))["argv"]
    assert not {"--open-mode=append", "--signal=B:USR1@120"} & set(argv)
    with pytest.raises(OptionError, match="requeues the job, which --no-requeue forbids"):
        await options("--no-requeue")
