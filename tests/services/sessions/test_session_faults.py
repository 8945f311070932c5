"""Tests of faults of sessions, with real parts: each has a message, and nothing remains of a session on either end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sessions import Page, launch, left, nothing_left, ready, run_a_cell

from jupyter_slurm.embedded import EmbeddedCluster, load_description
from jupyter_slurm.embedded.description import Partition, Preemption
from jupyter_slurm.errors import SubmitRefused, TransportError

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.usefixtures("hurried"),
    pytest.mark.root,
    pytest.mark.here_only("the way there has no part in it"),
    pytest.mark.xdist_group("session-faults"),  # they share a cluster
]

SMALL = ("-c1", "--mem=300")


@pytest.fixture(scope="module")
def cluster(short_tmp: Path) -> Iterator[EmbeddedCluster]:
    """Provide two nodes to disturb; jobs in ``high`` take the nodes of those in ``low``, which are requeued."""
    arandu = load_description()
    nodes = replace(arandu.nodes[1], names=("c4aiscw1", "c4aiscw2"))
    low = Partition("low", nodes.names, default=True, priority_tier=1, preempt_mode="requeue")
    description = replace(
        arandu,
        nodes=(nodes,),
        partitions=(low, Partition("high", nodes.names, priority_tier=10, preempt_mode="off")),
        preemption=Preemption("partition", "requeue"),
        extra=(*arandu.extra, "SlurmdTimeout=3", "KillWait=1"),
    )
    with EmbeddedCluster(description, directory=short_tmp / "sf") as running:
        yield running


async def state(desk: Any, told: dict[str, Any], wanted: str) -> dict[str, Any]:
    """Wait until a session is in a state."""
    return dict(await desk.until(told["key"], lambda job: job["session"]["state"] == wanted))


async def test_whatever_ends_one_is_said_and_nothing_is_left(desk: Any, launched: Any, cluster: Any) -> None:
    """The time limit, the end of its node, or of Jupyter; a restart of the controller ends no session."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(SubmitRefused, match="Requested node configuration is not available"):
        await launched("--gpus", "9", name="greedy", wait=False)
    limited, lost = await asyncio.gather(
        launched(*SMALL, "-w", "c4aiscw1", name="limited", port=port),
        launched(*SMALL, "-w", "c4aiscw2", "--no-requeue", name="lost"),
    )
    second = await launched(*SMALL, "-w", "c4aiscw1", name="second", port=port, wait=False)
    page = Page((await desk.core.sessions.open(desk.id, "limited"))["page"])
    escapes = "import subprocess; subprocess.Popen(['setsid', 'sleep', '1000'])"
    await run_a_cell(page, escapes)
    assert set(left(desk, limited)) == {"job", "processes", "port there", "port here", "tunnels"}
    assert any("sleep 1000" in one for one in left(desk, limited)["processes"])
    told = await state(desk, second, "unreachable")  # as long as the first one has the port
    cluster.run("scontrol", "update", f"jobid={limited['id']}", "timelimit=0")  # slurmctld checks every half minute
    assert f"{port} is in use by another program of yours" in told["session"]["message"]

    waits = await launched("-w", "c4aiscw1", "--exclusive", name="waits", wait=False)
    assert (await state(desk, waits, "pending"))["finished"] is False
    over = await desk.core.sessions.end(desk.id, "waits")
    over = await desk.finished(waits["key"])
    assert (over["state"], over["session"]["state"]) == ("CANCELLED", "ended")

    cluster.kill_node("c4aiscw2")
    cluster.run("scontrol", "update", "nodename=c4aiscw2", "state=down", "reason=test")
    try:
        over = await desk.finished(lost["key"])
        assert (over["state"], over["reason_text"]) == ("NODE_FAIL", "A node of the job failed.")
        await nothing_left(desk, lost)
    finally:
        cluster.start_node("c4aiscw2")
        # the node may be back by itself
        cluster.run("scontrol", "update", "nodename=c4aiscw2", "state=resume", check=False)

    over = await desk.finished(limited["key"])
    assert (over["state"], over["session"]["state"], over["session"]["url"]) == ("TIMEOUT", "ended", None)
    second = await state(desk, second, "ready")
    assert second["session"]["local_port"] == port
    await nothing_left(desk, {**limited, "session": {**limited["session"], "local_port": None}})

    page = Page((await desk.core.sessions.open(desk.id, "second"))["page"])
    cluster.stop_controller()
    await page.log_in()
    assert await page.get("api/contents") == 200
    await asyncio.to_thread(cluster.start_controller)
    assert (await desk.job(second["key"]))["session"] == second["session"]
    os.kill(json.loads((Path(second["folder"]) / "served.json").read_text())["pid"], signal.SIGKILL)
    over = await desk.finished(second["key"])
    assert (over["state"], over["error"]["detail"]) == ("FAILED", "jupyterlab ended (signal 9).")
    await nothing_left(desk, second)


