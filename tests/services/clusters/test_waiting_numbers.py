"""Tests of which numbers explain a pending job, with answers of Slurm made up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_slurm.domain.cluster_facts import Facts
from jupyter_slurm.domain.free_resources import Resources
from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.queries.associations import Reservation
from jupyter_slurm.domain.queries.cluster import Node, Partition
from jupyter_slurm.domain.queries.job_detail import WaitingRequest
from jupyter_slurm.domain.queries.limits import Limit, Limits
from jupyter_slurm.domain.slurm_values import parse_gres
from jupyter_slurm.services.clusters.waiting_jobs import WaitingJobs

pytestmark = pytest.mark.here_only("no part of it depends on the way to the cluster")

NODE = Node(
    "dgx01",
    state="MIXED",
    cpus=64,
    gres=tuple(parse_gres("gpu:a100:8")),
    gres_used=tuple(parse_gres("gpu:a100:7")),
    partitions=("gpu",),
)
RESERVED = Node("dgx02", "", "", "IDLE", ("RESERVED",), 64, gres=NODE.gres, partitions=("gpu",))
FACTS = Facts(0.0, (Partition("gpu", fields={"QoS": "part-gpu"}),), reservations=(Reservation("class", nodes="dgx02"),))
LACK = "Waits for 8 GPUs; 1 of 16 is free."


async def told(reason: str, limits: tuple[Limit, ...] = (), reservation: str = "", facts: Facts | None = FACTS) -> str:
    """Return the words for a job that requests 8 GPUs and waits for a reason; empty if there are no numbers."""

    def answers(value: Any) -> Any:
        async def answer(*_: Any, **__: Any) -> Any:
            return value

        return answer

    request = WaitingRequest(
        ("gpu",), cpus=8, gpus={"": 8}, gpus_per_node=0, qos="normal", account="lab", reservation=reservation
    )
    resources = Resources(100.0, (NODE, RESERVED), limits=Limits(limits))
    inventory = SimpleNamespace(
        resources=SimpleNamespace(current=answers(resources)),
        facts=SimpleNamespace(get=answers(facts)),
        running=SimpleNamespace(current=answers(())),
    )
    entry = SimpleNamespace(
        id=JobId(7),
        latest=SimpleNamespace(reason=reason, time_limit=None),
        state=SimpleNamespace(is_pending=True),
        is_step=False,
        is_current=True,
        submit_time=50,
        record=None,
        slurm=SimpleNamespace(numbers=None),
    )
    tracker = SimpleNamespace(clock=lambda: 100.0, clock_offset=0.0, publish=lambda _: None)
    client: Any = SimpleNamespace(read=answers(request))
    waiting: Any = WaitingJobs(client, tracker, inventory, "ana")  # type: ignore[arg-type]
    await waiting.explain(entry)
    return entry.slurm.numbers.words if entry.slurm.numbers else ""


@pytest.mark.parametrize(
    "reason",
    [
        *("AssocGrpGRESMinutes", "AssocGrpGRESRunMinutes", "QOSGrpGRESMinutes", "QOSGrpGRESRunMinutes"),
        *("QOSMaxGRESPerJob", "QOSMaxGRESPerNode", "QOSMaxGRESMinutesPerJob", "AssocMaxGRESPerJob", "QOSMinGRES"),
        *("AssocGrpGRES", "MaxGRESPerAccount", "MaxGRESRunMinsPerAccount"),
    ],
)
async def test_a_limit_of_gpus_is_not_said_to_be_a_lack_of_gpus(reason: str) -> None:
    parent = Limit("account", "institute", "in-use", "gres/gpu", 4, 4)  # Slurm names it AssocGrpGRES, too
    assert await told(reason, (parent,)) == ""


@pytest.mark.parametrize("reason", ["Resources", "QOSGrpGRES", "QOSMaxGRESPerUser", "QOSMaxGRESPerAccount"])
async def test_a_lack_of_gpus_is_told_where_slurm_may_mean_it(reason: str) -> None:
    assert await told(reason) == LACK


async def test_the_limit_of_the_qos_of_a_partition_is_told() -> None:
    limit = Limit("qos-user", "part-gpu", "in-use", "gres/gpu", 8, 4)
    words = "The QOS part-gpu allows 8 GPUs at a time; 4 are in use, and this job requests 8."
    assert await told("QOSMaxGRESPerUser", (limit,)) == words
    assert await told("QOSMaxGRESPerUser", (limit,), facts=None) == LACK


async def test_a_job_in_a_reservation_waits_for_nodes_of_that_reservation() -> None:
    assert await told("Resources", reservation="class") == "", "its node is free"
    assert await told("Resources", reservation="unknown") == ""
    assert await told("Resources", reservation="class", facts=None) == ""
