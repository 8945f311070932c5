"""Tests of what a pending job waits for, in numbers, on a real cluster."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from jupyter_slurm.embedded import EmbeddedCluster, load_description
from jupyter_slurm.embedded.description import Partition, Qos
from jupyter_slurm.services.slurm.rate_limit import TokenBucket

pytestmark = [pytest.mark.slurm, pytest.mark.here_only("the queries are those of the client, asked over each way")]

SLEEP = "#!/bin/sh\nsleep 600\n"


@pytest.fixture
def dgx(new_cluster: Callable[..., EmbeddedCluster]) -> EmbeddedCluster:
    """Provide a node with eight GPUs beside two workstations, licences, and a QOS with a limit of GPUs."""
    small = Qos("small", limits={"MaxTRESPerUser": "gres/gpu=1"})
    described = replace(load_description(), qos=(small,)).with_users(pwd.getpwuid(os.geteuid()).pw_name)
    dgx, stations = described.nodes[0], replace(described.nodes[1], names=("c4aiscw1", "c4aiscw2"))
    return new_cluster(
        nodes=(replace(dgx, memory=64 << 10), stations),
        partitions=(
            Partition("arandu", dgx.names, max_time="1-00:00:00"),
            Partition("devwork", stations.names, default=True),
        ),
        accounting=True,
        accounts=described.accounts,
        users=described.users,
        qos=described.qos,
        enforce=("associations", "limits", "qos"),
        extra=(*described.extra, "Licenses=matlab:2"),
    )


async def test_a_job_says_in_numbers_what_it_waits_for(dgx: EmbeddedCluster, tmp_path: Any, open_desk: Any) -> None:
    async with open_desk(dgx, tmp_path) as desk:
        # A user looks at one job at a time; the test looks at six.
        desk.core.cluster(desk.id).jobs._waiting.looks = TokenBucket(rate=10, burst=100)

        async def submit(*options: str) -> str:
            return str((await desk.submit(SLEEP, "--time=1:00:00", *options))["key"])

        async def told(key: str, words: str) -> dict[str, Any]:
            return dict(await desk.until(key, lambda job: words in job["reason_text"]))

        long = await submit(
            "-p", "arandu", "--gpus=2", "--mem=40G", "-J", "long-train", "-t", "2:00:00", "-L", "matlab:2"
        )
        running = await desk.until(long, lambda job: job["state"] == "RUNNING")
        limited = await submit("-q", "small", "-p", "devwork", "--gpus=1")
        gpus = await submit("-p", "arandu", "--gpus=8", "--mem=16G")
        typed = await submit("-p", "arandu", "--gres=gpu:a100:7", "--mem=1G")
        memory = await submit("-p", "arandu", "--gpus=1", "--mem=32G")
        licence = await submit("-p", "devwork", "-L", "matlab:1")
        after = await submit("-d", f"afterok:{running['id']}")
        more = await submit("-q", "small", "-p", "devwork", "--gpus=1")

        job = await told(gpus, "Waits for 8 GPUs; 6 of 8 are free.")
        end = running["start_time"] + 7200
        assert job["next_end"] == {"id": running["id"], "name": "long-train", "own": True, "time": end}
        assert "mem" not in f"{job['reason_text']} {job['next_step']}"
        await told(typed, "Waits for 7 a100 GPUs; 6 of 8 are free.")
        job = await told(memory, "Waits for 32G of memory on a node; at most 24G is free on one.")
        assert "--mem" in job["next_step"]
        await told(licence, "Waits for 1 licence of matlab; 0 of 2 are free.")
        await told(after, f"Waits for job {running['id']} (long-train, RUNNING).")
        assert (await desk.job(limited))["state"] == "RUNNING"
        await told(more, "The QOS small allows 1 GPU at a time; 1 is in use, and this job requests 1.")


@pytest.mark.root
async def test_numbers_are_those_of_the_reservation_and_of_the_qos_of_the_partition(
    new_cluster: Callable[..., EmbeddedCluster], tmp_path: Any, open_desk: Any
) -> None:
    shared = Qos("shared", limits={"MaxTRESPerUser": "gres/gpu=1"})
    described = replace(load_description(), qos=(shared,)).with_users(pwd.getpwuid(os.geteuid()).pw_name)
    nodes = replace(described.nodes[0], names=("n1", "n2"), gpus={"a100": 4})
    cluster = new_cluster(
        nodes=(nodes,),
        partitions=(Partition("main", nodes.names, default=True), Partition("few", nodes.names, qos="shared")),
        accounting=True,
        accounts=described.accounts,
        users=described.users,
        qos=described.qos,
        enforce=("associations", "limits", "qos"),
        extra=described.extra,
    )
    now = ("StartTime=now", "Duration=60", "Users=root", "Flags=MAINT")
    cluster.run("scontrol", "create", "reservation", "ReservationName=class", "Nodes=n1", *now)
    async with open_desk(cluster, tmp_path) as desk:
        desk.core.cluster(desk.id).jobs._waiting.looks = TokenBucket(rate=10, burst=100)

        async def submit(*options: str) -> str:
            return str((await desk.submit(SLEEP, "--time=0:30:00", "--mem=1G", *options))["key"])

        for options in (("--reservation=class", "--gpus=2"), ("-p", "few", "--gpus=1")):
            await desk.until(await submit(*options), lambda job: job["state"] == "RUNNING")
        more = await submit("--reservation=class", "--gpus=3")
        limited = await submit("-p", "few", "--gpus=1")
        words = "The QOS shared allows 1 GPU at a time; 1 is in use, and this job requests 1."
        await desk.until(limited, lambda job: words in job["reason_text"])
        await desk.until(more, lambda job: "Waits for 3 GPUs; 2 of 4 are free." in job["reason_text"])
