"""Tests of free resources on a real cluster: GPUs in use, drained nodes, limits; queried once for all clients."""

from __future__ import annotations

import asyncio
import pwd
import subprocess
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_slurm.client.clusters.resources import Resources as ShownResources
from jupyter_slurm.domain.cluster_facts import Facts
from jupyter_slurm.domain.free_resources import Resources, count_gpus, standing
from jupyter_slurm.domain.queries.all_jobs import all_jobs_argv, parse_all_jobs
from jupyter_slurm.domain.queries.associations import Association
from jupyter_slurm.domain.queries.associations import Qos as KnownQos
from jupyter_slurm.domain.queries.cluster import Node
from jupyter_slurm.domain.queries.cluster import Partition as KnownPartition
from jupyter_slurm.domain.queries.limits import parse_limits
from jupyter_slurm.domain.slurm_values import parse_gres
from jupyter_slurm.embedded import EmbeddedCluster, load_description
from jupyter_slurm.embedded.description import Partition, Qos
from jupyter_slurm.services.inventory.resources import ResourceInventory

pytestmark = [pytest.mark.here_only("what is asked goes by the client, as the facts, which are asked over each way")]

SLEEP = "#!/bin/sh\nsleep 300\n"
COST = {"unit": "credits", "gpu_hour": {"a100": 4, "1g.10gb": 0.5}}


@pytest.fixture
def mixed(new_cluster: Callable[..., EmbeddedCluster]) -> EmbeddedCluster:
    """Provide GPUs of two types on one node, of a type with a dot and digits (MIG) on another, and limits on both."""
    urgent = Qos("urgent", limits={"MaxTRESPerUser": "gres/gpu=2", "MaxJobsPerUser": "3"})
    described = replace(load_description(), qos=(urgent,)).with_users("root")
    dgx = replace(described.nodes[0], gpus={"a100": 3, "1g.10gb": 7})
    stations = replace(described.nodes[1], names=("c4aiscw1", "c4aiscw2", "c4aiscw3"))
    return new_cluster(
        nodes=(dgx, stations),
        partitions=(
            Partition("arandu", dgx.names, max_time="2:00:00"),
            Partition("devwork", stations.names, default=True),
            Partition("all", (*dgx.names, *stations.names)),
        ),
        accounting=True,
        accounts=described.accounts,
        users=described.users,
        qos=described.qos,
        enforce=("associations", "limits", "qos"),
        extra=(*described.extra, "MessageTimeout=3", "PrivateData=jobs"),
    )


def _asked(cluster: EmbeddedCluster) -> int:
    """Return how often the controller was queried for its nodes."""
    lines = cluster.run("sdiag").stdout.splitlines()
    return next((int(line.partition("count:")[2].split()[0]) for line in lines if "REQUEST_NODE_INFO " in line), 0)


