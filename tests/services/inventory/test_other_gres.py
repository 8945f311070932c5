"""Tests of generic resources that are not GPUs, and of parts of GPUs, on a real cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from jupyter_slurm.client.clusters.resources import Resources
from jupyter_slurm.domain.slurm_values import parse_gres
from jupyter_slurm.embedded import EmbeddedCluster, load_description
from jupyter_slurm.embedded.description import Partition
from jupyter_slurm.errors import SlurmError
from jupyter_slurm.services.slurm.rate_limit import TokenBucket

pytestmark = [pytest.mark.slurm, pytest.mark.here_only("the queries are those of the client, asked over each way")]

SLEEP = "#!/bin/sh\nsleep 600\n"


@pytest.fixture
def accelerators(new_cluster: Callable[..., EmbeddedCluster]) -> EmbeddedCluster:
    """Provide NPUs with a type, GCUs without one, and GPUs of odd names, one of them divided into shards."""
    plain = replace(load_description().nodes[1], gpus={}, cpus=8, memory=8 << 10)
    nodes = (
        replace(plain, names=("npu1",), gres={"npu:910b": 8}),
        replace(plain, names=("gcu1",), gres={"gcu": 8}),
        replace(plain, names=("amd1",), gpus={"mi250x": 4}),
        replace(plain, names=("mig1",), gpus={"nvidia_a100-sxm4-80gb": 2, "1g.10gb": 3}),
        replace(plain, names=("part1",), gpus={"a100": 4}, gres={"shard": 16}),
    )
    names = tuple(name for group in nodes for name in group.names)
    partitions = (Partition("all", names, default=True), Partition("npu", ("npu1",)))
    return new_cluster(nodes=nodes, partitions=partitions)


@pytest.fixture
async def desk(accelerators: EmbeddedCluster, tmp_path: Any, open_desk: Any) -> AsyncIterator[Any]:
    async with open_desk(accelerators, tmp_path) as desk:
        desk.core.cluster(desk.id).jobs._waiting.looks = TokenBucket(rate=10, burst=100)
        yield desk


async def test_other_accelerators_and_shared_gpus_are_counted(desk: Any) -> None:
    """Resources, the reason of a waiting job and the answer to a refused job agree."""
    asked = ("npu:2", "npu:910b:1", "gcu:3", "gpu:mi250x:1", "gpu:1g.10gb:2", "shard:3")
    for job in [await desk.submit(SLEEP, f"--gres={gres}", "--mem=100M") for gres in asked]:
        await desk.until(job["key"], lambda job: job["state"] == "RUNNING")
    resources = desk.core.cluster(desk.id).inventory.resources
    told = await resources.to_api(wait=60.0, is_newer=True, has_nodes=True)
    assert {one["type"]: (one["total"], one["used"], one["free"]) for one in told["gpus"]} == {
        "1g.10gb": (3, 2, 1),
        "a100": (4, 1, 3),  # a part of one is in use
        "mi250x": (4, 1, 3),
        "nvidia_a100-sxm4-80gb": (2, 0, 2),
    }
    npu = {"name": "npu", "type": "910b", "total": 8, "used": 3, "free": 5, "most": 8, "soon": 0}
    assert told["gres"] == [{"name": "gcu", "type": "", "total": 8, "used": 3, "free": 5, "most": 8, "soon": 0}, npu]
    partition = next(one for one in told["partitions"] if one["name"] == "npu")
    assert (partition["gpus"], partition["gres"]) == ([], [npu])
    node = next(one for one in told["nodes"] if one["name"] == "npu1")
    assert node["gres"] == [{"name": "npu", "type": "910b", "total": 8, "used": 3}]
    shown = Resources(told)
    assert [row["GRES"] for row in shown.gres] == ["gcu", "npu:910b"]
    assert "5 of 8 npu:910b" in repr(shown.partitions)

    waiting = await desk.submit(SLEEP, "--gres=npu:910b:6", "--mem=100M")
    await desk.until(
        waiting["key"],
        lambda job: job["reason_text"] == "Waits for 6 npu 910b on a node; at most 5 are free on a node.",
    )
    await _refused(desk, "--gres=npu:9", "is more than any node in partition all has: at most 8 npu.")
    await _refused(desk, "-p", "npu", "--gres=gcu:1", "no node in partition npu has gcu. There are such nodes in: all.")
    await _refused(desk, "--gpus=npu:1", "Request that generic resource with --gres=npu:1.")


async def _refused(desk: Any, *options: str) -> None:
    *options_of_job, words = options
    await desk.core.cluster(desk.id).inventory.facts.get(60.0)
    with pytest.raises(SlurmError) as refused:
        await desk.submit(SLEEP, *options_of_job)
    assert words in f"{refused.value.message} {refused.value.hint}"


@pytest.mark.parametrize(
    ("text", "parts", "indices"), [("shard:a100:3(2/4,1/4,0/4)", 2, ()), ("shard:a100:2(IDX:0-1)", 0, (0, 1))]
)
def test_gpus_of_parts_in_use(text: str, parts: int, indices: tuple[int, ...]) -> None:
    (gres,) = parse_gres(text)
    assert (gres.devices_in_use, gres.indices) == (parts, indices)
