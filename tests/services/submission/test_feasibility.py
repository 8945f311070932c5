"""Tests of warnings about a job from facts of the cluster, compared with Slurm's decision."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.domain.advice.feasibility import feasibility_warnings
from jupyter_slurm.domain.cluster_facts import Facts
from jupyter_slurm.domain.options.request import Request
from jupyter_slurm.domain.queries.associations import Association
from jupyter_slurm.domain.queries.cluster import Node, parse_partitions
from jupyter_slurm.embedded import EmbeddedCluster, load_description
from jupyter_slurm.embedded.description import Account, Partition, Qos
from jupyter_slurm.errors import SubmitRefused

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.root,
    pytest.mark.here_only(
        "what is known comes by the client, as what the Tab key offers, which is asked over each way"
    ),
]

SCRIPT = "#!/bin/sh\nexit 0\n"

# Options, and the warning; empty: no warning.
SAID = [
    (["-p", "arndu"], "There is no partition arndu. Did you mean arandu?"),
    (["-A", "c4a"], "You have no account c4a on this cluster. Did you mean c4ai?"),
    (["-q", "urgnt"], "There is no QOS urgnt. Did you mean urgent?"),
    (["-p", "arandu", "-q", "urgent"], "Partition arandu accepts no jobs of the QOS urgent, only of: normal."),
    (["-p", "others"], "Partition others accepts no jobs of the account c4ai, only of: physics."),
    (["-p", "closed"], "Partition closed is DRAIN. It accepts no new jobs."),
    (["-p", "elsewhere"], "accepts only jobs that are submitted on login[1-2], but this host is "),
    (["-p", "arandu", "-t", "3:00:00"], "--time=3:00:00 is more than partition arandu allows (2:00:00)."),
    (["-t", "30-0"], "--time=30-0 is more than partition devwork allows (7-00:00:00). At most: --time=7-00:00:00."),
    (["-q", "urgent", "-t", "2:00:00"], "--time=2:00:00 is more than the QOS urgent allows (1:00:00)."),
    (["-p", "arandu", "--gres=gpu:a100:9"], "is more than any node in partition arandu has: at most 8 a100 GPUs."),
    (["-p", "arandu", "--gres=gpu:h100:1"], "No node has GPUs of the type h100. Did you mean a100?"),
    (["-p", "arandu", "-G", "9"], "--gpus=9 is more than all nodes in partition arandu have: 8 GPUs."),
    (["--gpus-per-node=1"], "no node in partition devwork has GPUs. There are such nodes in: arandu"),
    (["--gres=gpuu:1"], "There is no generic resource gpuu. Did you mean gpu?"),
    (["-N", "3"], "--nodes=3 asks for 3 nodes, but the number of nodes in partition devwork is 2."),
    (["-c", "17"], "The job needs 17 CPUs on one node, but no node in partition devwork has more than 16."),
    (["-n", "33"], "The job needs 33 CPUs, but there are 32 in partition devwork."),
    (["-N", "1", "-n", "20"], "The job needs 20 CPUs on 1 node, but no node in partition devwork has more than 16."),
    (["--mem", "65G"], "--mem=65G is more than any node in partition devwork has: at most 64G."),
    (["-C", "dgx&a101"], "No node has the feature a101. Did you mean a100?"),
    (
        ["-C", "dgx"],
        "No node in partition devwork has the features of --constraint=dgx. There are such nodes in: arandu",
    ),
    (["--reservation", "nigt"], "There is no reservation nigt. Did you mean night?"),
    (["-w", "c4aiscw[1-3]"], "There is no node c4aiscw3. Did you mean c4aiscw2?"),
    (
        ["-n1", ":", "-p", "arandu", "--gres=gpu:a100:9"],
        "is more than any node in partition arandu has: at most 8 a100",
    ),
    (
        ["-p", "arandu", "-t", "60", ":", "-N", "3"],
        "--nodes=3 asks for 3 nodes, but the number of nodes in partition devwork is 2.",
    ),
    (
        ["-p", "small", "--mem=1001"],
        "--mem=1001 is more than a job may have on a node in partition small: at most 1000M.",
    ),
    (
        ["-p", "small", "--mem-per-cpu=400", "-c", "4"],
        "--mem-per-cpu=400 for each of 4 CPUs is more than a job may have",
    ),
    (["-p", "small", "--mem=65G"], "--mem=65G is more than any node in partition small has: at most 64G."),
    (["-p", "thin", "--mem=16001"], "is more than a job may have on a node in partition thin: at most 16000M."),
    (["-p", "thin,small", "--mem-per-cpu=2000", "-c", "9"], "may have on a node in thin, small: at most 16000M."),
    (["-M", "arand"], "There is no cluster arand. Did you mean arandu?"),
    (["-M", "arandu", "-N", "3"], "--nodes=3 asks for 3 nodes, but the number of nodes in partition devwork is 2."),
    (["-w", "dgx01"], "Node dgx01 is not in partition devwork. It is in: arandu."),
]
# Options, and the problem that a form shows beside the field: option, owner of the limit, limit.
AT_FIELDS = [
    (["-p", "arndu"], ("partition", "", "")),
    (["-A", "c4a"], ("account", "", "")),
    (["-q", "urgnt"], ("qos", "", "")),
    (["-p", "others"], ("account", "", "")),
    (["-p", "closed"], ("partition", "", "")),
    (["-p", "arandu", "-q", "urgent"], ("qos", "", "")),
    (["-p", "arandu", "-t", "3:00:00"], ("time", "partition", "2:00:00")),
    (["-q", "urgent", "-t", "2:00:00"], ("time", "qos", "1:00:00")),
    (["-p", "arandu", "-G", "9"], ("gpus", "partition", "8")),
    (["-p", "arandu", "-G", "h100:1"], ("gpus", "", "")),
    (["-G", "1"], ("gpus", "partition", "0")),
    (["-p", "arandu", "--gpus-per-node=9"], ("gpus", "node", "8")),
    (["-N", "1", "-c", "17"], ("cpus-per-task", "node", "16")),
    (["-n", "33"], ("cpus-per-task", "partition", "32")),
    (["-N", "1", "-n", "20"], ("cpus-per-task", "node", "16")),
    (["--mem", "65G"], ("mem", "node", "64G")),
    (["-p", "small", "--mem=1001"], ("mem", "node", "1000M")),
]
EQUALS = ["-p", "arandu", "--gres=gpu:a100=2"]
FINE = [
    [],
    ["-p", "arandu,devwork", "-t", "3:00:00"],
    ["-p", "arandu", "-t", "2:00:00", "--gres=gpu:a100:8", "-A", "c4ai", "-q", "normal"],
    ["-p", "arandu", "-G", "a100:8", "-c", "128", "--mem=1T"],
    ["-N", "1-9", "-n", "32"],
    ["-n", "40", "-O"],
    ["-C", "workstation|dgx"],
    ["--mem=0", "--gres=none"],
    ["-p", "small", "--mem=1000"],
    ["-p", "small", "--mem-per-cpu=400", "-n", "4"],
    ["-p", "thin", "--mem=16000"],
    ["-p", "thin", "--mem-per-cpu=2000", "-c", "8"],
    ["-p", "small,thin", "--mem=2000"],
    ["-M", "arandu"],
    ["--reservation", "night"],
    ["-p", "arandu", "-t", "60", "--gres=gpu:a100:8", ":", "-c", "16", ":", "-p", "arandu", "-n", "100"],
]


@pytest.fixture
def limited(new_cluster: Callable[..., EmbeddedCluster]) -> EmbeddedCluster:
    """Provide a cluster with limits: of time, by account, by QOS; with a closed partition and a reserved night."""
    urgent = Qos("urgent", limits={"MaxWall": "60"}, flags=("DenyOnLimit",))
    described = replace(load_description(), qos=(urgent,)).with_users("root")
    dgx, stations = described.nodes[0], replace(described.nodes[1], names=("c4aiscw1", "c4aiscw2"), gpus={})
    cluster = new_cluster(
        nodes=(dgx, stations),
        partitions=(
            Partition("arandu", dgx.names, max_time="2:00:00", allow_qos=("normal",)),
            Partition("devwork", stations.names, default=True, max_time="7-00:00:00"),
            Partition("others", stations.names, allow_accounts=("physics",)),
            Partition("closed", stations.names, state="DRAIN"),
        ),
        accounting=True,
        accounts=(*described.accounts, Account("physics")),
        users=described.users,
        qos=described.qos,
        enforce=("associations", "limits", "qos"),
        extra=("EnforcePartLimits=ANY",),  # otherwise a job that can never start is accepted, too, and waits
    )
    night = ["ReservationName=night", "StartTime=now+1hour", "Duration=60", "Users=root", "Nodes=c4aiscw2"]
    cluster.run("scontrol", "create", "reservation", *night)
    limits = {"small": "MaxMemPerNode=1000", "thin": "MaxMemPerCPU=1000", "elsewhere": "AllocNodes=login[1-2]"}
    for name, limit in limits.items():
        nodes = f"Nodes={','.join(stations.names)}"
        cluster.run("scontrol", "create", f"PartitionName={name}", nodes, limit, "MaxTime=60")
    return cluster


@pytest.mark.slow
async def test_what_is_said_is_what_slurm_does(limited: EmbeddedCluster, tmp_path: Any, open_desk: Any) -> None:
    """sbatch refuses each job with a warning, and accepts the others."""
    async with open_desk(limited, tmp_path) as desk:
        await _while_the_controller_sleeps(desk, limited)
        names = (await desk.core.clusters.list_names(desk.id, "partition", 60.0))["names"]
        assert {one["name"] for one in names} == {
            "arandu",
            "devwork",
            "others",
            "closed",
            *("small", "thin", "elsewhere"),
        }
        for kind, expected in {
            "account": {"c4ai": "default, QOS normal, urgent"},
            "qos": {"normal": "", "urgent": "at most 1:00:00"},
            "reservation": {"night": "inactive, c4aiscw2"},
            "cluster": {"arandu": "this one"},
            "feature": {"dgx": "1 node", "workstation": "2 nodes"},
        }.items():
            told = (await desk.core.clusters.list_names(desk.id, kind, 60.0))["names"]
            assert expected.items() <= {one["name"]: one["about"] for one in told}.items(), kind
        told = (await desk.core.clusters.list_names(desk.id, "time-limit", 60.0, "arandu"))["names"]
        assert [tuple(one.values()) for one in told[-2:]] == [("1:00:00", "1 h"), ("2:00:00", "the most in arandu")]
        wrong = {}
        is_taken = limited.installation.version >= (24, 11)
        miscounted = (EQUALS, "" if is_taken else "--gres=gpu:a100=2: write the number after a colon, a100:2.")
        for options, said in [*SAID, miscounted, *((options, "") for options in FINE)]:
            told, is_refused = await _told(desk, options)
            if (told == "") != (said == "") or said not in told or (said and "(checked " not in told):
                wrong[" ".join(options)] = told
            elif bool(said) != is_refused:
                wrong[" ".join(options)] = "Slurm sees it otherwise"
        assert not wrong, "\n".join(f"{line}: {told}" for line, told in wrong.items())
        for options, expected in AT_FIELDS:
            problems = (await desk.submit(SCRIPT, *options, dry_run=True))["problems"]
            found = [(one["option"], one["scope"], one["limit"]) for one in problems]
            assert found == [expected], options
        with pytest.raises(SubmitRefused) as refused:
            await desk.submit(SCRIPT, "-p", "arandu", "-G", "9")
        assert [one["limit"] for one in refused.value.details["problems"]] == ["8"]
        with pytest.raises(SubmitRefused) as refused:
            await desk.submit(SCRIPT, "-t", "4 hours")
        assert refused.value.details["option"] == "time"
        conf = limited.slurm_conf
        conf.write_text(conf.read_text().replace("EnforcePartLimits=ANY", "EnforcePartLimits=NO"))
        limited.run("scontrol", "reconfigure")
        await _header_environment_and_age_count(desk, limited)


async def _told(desk: Any, options: list[str]) -> tuple[str, bool]:
    """Return the warnings of a submission, and whether sbatch refused it."""
    try:
        job = await desk.submit(SCRIPT, "--begin=now+1hour", *options)
    except SubmitRefused as error:
        return error.hint or "", True
    return " ".join(job["doubts"]), False


async def _while_the_controller_sleeps(desk: Any, cluster: EmbeddedCluster) -> None:
    with cluster.frozen_controller():
        for kind in ("partition", "job"):
            assert (await desk.core.clusters.list_names(desk.id, kind, 0.1))["names"] == []
    assert (await desk.core.clusters.list_names(desk.id, "environment", 0.0))["names"] == []


async def _header_environment_and_age_count(desk: Any, cluster: EmbeddedCluster) -> None:
    header = "#!/bin/sh\n#SBATCH --partition=arandu\n#SBATCH -t 1-0\n"
    job = await desk.submit(header, "--hold")
    assert (
        "--time=1-0 is more than partition arandu allows (2:00:00). It would fit into: -p devwork" in job["doubts"][0]
    )
    assert (await desk.submit(header, "--hold", "-t", "60"))["doubts"] == []
    shown = await desk.submit(header, dry_run=True)
    assert any("more than partition arandu" in text for text in shown["doubts"])
    job = await desk.submit(SCRIPT, "--hold", context={"env": {**desk.env, "SBATCH_TIMELIMIT": "40-0"}})
    assert "SBATCH_TIMELIMIT=40-0 is more than partition devwork" in job["doubts"][0]
    holder = await desk.submit(
        "", "-t", "40-0", "--hold", kind="allocation", python=sys.executable, lease={"seconds": 600, "keep": True}
    )
    assert "--time=40-0" in holder["doubts"][0]
    assert "--time=40-0" in (await desk.submit(SCRIPT, "-M", "arandu", "-t", "40-0", "--hold"))["doubts"][0]

    # A partition that was created since: sbatch decides, and no wrong warning remains.
    cluster.run("scontrol", "create", "PartitionName=new", "Nodes=c4aiscw1")
    assert (await desk.submit(SCRIPT, "-p", "new", "--hold"))["doubts"] == []

    known = await desk.core.clusters.list_names(desk.id, "partition", 0.0)
    with cluster.frozen_controller():
        assert await desk.core.clusters.list_names(desk.id, "partition", 0.0) == known, "what was known is told at once"


def test_groups_and_hidden_nodes_and_plugins() -> None:
    """Cases outside the embedded cluster: groups of other names, hidden nodes, plugins that move jobs."""
    line = b"PartitionName=p AllowGroups=domain users,staff AllowAccounts=ALL State=UP Default=YES MaxTime=60 TotalNodes=2\n"
    partitions = tuple(parse_partitions(line))
    said = "Partition p is for the groups domain users,staff only, and you are in none of them."
    for groups, expected in [({"guests"}, [said]), ({"domain users"}, []), (set(), []), ({"root"}, [])]:
        facts = Facts(0.0, partitions, groups=frozenset(groups))
        assert [doubt.text for doubt in feasibility_warnings(facts, Request({}))] == expected
    # One of two nodes is hidden: it may be larger.
    hidden = Facts(0.0, partitions, (Node("n1", cpus=4, memory=1 << 34, partitions=("p",)),))
    assert feasibility_warnings(hidden, Request({"cpus-per-task": "99", "mem": "9T", "gpus": "9", "nodes": "9"})) == []
    # Alternatives are partitions open to everybody, or certainly to this user.
    closed = b"RootOnly=YES", b"Hidden=YES", b"AllowGroups=staff", b"AllowAccounts=a", b"AllowQos=q", b"State=DOWN"
    others = b"".join(b"PartitionName=o%d MaxTime=UNLIMITED %s\n" % one for one in enumerate(closed))
    choice = Facts(0.0, tuple(parse_partitions(b"PartitionName=p Default=YES MaxTime=60\n" + others)))
    assert feasibility_warnings(choice, Request({"time": "2:00:00"}))[0].text.endswith(
        "allows (1:00:00). At most: --time=1:00:00."
    )
    # A site that chooses the partition: only a named one is compared.
    moved = Facts(
        0.0,
        (*partitions, *parse_partitions(b"PartitionName=q State=UP MaxTime=UNLIMITED")),
        config={"JobSubmitPlugins": "lua"},
    )
    assert feasibility_warnings(moved, Request({"time": "2:00:00"})) == []
    assert feasibility_warnings(moved, Request({"time": "2:00:00", "reservation": "r", "partition": "p"}))[
        -1
    ].text.startswith("--time=2:00")
    assert feasibility_warnings(Facts(0.0, partitions), Request({"nodelist": "./hosts/p", "reservation": "r"}))[
        0
    ].is_about_names


def test_limits_of_the_cluster_other_clusters_and_later_versions() -> None:
    """A limit of the whole cluster, a job that may go elsewhere, and accounts that include their subaccounts."""

    tree: dict[str, str] = {}

    def said(partition: str, asked: dict[str, str], **config: str) -> list[str]:
        partitions = tuple(parse_partitions(f"PartitionName=p TotalNodes=1 Default=YES {partition}\n".encode()))
        node, mine = Node("n1", cpus=4, memory=1 << 34, partitions=("p",)), (Association("us", is_default=True),)
        known = {"associations": mine, "clusters": ("here", "there"), "accounts": tree}
        facts = Facts(0.0, partitions, (node,), config=config, **known)
        return [doubt.text for doubt in feasibility_warnings(facts, Request(asked))]

    at_most = "--mem=2G is more than a job may have on a node in partition p: at most"
    assert said("MaxMemPerNode=UNLIMITED", {"mem": "2G"}, MaxMemPerNode="1024") == [f"{at_most} 1G."]
    assert said("MaxMemPerNode=UNLIMITED", {"mem": "2G"}, MaxMemPerCPU="256") == [f"{at_most} 1G."]
    assert said("MaxMemPerNode=4096", {"mem": "2G"}, MaxMemPerNode="1024") == []
    assert said("MaxMemPerNode=1024", {"mem": "2G", "clusters": "there"}, ClusterName="here") == []
    assert said("MaxMemPerNode=1024", {"mem": "2G", "clusters": "HERE"}, ClusterName="here") == [f"{at_most} 1G."]
    assert said("", {"clusters": "here,thre"}) == ["There is no cluster thre. Did you mean there?"]
    denied = ["Partition p accepts no jobs of the account us."]
    for version in ("22.05.8", "24.11.5"):
        assert said("DenyAccounts=us,them AllowAccounts=ALL", {}, SLURM_VERSION=version) == denied
    only = "AllowAccounts=them"
    assert said(only, {}, SLURM_VERSION="22.05.8") == ["Partition p accepts no jobs of the account us, only of: them."]
    assert said(only, {}, SLURM_VERSION="24.11.5") == [], "us may be below them"
    for above, expected in (("them", []), ("others", said(only, {}, SLURM_VERSION="22.05.8"))):
        tree.update({"us": above, "them": "root", "others": "root", "root": ""})
        assert said(only, {}, SLURM_VERSION="24.11.5") == expected
        assert said("DenyAccounts=them", {}, SLURM_VERSION="24.11.5") == ([] if expected else denied)
    tree.update({"us": "others", "others": "us"})
    assert said(only, {}, SLURM_VERSION="24.11.5") == [], "a circle"


def test_nothing_is_said_where_nothing_is_known() -> None:
    asked = {"partition": "a", "time": "9-0", "gres": "gpu:x:9", "nodes": "9", "account": "b", "qos": "c", "mem": "9T"}
    assert feasibility_warnings(Facts(0.0), Request({**asked, "constraint": "y", "nodelist": "n1"})) == []
    for odd in ("", "a:b:c:d", ",", "[", "\udcff", "9" * 40, "-1", "x" * 10_000):
        for option in asked:
            assert feasibility_warnings(Facts(0.0), Request({option: odd})) == []


async def test_what_the_site_advises_is_told_and_the_job_is_taken(
    cluster: EmbeddedCluster, tmp_path: Any, open_desk: Any
) -> None:
    async with open_desk(cluster, tmp_path, advice={"cpus_per_gpu": 6, "memory": "1G"}) as desk:
        job = await desk.submit(SCRIPT, "-p", "arandu", "--gpus=1", "-c", "8", "--hold")
        assert [text.partition(",")[0] for text in job["doubts"]] == ["These are 8 CPUs per GPU", "Set --mem"]
        record = json.loads(Path(job["folder"], "job.json").read_text())
        assert record["advised"] == {"memory": "1G"}, "for who asks why it waits"
        quiet = await desk.submit(SCRIPT, "-p", "arandu", "--gpus=1", "-c", "6", "--mem=1G", "--hold")
        assert quiet["doubts"] == []
        for each in (job, quiet):
            await desk.core.cluster(desk.id).actions.cancel(each["key"])