@pytest.mark.slurm
@pytest.mark.root
async def test_what_is_free_is_what_slurm_gives(
    mixed: EmbeddedCluster, tmp_path: Any, open_desk: Any, bob: str
) -> None:
    set_limits = ["user", "root", "set", "GrpTRES=gres/gpu=9,mem=50G", "MaxJobs=20"]
    mixed.run("sacctmgr", "-i", "modify", *set_limits)
    mixed.run("scontrol", "update", "NodeName=c4aiscw3", "State=DRAIN", "Reason=disk | free=9 Gres=gpu:9")
    async with open_desk(mixed, tmp_path, cost=COST) as desk:
        jobs = [
            await desk.submit(SLEEP, "-p", "arandu", "--gpus=a100:2", "-q", "urgent", "--mem=1G"),
            await desk.submit(SLEEP, "-p", "arandu", "--gpus=1g.10gb:3", "-c", "4", "--mem=1G"),
            await desk.submit(SLEEP, "-p", "devwork", "--gpus=1", "--mem=1G"),
        ]
        array = await desk.submit(SLEEP, "-p", "arandu", "--array=0-1", "--mem=512M")
        for job in jobs:
            await desk.until(job["key"], lambda job: job["state"] == "RUNNING")
        await desk.until(array["key"], lambda job: job["tasks"] == {"RUNNING": 2})
        look = {"wait": 60.0, "is_newer": False, "has_nodes": True}
        before = _asked(mixed)
        told = await desk.core.cluster(desk.id).inventory.resources.to_api(**look)
        many = [desk.core.cluster(desk.id).inventory.resources.to_api(**look) for _ in range(20)]
        assert all(one == told for one in await asyncio.gather(*many))
        assert _asked(mixed) - before <= 2, "once for all who look, and once for the facts"

        assert _free(told["gpus"]) == {"": (3, 1, 1), "1g.10gb": (7, 3, 4), "a100": (3, 2, 1)}
        partitions = {one["name"]: one for one in told["partitions"]}
        assert _free(partitions["devwork"]["gpus"]) == {"": (3, 1, 1)}
        assert [one["most"] for one in partitions["all"]["gpus"]] == [7, 3, 1]
        assert partitions["devwork"]["nodes"] == {"MIXED": 1, "IDLE": 1, "DRAIN": 1}
        assert (partitions["arandu"]["time_limit"], partitions["devwork"]["is_default"]) == (7200, True)
        nodes = {one["name"]: one for one in told["nodes"]}
        assert (nodes["c4aiscw3"]["is_up"], nodes["c4aiscw3"]["reason"]) == (False, "disk | free=9 Gres=gpu:9")
        assert sorted(nodes["dgx01"]["partitions"]) == ["all", "arandu"]  # in the arbitrary order of Slurm
        assert (nodes["dgx01"]["cpus_used"], nodes["dgx01"]["memory_used"]) == (7, 3072)
        assert nodes["dgx01"]["load"] is not None
        assert (told["use"]["gres/gpu"], told["use"]["mem"]) == (6, 4 << 30)
        assert (told["use"]["jobs"], told["use"]["tasks"]) == (4, 5), "an array is one job; Slurm counts its tasks"
        limits = {(one["scope"], one["kind"], one["resource"]): (one["most"], one["used"]) for one in told["limits"]}
        assert limits["user", "in-use", "gres/gpu"] == (9, 6)
        assert limits["user", "in-use", "mem"] == (50 << 30, 4 << 30)
        assert limits["user", "jobs", ""] == (20, 5)
        assert limits["qos-user", "in-use", "gres/gpu"] == (2, 2)
        assert told["cost"] == COST
        await _others_see_none_of_it(desk, mixed, bob)

        await desk.core.cluster(desk.id).actions.cancel(jobs[0]["key"])
        await desk.until(jobs[0]["key"], lambda job: job["state"] == "CANCELLED")
        assert _free((await desk.core.cluster(desk.id).inventory.resources.to_api(**look))["gpus"])["a100"] == (
            3,
            2,
            1,
        ), "a minute is not over"
        newer = await desk.core.cluster(desk.id).inventory.resources.to_api(
            **{**look, "is_newer": True, "has_nodes": False}
        )
        assert (_free(newer["gpus"])["a100"], newer["nodes"]) == ((3, 0, 3), [])
        limits = {(one["scope"], one["resource"]): one["used"] for one in newer["limits"] if one["name"] == "urgent"}
        assert limits["qos-user", "gres/gpu"] == 0, "a limit is told also where nothing counts towards it"
        await _a_button_asks_no_more_than_it_may(desk, mixed, look)
        await _what_was_known_stays(desk, mixed, look)


def _free(gpus: list[dict[str, Any]]) -> dict[str, tuple[int, int, int]]:
    return {one["type"]: (one["total"], one["used"], one["free"]) for one in gpus}