async def test_one_that_is_requeued_comes_back_at_the_same_address(
    open_desk: Any, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    """Also if another program has its port on the node by then, with another agent; only if requested."""
    async with open_desk(cluster, tmp_path) as desk:
        asked = launch(desk, *SMALL, "-p", "low", "-w", "c4aiscw1", "--requeue", name="moved")
        other = launch(desk, *SMALL, "-p", "low", "-w", "c4aiscw1", name="ended")
        for one in (asked, other):
            await desk.core.sessions.launch(desk.id, one)
        before, ended = await ready(desk, asked), await ready(desk, other)
        taker = await desk.submit("#!/bin/sh\nsleep 1000\n", "-p", "high", "-w", "c4aiscw1", "--exclusive")
        told = await state(desk, before, "pending")
        assert (told["restarts"], told["session"]["url"]) == (1, None)
        over = await desk.finished(ended["key"])
        assert (over["state"], over["reason_text"]) == ("PREEMPTED", "A job of higher priority took the nodes.")
        await nothing_left(desk, ended)
    with socket.create_server(("127.0.0.1", before["session"]["port"])):
        async with open_desk(cluster, tmp_path) as desk:
            await desk.core.cluster(desk.id).actions.cancel(taker["key"])
            await desk.finished(taker["key"])
            cluster.run("scontrol", "update", f"jobid={before['id']}", "starttime=now")
            states = set()
            async with asyncio.timeout(90):
                async for event, told in desk.core.cluster(desk.id).results.stream(before["key"], {}):
                    if event == "job":
                        states.add(told["session"]["state"])
                        if told["session"]["state"] == "ready":
                            break
            assert states <= {"pending", "starting", "reconnecting", "ready"}
            after = await desk.job(before["key"])
            assert after["session"]["url"] == before["session"]["url"]
            assert after["session"]["port"] != before["session"]["port"]
            page = Page((await desk.core.sessions.open(desk.id, "moved"))["page"])
            await page.log_in()
            assert await page.get("api/contents") == 200
            await desk.core.sessions.end(desk.id, "moved")
            await desk.finished(before["key"])
            await nothing_left(desk, after)


@pytest.fixture
async def small(open_desk: Any, cluster: EmbeddedCluster, tmp_path: Path) -> AsyncIterator[Any]:
    """Provide a desk whose job directories are on a disk of two megabytes."""
    disk = tmp_path / "small"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2M,mode=700", "none", str(disk)], check=True)
    try:
        async with open_desk(cluster, tmp_path, job_root=str(disk)) as desk:
            yield desk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(desk: Any) -> Path:
    """Fill the disk of the job directories."""
    path = Path(desk.root) / "others"
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return path


async def test_a_full_disk_is_told(small: Any, cluster: EmbeddedCluster) -> None:
    """Before the submission, and at the start; a ready session continues."""
    asked, held = launch(small, *SMALL, name="kept"), launch(small, *SMALL, "--hold", name="late")
    for one in (asked, held):
        await small.core.sessions.launch(small.id, one)
    kept, late = await ready(small, asked), await small.job(held["key"])
    full = fill(small)
    with pytest.raises(TransportError, match="No space left") as refused:
        await small.core.sessions.launch(small.id, launch(small, *SMALL, name="none"))
    assert "The disk is full" in refused.value.hint
    cluster.run("scontrol", "release", late["id"])
    over = await small.finished(late["key"])
    assert over["state"] == "FAILED"
    assert any("The disk is full" in said for said in over["warnings"]), over
    fill(small)
    told = await small.core.sessions.rename(small.id, "kept", "still")
    assert any("The record of this job could not be written" in said for said in told["warnings"]), told
    full.unlink()
    told = await small.core.sessions.rename(small.id, "still", "kept")
    assert not told["warnings"]  # possible again by now
    fill(small)
    page = Page((await small.core.sessions.open(small.id, "kept"))["page"])
    await page.log_in()
    assert await page.get("api/contents") == 200
    await small.core.sessions.end(small.id, "kept")
    assert (await small.finished(kept["key"]))["state"] == "CANCELLED"
    for told in (kept, {**late, "session": kept["session"]}):
        await nothing_left(small, told)
    full.unlink()


async def test_no_image_and_no_docker_any_more_are_told(
    open_desk: Any, cluster: EmbeddedCluster, tmp_path: Path, new_docker: Callable[[str], Any]
) -> None:
    """The daemon of Docker dies under a session: the session ends with a message, and its container ends as well."""
    if sys.base_prefix == "/usr" and sys.version_info[:2] != (3, 11):
        pytest.skip("the image has Python 3.11, and takes others only with what they need")
    with new_docker("sessions") as docker:
        own = [f"{one}:{one}:ro" for one in sorted({sys.prefix, sys.base_prefix} - {"/usr"})]
        reached = {"variables": {"DOCKER_HOST": docker.host}, "bind": own}
        described = {
            "box": {"image": docker.image, **reached},
            "lost": {"image": "example.invalid/no/such:1", **reached},
        }
        places = {"environments": described, "container": {"runtime": "docker"}}
        async with open_desk(cluster, tmp_path, **places) as desk:
            asked, none = launch(desk, *SMALL, name="inside", env="box"), launch(desk, *SMALL, name="none", env="lost")
            for one in (asked, none):
                await desk.core.sessions.launch(desk.id, one)
            over = await desk.finished(none["key"])
            assert "The image example.invalid/no/such:1 is not on this node" in over["error"]["detail"]
            told = await ready(desk, asked)
            assert len(left(desk, told, docker)["containers"]) == 1
            os.kill(docker.pid, signal.SIGKILL)
            over = await desk.finished(asked["key"])
            assert "The daemon of docker does not answer on this node" in over["error"]["detail"]
            await nothing_left(desk, told)
