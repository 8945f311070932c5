"""Tests of the reasons why jobs wait, as a real Slurm gives them: each has the right words and advice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from jupyter_slurm.domain.advice.reasons import explain
from jupyter_slurm.embedded import EmbeddedCluster, load_description
from jupyter_slurm.embedded.description import Account, Partition, Qos, User

pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.here_only("the words are the same over each way")]

_LIMITS = {
    "cpus": {"MaxTRESPerUser": "cpu=2"},
    "few": {"MaxJobsPerUser": "1"},
    "memory": {"GrpTRES": "mem=1024"},
    "minutes": {"GrpTRESMins": "cpu=10"},
    "perjob": {"MaxTRESPerJob": "cpu=1"},
    "wall": {"MaxWall": "10"},
}
# Options of a job that waits, a part of the explanation, a part of the advice.
_WAITING = (
    (("--reservation=later",), "waits for its reservation to begin", "starts automatically"),
    (("-q", "cpus"), "limit of the QOS for CPUs for one user is reached", "when jobs under that limit have ended"),
    (("-q", "few"), "limit of the QOS for jobs for one user is reached", "when jobs under that limit have ended"),
    (("-q", "memory"), "limit of the QOS for memory is reached", "--mem="),
    (("-q", "minutes"), "The QOS has no more time left for CPUs", "shorter --time"),
    (("-q", "perjob", "-c2"), "more CPUs for one job than the QOS allows", "Request less"),
    (("-q", "wall"), "more running time for one job than the QOS allows", "timelimit="),
    (("-A", "bounded", "-c2"), "all jobs of your account together for CPUs is reached", "have ended"),
    (("-A", "gpubound", "--gpus=1"), "all jobs of your account together for GPUs", "have ended"),
    (("-A", "onejob"), "all jobs of your account together for jobs is reached", "have ended"),
    (("--begin=now+1hour",), "earliest start time has not come", "starts automatically"),
    (("-p", "small", "--time=2:00:00"), "longer than the partition allows", "timelimit="),
    (("-p", "small", "-N2"), "more nodes than the partition allows", "fewer nodes"),
    (("-p", "closed"), "partition is down", "--partition"),
    (("-H",), "It is held", "scontrol release"),
)
_LACKING = (
    (("-w", "n4"), "(Nodes: n4)", "without naming nodes"),
    # A job that names no node: the scheduler that considered it last decides which of two reasons it has.
    (
        ("-N4",),
        ("(Nodes: n4)", "All nodes that could run it are down, drained or reserved"),
        ("fewer nodes", "sinfo -R"),
    ),
)
# "ReqNodeNotAvail, May be reserved for other job", whatever is the matter with the node
_LACKING_NEWER = (
    (("-w", "n4"), "A node that it needs is not available", "sinfo -R"),
    (
        ("-N4",),
        ("A node that it needs is not available", "All nodes that could run it are down, drained or"),
        "sinfo -R",
    ),
)


@pytest.fixture
def strict(new_cluster: Callable[..., EmbeddedCluster]) -> EmbeddedCluster:
    """Provide four nodes, one of them drained, one reserved for later; partitions, QOS and accounts with limits."""
    nodes = replace(load_description().nodes[0], names=("n1", "n2", "n3", "n4"), cpus=4, memory=4096, gpus={"a100": 2})
    accounts = {"bounded": "cpu=2", "gpubound": "gres/gpu=1"}
    bounded = [Account(name, limits={"GrpTRES": limit}) for name, limit in accounts.items()]
    names = ("lab", *accounts, "onejob")
    cluster = new_cluster(
        nodes=(nodes,),
        partitions=(
            Partition("main", nodes.names, default=True),
            Partition("small", nodes.names, max_time="1:00:00", max_nodes=1),
            Partition("closed", nodes.names, state="DOWN"),
        ),
        accounting=True,
        accounts=(Account("lab"), *bounded, Account("onejob", limits={"GrpJobs": "1"})),
        users=(User("root", names, "lab", ("normal", *_LIMITS)),),
        qos=tuple(Qos(name, limits=limits) for name, limits in _LIMITS.items()),
        enforce=("associations", "limits", "qos", "safe"),
    )
    later = ("ReservationName=later", "StartTime=now+1hour", "Duration=60", "Nodes=n3", "Users=root")
    cluster.run("scontrol", "create", "reservation", *later)
    cluster.run("scontrol", "update", "NodeName=n4", "State=DRAIN", "Reason=fan")
    return cluster


def test_each_reason_has_the_right_words_and_advice(
    strict: EmbeddedCluster, tmp_path: Any, wait_for: Callable[..., Any]
) -> None:
    script = tmp_path / "sleep.sh"
    script.write_text("#!/bin/sh\nsleep 600\n")

    def submit(*options: str) -> str:
        usual = ["--parsable", "--output=/dev/null", "--mem-per-cpu=100M", "--time=30:00"]
        return strict.run("sbatch", *usual, *options, str(script)).stdout.strip()

    def reasons(*states: str) -> dict[str, str]:
        asked = ("--noheader", f"--states={','.join(states)}", "--format=%A|%r")
        lines = strict.run("squeue", *asked).stdout.splitlines()
        return {job: reason for job, _, reason in (line.partition("|") for line in lines)}

    use_up = (("-q", "cpus", "-c2"), ("-q", "few"), ("-q", "memory", "--mem-per-cpu=1G"))
    use_up += (("-A", "bounded"), ("-A", "gpubound", "--gpus=1"), ("-A", "onejob"))
    running = [submit(*options) for options in use_up]
    wait_for(lambda: set(running) <= reasons("RUNNING").keys(), "jobs that use up the limits")
    lacking = _LACKING_NEWER if strict.installation.version >= (24, 11) else _LACKING
    waiting = {submit(*options): (options, words, step) for options, words, step in (*_WAITING, *lacking)}

    def has_any(text: str, parts: str | tuple[str, ...]) -> bool:
        return any(part in text for part in ((parts,) if isinstance(parts, str) else parts))

    def wrong() -> list[object]:
        known = reasons("PENDING")
        said = {job: explain(known.get(job, "")) for job in waiting}
        return [
            (options, known.get(job), said[job])
            for job, (options, words, step) in waiting.items()
            if not has_any(said[job][0], words) or not has_any(said[job][1], step)
        ]

    try:
        wait_for(lambda: not wrong(), "reasons of the waiting jobs")
    finally:
        assert wrong() == []