async def _others_see_none_of_it(desk: Any, cluster: EmbeddedCluster, other: str) -> None:
    """Check the note on a site that hides jobs (PrivateData)."""
    assert (await desk.core.cluster(desk.id).inventory.all_jobs.to_api(wait=60.0))["is_private"]
    env, group = cluster.env(), pwd.getpwnam(other).pw_gid
    argv = all_jobs_argv("01234567")
    asked = subprocess.run(argv, env=env, user=other, group=group, extra_groups=[], check=True, capture_output=True)
    assert parse_all_jobs(asked.stdout, "01234567", other) == []


async def _a_button_asks_no_more_than_it_may(desk: Any, cluster: EmbeddedCluster, look: dict[str, Any]) -> None:
    before = _asked(cluster)
    for _ in range(10):
        await desk.core.cluster(desk.id).inventory.resources.to_api(**{**look, "is_newer": True})
    assert 0 < _asked(cluster) - before < 5


async def _what_was_known_stays(desk: Any, cluster: EmbeddedCluster, look: dict[str, Any]) -> None:
    keeper = desk.core.cluster(desk.id).inventory.resources
    known = await desk.core.cluster(desk.id).inventory.resources.to_api(**look)
    keeper._next_query_at = -1.0  # a minute later
    with cluster.frozen_controller():
        at_once = await desk.core.cluster(desk.id).inventory.resources.to_api(**{**look, "wait": 0.0})
        assert at_once == known, "nobody waits who does not say so"
        told = await desk.core.cluster(desk.id).inventory.resources.to_api(**look)
    assert {**told, "unknown_since": None, "said": ""} == known
    assert told["unknown_since"] >= known["asked_at"]
    assert "does not answer" in told["said"]
    keeper._next_query_at = -1.0
    assert (await desk.core.cluster(desk.id).inventory.resources.to_api(**look))["unknown_since"] is None


@pytest.mark.parametrize(
    ("has", "used", "expected"),
    [
        ("gpu:4(S:0-1)", "gpu:(null):1(IDX:0)", {"": (4, 1)}),
        ("gpu:4", "gpu:nvidia_a100:3(IDX:0-2)", {"": (4, 3)}),  # types detected by a plugin
        ("gpu:a100:2,gpu:4", "gpu:a100:2(IDX:0-1),gpu:h100:1(IDX:2)", {"a100": (2, 2), "": (4, 1)}),
        ("gpu:a100_3g.20gb:2,mps:100,shard:8", "gpu:a100_3g.20gb:1(IDX:0),mps:50,shard:3", {"a100_3g.20gb": (2, 2)}),
        ("gpu:a:2,gpu:b:2", "gpu:a:9(IDX:0-8)", {"a": (2, 2), "b": (2, 2)}),  # more than exist: none is free
        ("gpu:0", "gpu:0", {}),
        ("(null)", "gpu:0", {}),
    ],
)
def test_gpus_by_type(has: str, used: str, expected: dict[str, tuple[int, int]]) -> None:
    node = Node("n", state="MIXED", cpus=4, cpus_idle=2, gres=tuple(parse_gres(has)), gres_used=tuple(parse_gres(used)))
    assert {one.type: (one.total, one.used) for one in count_gpus([node])} == expected
    assert all(one.free == one.total - one.used for one in count_gpus([node]))
    for other in (
        replace(node, flags=("DRAIN",)),
        replace(node, flags=("RESERVED",)),
        replace(node, state="DOWN"),
        replace(node, state="ALLOCATED", cpus_idle=0),
        replace(node, memory=64 << 30, memory_used=64 << 30),
        *(replace(node, flags=(flag,)) for flag in ("PLANNED", "BLOCKED", "COMPLETING", "REBOOT", "POWERING_UP")),
        *(replace(node, flags=("CLOUD", flag)) for flag in ("POWERED_DOWN", "POWER_DOWN", "POWER_DRAIN", "NEWER_FLAG")),
    ):
        assert all(one.free == 0 for one in count_gpus([other])), other


