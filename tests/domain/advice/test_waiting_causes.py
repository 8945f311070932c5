"""Numbers of waiting jobs: only a limit that a reason is about is named, and only nodes that the job may use count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_slurm.domain.advice.reasons import QOS_GPU_LIMIT
from jupyter_slurm.domain.advice.waiting import reserved_nodes, shortages
from jupyter_slurm.domain.advice.waiting_limits import limit_words
from jupyter_slurm.domain.queries.associations import Reservation, parse_reservations
from jupyter_slurm.domain.queries.cluster import Node, Partition
from jupyter_slurm.domain.queries.job_detail import WaitingRequest
from jupyter_slurm.domain.queries.limits import Limit
from jupyter_slurm.domain.slurm_values import parse_gres

# Each of these limits is reached. Limits of other kinds cannot be told from them by their numbers alone.
ALL_REACHED = [
    Limit(scope, name, "in-use", resource, 4, 4)
    for scope, name in (("user", "lab"), ("account", "lab"), ("qos", "normal"), ("qos-user", "normal"))
    for resource in ("cpu", "mem", "node", "gres/gpu")
]
REQUEST = WaitingRequest(
    ("gpu",), nodes=1, cpus=2, memory=1 << 30, gpus={"a100": 2}, qos="normal", account="lab", reservation="class"
)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("AssocGrpCpuLimit", "Your account lab allows 4 CPUs at a time"),
        ("AssocGrpGRES", "Your account lab allows 4 GPUs at a time"),
        ("QOSGrpCpuLimit", "The QOS normal allows 4 CPUs at a time"),
        ("QOSGrpMemLimit", "The QOS normal allows 1K of memory at a time"),
        ("QOSMaxGRESPerUser", "The QOS normal allows 4 GPUs at a time"),
        ("QOSMaxMemoryPerUser", "The QOS normal allows 1K of memory at a time"),
        ("QOSMaxNodePerUserLimit", "The QOS normal allows 4 nodes at a time"),
    ],
)
def test_a_limit_on_simultaneous_use_is_named(reason: str, words: str) -> None:
    assert limit_words(reason, REQUEST, ALL_REACHED).startswith(words)


@pytest.mark.parametrize(
    "reason",
    [
        *("AssocGrpCPUMinutesLimit", "AssocGrpCPURunMinutesLimit", "AssocGrpMemMinutes", "AssocGrpGRESMinutes"),
        *("QOSGrpCpuMinutesLimit", "QOSGrpMemoryRunMinutes", "QOSGrpGRESRunMinutes", "MaxCpuRunMinsPerUser"),
        *("MaxGRESRunMinsPerAccount", "QOSMaxCpuPerJobLimit", "AssocMaxCpuMinutesPerJobLimit", "QOSMaxGRESPerJob"),
        *("AssocMaxCpuPerNode", "AssocMaxMemPerNode", "QOSMaxGRESPerNode", "MaxMemPerLimit", "MaxPoweredUpNodes"),
        *("QOSMinCpuNotSatisfied", "QOSMinMemory", "QOSMinNode", "QOSMinGRES", "QOSGrpWallLimit"),
    ],
)
def test_budgets_and_limits_of_one_job_or_node_are_not_limits_on_simultaneous_use(reason: str) -> None:
    assert limit_words(reason, REQUEST, ALL_REACHED) == ""


def test_a_reason_about_the_qos_is_not_explained_by_an_account() -> None:
    assert limit_words("QOSGrpCpuLimit", REQUEST, [Limit("account", "lab", "in-use", "cpu", 4, 4)]) == ""


def test_the_limit_of_an_association_for_another_partition_is_not_the_cause() -> None:
    other = Limit("user", "lab", "in-use", "gres/gpu", 1, 1, partition="devwork")
    mine = replace(other, maximum=4, used=3, partition="gpu")
    assert limit_words("AssocGrpGRES", REQUEST, [other]) == ""
    words = "Your account lab allows 4 GPUs at a time; 3 are in use, and this job requests 2."
    assert limit_words("AssocGrpGRES", REQUEST, [other, mine]) == words
    assert limit_words("AssocGrpGRES", REQUEST, [other, replace(mine, partition="")]) == words


def test_the_limit_of_the_qos_of_a_partition_is_named_before_that_of_the_job() -> None:
    partitions = [
        Partition("gpu", fields={"QoS": "Part-GPU"}),
        Partition("devwork", fields={"QoS": "part-dev"}),
        Partition("cpu", fields={"QoS": "N/A"}),
    ]
    limits = [Limit("qos-user", name, "in-use", "gres/gpu", 4, 3) for name in ("part-dev", "normal", "part-gpu")]
    words = "The QOS part-gpu allows 4 GPUs at a time; 3 are in use, and this job requests 2."
    assert limit_words("QOSMaxGRESPerUser", REQUEST, limits, partitions) == words
    assert limit_words("QOSMaxGRESPerUser", REQUEST, limits[:1], partitions) == ""
    assert limit_words("QOSMaxGRESPerUser", REQUEST, limits[1:2], partitions).startswith("The QOS normal ")


def test_only_limits_that_slurm_names_in_error_may_be_a_lack_of_gpus() -> None:
    may_be = ["QOSGrpGRES", "QOSMaxGRES", "QOSMaxGRESPerUser", "QOSMaxGRESPerUserLimit", "QOSMaxGRESPerAccount"]
    is_not = ["QOSMaxGRESPerJob", "QOSMaxGRESPerNode", "QOSMinGRES", "QOSGrpGRESMinutes", "AssocGrpGRES"]
    assert [one for one in (*may_be, *is_not) if QOS_GPU_LIMIT.fullmatch(one)] == may_be


@pytest.fixture
def nodes() -> list[Node]:
    """Return a node of a reservation with 2 of 4 free GPUs, a node under maintenance in it, and a node of others."""
    has, used = tuple(parse_gres("gpu:a100:4")), tuple(parse_gres("gpu:a100:2"))
    node = Node("n1", state="MIXED", cpus=8, cpus_used=2, gres=has, gres_used=used, partitions=("gpu",))
    return [
        replace(node, flags=("RESERVED",)),
        replace(node, name="n2", flags=("MAINTENANCE", "RESERVED"), gres_used=has),
        replace(node, name="n3", gres_used=()),
    ]


def test_a_job_in_a_reservation_may_use_its_nodes_and_no_others(nodes: list[Node]) -> None:
    reservations = [Reservation("class", nodes="n[1-2]"), Reservation("other", nodes="n3")]

    def told(gpus: int, name: str = "class") -> list[str]:
        request = replace(REQUEST, gpus={"": gpus}, reservation=name)
        return [one.text for one in shortages(request, reserved_nodes(request, nodes, reservations))]

    assert told(2) == []
    assert told(4) == ["Waits for 4 GPUs; 2 of 8 are free."]
    assert told(7, "class,other") == ["Waits for 7 GPUs; 6 of 12 are free."]
    assert [one.is_up for one in reserved_nodes(REQUEST, nodes, reservations)] == [True, True]
    licences = replace(REQUEST, reservation="licences")
    assert reserved_nodes(licences, nodes, [Reservation("licences")]) == nodes


@pytest.mark.parametrize("name", ["unknown", "class,unknown", "flexible", "torn"])
def test_a_reservation_whose_nodes_are_not_known_gives_no_shortage(nodes: list[Node], name: str) -> None:
    answer = b"ReservationName=flexible StartTime=1 EndTime=2 Nodes=n1 Flags=FLEX,SPEC_NODES State=ACTIVE"
    reservations = [
        *parse_reservations(answer),
        Reservation("class", nodes="n1"),
        Reservation("torn", nodes="n[1"),
    ]
    request = replace(REQUEST, gpus={"": 99}, reservation=name)
    assert shortages(request, reserved_nodes(request, nodes, reservations)) == []
