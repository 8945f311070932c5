"""Ends of allocations that others than their user cause: what the allocation and its steps say of it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts.ways import Way

pytestmark = [pytest.mark.slurm, pytest.mark.here_only("the same files and queries tell of an end over SSH")]


class Held:
    """An allocation with a step that runs."""

    def __init__(self, desk: Any, job: dict[str, Any], step: dict[str, Any]) -> None:
        self.desk, self.job, self.step = desk, job, step

    async def ends(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the allocation and its step once both have ended."""
        step = await self.desk.until(self.step["key"], lambda one: one["finished"])
        job = await self.desk.until(self.job["key"], lambda one: one["finished"])
        return job, step


async def start(desk: Any, job: dict[str, Any], *command: str) -> dict[str, Any]:
    args = list(command) or ["sleep", "600"]
    asked = {**desk.asked("#!"), "kind": "command", "text": "", "args": args, "python": sys.executable}
    del asked["dry_run"]
    return await desk.start_step(job["key"], asked)


async def hold(desk: Any, *options: str) -> Held:
    lease = {"seconds": 600.0, "once": False, "keep": False}
    job = await desk.submit("", *options, kind="allocation", python=sys.executable, lease=lease)
    step = await start(desk, job)
    await desk.until(step["key"], lambda one: one["state"] == "RUNNING")
    return Held(desk, await desk.until(job["key"], lambda one: one["nodes"]), step)  # the queue names the node


def holder(folder: str) -> int:
    """Return the process that holds the allocation with this job directory."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if any(word.endswith(b"hold.py") for word in words) and os.fsencode(folder) in words:
                return int(entry.name)
    raise AssertionError("no holder")


@pytest.mark.slow
async def test_an_allocation_and_its_step_say_how_it_ended(
    new_cluster: Callable[..., Any], tmp_path: Path, desk_by: Callable[..., Any]
) -> None:
    """By another terminal, the death of its holder, of its node, its time limit; not by a restart of slurmctld."""
    cluster = new_cluster(extra=("SlurmdTimeout=3", "KillWait=1", "MessageTimeout=3"))
    async with desk_by(Way("local"), cluster, tmp_path) as desk:
        timed = await hold(desk, "--time=1", "-w", "c4aiscw1")
        cancelled, killed, failed = [await hold(desk, "-w", node) for node in ("c4aiscw1", "c4aiscw1", "c4aiscw2")]
        cluster.restart_controller()
        await desk.until(cancelled.job["key"], lambda job: job["restarts"] == 0)
        assert {(await desk.job(one.step["key"]))["state"] for one in (timed, cancelled, killed, failed)} == {"RUNNING"}

        cluster.run("scancel", cancelled.job["id"])
        os.kill(holder(killed.job["folder"]), signal.SIGKILL)
        cluster.kill_node("c4aiscw2")
        ends = [
            (cancelled, "CANCELLED", "The job was cancelled.", "The allocation ended."),
            (killed, "FAILED", "The job was ended by SIGKILL.", "The allocation ended. The job was ended by SIGKILL."),
            (failed, "NODE_FAIL", "A node of the job failed.", "The allocation ended. A node of the job failed."),
            (timed, "TIMEOUT", "The job reached its time limit of 1:00.", "The allocation "),
        ]
        for held, state, reason, detail in ends:
            job, step = await held.ends()
            assert (job["state"], job["reason_text"]) == (state, reason)
            assert (step["state"], step["error"]["detail"].startswith(detail)) == ("CANCELLED", True), step["error"]
            assert "%salloc" in step["error"]["hint"]


@pytest.mark.slow
async def test_steps_end_when_their_allocation_is_requeued(
    new_cluster: Callable[..., Any], tmp_path: Path, desk_by: Callable[..., Any]
) -> None:
    """A node fails, and Slurm starts the allocation on another one: the step that ran and the one that waited end."""
    cluster = new_cluster(extra=("SlurmdTimeout=3", "KillWait=1", "MessageTimeout=3"))
    async with desk_by(Way("local"), cluster, tmp_path) as desk:
        held = await hold(desk, "--requeue")
        waiting = await start(desk, held.job)
        await desk.until(waiting["key"], lambda _: Path(desk.root, waiting["key"], "begun").exists())
        cluster.kill_node(held.job["nodes"])
        for key in (held.step["key"], waiting["key"]):
            step = await desk.until(key, lambda one: one["finished"])
            assert (step["state"], step["error"]["detail"]) == ("CANCELLED", "The allocation was requeued."), step
        again = await start(desk, held.job, "true")
        assert (await desk.until(again["key"], lambda one: one["finished"]))["state"] == "COMPLETED"