@pytest.mark.parametrize(
    ("shared", "used"),
    [
        ("shard:a100:3(2/4,1/4,0/4)", 2),
        ("shard:a100:5(IDX:0-1)", 2),
        ("shard:2", 2),
        ("shard:16", 4),
        ("mps:100", 1),
        ("shard:0", 0),
    ],
)
def test_a_gpu_of_which_a_job_has_a_part_is_not_free(shared: str, used: int) -> None:
    node = Node("n", state="MIXED", cpus=4, cpus_idle=2, gres=tuple(parse_gres("gpu:a100:4,shard:a100:16")))
    (gpus,) = count_gpus([replace(node, gres_used=tuple(parse_gres(f"gpu:a100:0,{shared}")))])
    assert (gpus.used, gpus.free) == (used, 4 - used)


def test_a_state_is_the_flag_that_matters_most() -> None:
    node = Node("n", state="IDLE")
    told = [("CLOUD",), ("CLOUD", "POWERED_DOWN"), ("PLANNED", "POWERED_DOWN"), ("POWERING_UP", "DRAIN")]
    assert [standing(replace(node, flags=flags)) for flags in told] == ["IDLE", "POWERED_DOWN", "PLANNED", "DRAIN"]


@pytest.mark.parametrize(("states", "free"), [(("DOWN", "UP"), 4), (("DRAIN", "INACTIVE"), 0), (("DOWN", "DOWN"), 0)])
def test_gpus_of_partitions_that_start_no_jobs_are_not_free(states: tuple[str, str], free: int) -> None:
    node = Node("n", state="IDLE", cpus=4, cpus_idle=4, gres=tuple(parse_gres("gpu:4")), partitions=("a", "b"))
    known = Resources(
        0.0, (node,), tuple(KnownPartition(name, state) for name, state in zip("ab", states, strict=True))
    )
    told = known.as_dict()
    assert [one["free"] for one in told["gpus"]] == [free]
    assert [one["gpus"][0]["free"] for one in told["partitions"]] == [4 if state == "UP" else 0 for state in states]


def test_gpus_of_hidden_partitions_are_not_free() -> None:
    node = Node("a", state="IDLE", cpus=4, cpus_idle=4, gres=tuple(parse_gres("gpu:4")), partitions=("hidden",))
    nodes = (node, replace(node, name="b", partitions=()))
    for known, free in (((KnownPartition("open"),), 0), ((), 8)):
        (found,) = Resources(0.0, nodes, known).gpus
        assert (found.total, found.free) == (8, free), "free while no partition is known"
    both = replace(node, partitions=("hidden", "open"))
    assert [one.free for one in Resources(0.0, (both,), (KnownPartition("open"),)).gpus] == [4]


@pytest.mark.parametrize(("default", "free"), [("8192", 0), ("2048", 4), ("UNLIMITED", 4), ("", 4)])
def test_a_gpu_is_free_if_there_is_memory_for_a_job(default: str, free: int) -> None:
    node = Node("n", state="MIXED", cpus=4, cpus_idle=2, gres=tuple(parse_gres("gpu:4")), partitions=("gpu",))
    node = replace(node, memory=64 << 30, memory_used=60 << 30)
    known = Resources(0.0, (node,), (KnownPartition("gpu", fields={"DefMemPerCPU": default}),))
    told = known.as_dict()
    assert [one["free"] for one in [*told["gpus"], *told["partitions"][0]["gpus"]]] == [free, free]
    assert told["partitions"][0]["cpus_free"] == (2 if free else 0)


@pytest.mark.slurm
@pytest.mark.root
async def test_what_is_kept_for_another_job_or_has_no_memory_is_not_free(
    new_cluster: Callable[..., EmbeddedCluster], tmp_path: Any, open_desk: Any
) -> None:
    described = load_description()
    nodes = replace(described.nodes[0], names=("zulu1", "alpha1", "beta1"), gpus={"a100": 4})
    cluster = new_cluster(nodes=(nodes,), partitions=(Partition("gpu", nodes.names, default=True),))
    look = {"wait": 60.0, "is_newer": True, "has_nodes": True}
    async with open_desk(cluster, tmp_path) as desk:
        resources = desk.core.cluster(desk.id).inventory.resources
        running = await desk.submit(SLEEP, "-w", "zulu1", "--gpus=1", "--mem=1G", "--time=2:00:00")
        await desk.until(running["key"], lambda job: job["state"] == "RUNNING")
        await desk.submit(SLEEP, "-N2", "-w", "zulu1,alpha1", "--exclusive", "--time=1:00:00")
        whole = await desk.submit(SLEEP, "-w", "beta1", "--gpus=1", "--mem=0", "--time=30:00")
        await desk.until(whole["key"], lambda job: job["state"] == "RUNNING")
        async with asyncio.timeout(90):
            while True:
                told = await resources.to_api(**look)
                if "PLANNED" in {flag for node in told["nodes"] for flag in node["flags"]}:
                    break
                await asyncio.sleep(0.5)
        (partition,) = told["partitions"]
        assert partition["nodes"].get("PLANNED", 0) >= 1
        (gpus,) = partition["gpus"]
        kept = {node["name"] for node in told["nodes"] if "PLANNED" in node["flags"]}
        assert "alpha1" in kept
        assert gpus["free"] == (0 if "zulu1" in kept else 3), "of alpha1 and beta1 none"


@pytest.mark.slurm
@pytest.mark.root
async def test_a_node_that_completes_a_job_is_free_soon(
    new_cluster: Callable[..., EmbeddedCluster], tmp_path: Any, open_desk: Any
) -> None:
    """Resources, their words and the reason of a waiting job agree; Slurm hands the node out after its epilog."""
    tmp_path.chmod(0o755)
    go, epilog = tmp_path / "go", tmp_path / "epilog"
    epilog.write_text(f"#!/bin/sh\nwhile [ ! -e {go} ]; do sleep 0.2; done\n")
    epilog.chmod(0o755)
    dgx = replace(load_description().nodes[0], gpus={"a100": 8})
    partitions = (Partition("gpu", dgx.names, default=True),)
    cluster = new_cluster(nodes=(dgx,), partitions=partitions, extra=(f"Epilog={epilog}",))
    try:
        async with open_desk(cluster, tmp_path) as desk:
            await desk.submit("#!/bin/sh\ntrue\n", "--gpus=2", "--mem=1G")
            async with asyncio.timeout(60):
                while "completing" not in cluster.run("sinfo", "--noheader", "--format=%T").stdout:
                    await asyncio.sleep(0.2)
            resources = desk.core.cluster(desk.id).inventory.resources
            told = await resources.to_api(wait=60.0, is_newer=True, has_nodes=True)
            assert told["partitions"][0]["nodes"] == {"COMPLETING": 1}
            (gpus,) = told["gpus"]
            assert (gpus["free"], gpus["soon"], gpus["total"]) == (0, 8, 8)
            assert "0 of 8 a100 (8 more soon: node completing)" in repr(ShownResources(told).partitions)
            waiting = await desk.submit(SLEEP, "--gpus=1", "--mem=1G")
            words = "Waits until Slurm has cleaned up an ended job on dgx01 (COMPLETING), usually for seconds."
            await desk.until(waiting["key"], lambda job: job["reason_text"] == words)
            go.touch()
            await desk.until(waiting["key"], lambda job: job["state"] == "RUNNING")
    finally:
        go.touch()


@pytest.mark.parametrize("whose", ["1000={", "ann(1000)={"])  # until 23.11, and later
def test_limits_of_others_and_of_other_qos_are_not_ones_own(whose: str) -> None:
    grp = "GrpTRES=cpu=8(3),mem=2048(512),gres/gpu=N(1) GrpTRESMins=cpu=100(7) MaxJobs=5(2) MaxTRESPJ=cpu=4"
    answer = "\n".join(
        [
            "Current Association Manager state",
            f"ClusterName=arandu Account=lab UserName= Partition= Priority=0 ID=1 {grp}",
            f"ClusterName=arandu Account=lab UserName=ann(1000) Partition=gpu Priority=0 ID=2 GrpJobs=N(2) {grp}",
            f"ClusterName=arandu Account=lab UserName=bob(1001) Partition= Priority=0 ID=3 GrpJobs=N(9) {grp}",
            f"ClusterName=other Account=lab UserName=ann(1000) Partition= Priority=0 ID=4 GrpJobs=N(9) {grp}",
            "QOS=few(3) UsageRaw=0.000000 GrpTRES=node=N(2) MaxWallPJ= Account Limits= lab={MaxJobsPA=9(9)} User Limits= "
            f"{whose.replace('ann', 'bob').replace('1000', '1001')}MaxJobsPU=9(9)}} {whose}MaxJobsPU=3(2) MaxTRESPU=node=4(2)}}",
            f"QOS=foreign(4) UsageRaw=0.000000 GrpTRES=cpu=1(1) User Limits= {whose}MaxJobsPU=1(1)}}",
            "QOS=torn",
        ]
    )
    idle = KnownQos("idle", tres_of_user={"gres/gpu": 2}, jobs_of_user=1)
    found = parse_limits(answer.encode(), "ann", "arandu", [idle, KnownQos("few", jobs_of_user=3)], ["few", "idle"])
    assert found.use == {"jobs": 2, "cpu": 3, "mem": 512 << 20, "gres/gpu": 1}
    told = [(one.scope, one.name, one.kind, one.resource, one.maximum, one.used) for one in found.limits]
    both = [
        ("in-use", "cpu", 8, 3),
        ("in-use", "mem", 2048 << 20, 512 << 20),
        ("minutes", "cpu", 100, 7),
        ("job", "cpu", 4, None),
        ("jobs", "", 5, 2),
    ]
    assert told == [
        *(("account", "lab", *one) for one in both),
        *(("user", "lab", *one) for one in both),
        ("qos-user", "few", "in-use", "node", 4, 2),
        ("qos-user", "few", "jobs", "", 3, 2),
        ("qos-user", "idle", "in-use", "gres/gpu", 2, 0),
        ("qos-user", "idle", "jobs", "", 1, 0),
    ]


async def test_limits_of_the_qos_of_visible_partitions_are_ones_own() -> None:
    answer = "\n".join(
        f"QOS={name}(3) UsageRaw=0.000000 GrpTRES=gres/gpu=8(4) User Limits=" for name in ("normal", "part", "hid", "x")
    )
    partitions = (
        KnownPartition("gpu", fields={"QoS": "Part"}),
        KnownPartition("cpu", fields={"QoS": "N/A"}),
        KnownPartition("kept", is_hidden=True, fields={"QoS": "hid"}),
    )
    config = {"AccountingStorageEnforce": "associations,limits,qos"}
    facts = Facts(0.0, partitions, config=config, associations=(Association("lab", qos=("normal",)),))

    async def read(argv: list[str], parse: Callable[[bytes], Any]) -> Any:
        return parse(b"" if argv[0] == "sinfo" else answer.encode())

    async def get(_: float) -> Facts:
        return facts

    location = SimpleNamespace(user="ann", cost={}, min_poll_interval=60.0)
    made: Any = (SimpleNamespace(read=read), SimpleNamespace(get=get), location)
    known = await ResourceInventory(*made, clock=lambda: 100.0, further_tasks=lambda: 0).current(wait=5.0)
    assert known.limits is not None
    assert [(one.scope, one.name, one.used) for one in known.limits.limits] == [
        ("qos", "normal", 4),
        ("qos", "part", 4),
    ]
