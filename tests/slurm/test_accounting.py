"""Accounting: sacct, associations, QOS with limits and preemption, private data."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from jupyter_slurm.embedded import EmbeddedCluster, load_description
from jupyter_slurm.embedded.description import Account, Partition, Preemption, Qos, User
from jupyter_slurm.errors import CommandError, EmbeddedError

pytestmark = pytest.mark.slurm
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def test_ready_within_thirty_seconds_and_gone_without_a_trace(short_tmp, nothing_left):
    cluster = EmbeddedCluster(load_description().with_users("root"), directory=short_tmp / "acc")
    try:
        cluster.start(timeout=30)
        assert {"mariadbd", "slurmdbd", "slurmctld"} <= set(cluster.status().daemons)
    finally:
        cluster.stop()
    nothing_left(cluster.directory)


def test_a_finished_job_is_accounted_for(accounting_cluster, wait_for):
    job = accounting_cluster.run("sbatch", "--parsable", "-o", "/dev/null", "--comment", "a|b", "--wrap", "exit 3")
    argv = ["sacct", "-n", "-P", "-X", "-j", job.stdout.strip(), "-o", "state,exitcode,account,qos,comment"]
    wait_for(lambda: accounting_cluster.run(*argv).stdout == "FAILED|3:0|c4ai|normal|a|b\n", "sacct to tell")


@as_root
def test_who_is_not_in_the_database_may_not_submit(accounting_cluster):
    with pytest.raises(CommandError, match="Invalid account"):
        accounting_cluster.run("srun", "true", user="nobody", cwd="/")


@as_root
def test_the_limits_of_a_qos_hold(accounting_cluster, alice, wait_for):
    argv = ["sbatch", "--parsable", "-o", "/dev/null", "-p", "arandu", "--qos=urgent", "--wrap", "sleep 1000"]
    first, second = (accounting_cluster.run(*argv, "--gpus=2", user=alice).stdout.strip() for _ in range(2))
    reason = ["squeue", "--noheader", f"--jobs={first},{second}", "--sort=i", "--format=%T %r"]
    expected = "RUNNING None\nPENDING QOSMaxGRESPerUser\n"
    wait_for(lambda: accounting_cluster.run(*reason).stdout == expected, "the second job to be held by the limit")


@as_root
def test_preemption_by_qos_private_data_and_coordinated_accounts(new_cluster, alice, bob, wait_for):
    cluster = new_cluster(
        accounting=True,
        accounts=(Account("lab", fairshare=10), Account("team", parent="lab")),
        users=(User(alice, ("team",)), User(bob, ("team",), qos=("normal", "high"), default_qos="high")),
        qos=(Qos("high", priority=100, preempt=("normal",)),),
        preemption=Preemption("qos", "requeue"),
        private_data=("jobs", "usage", "users"),
        enforce=("associations", "qos"),
    )
    argv = ["sbatch", "--parsable", "-o", "/dev/null", "--exclusive", "-N2", "--wrap", "sleep 1000"]
    low = cluster.run(*argv, user=alice).stdout.strip()
    state = ["squeue", "--noheader", "--format=%T"]
    wait_for(lambda: cluster.run(*state, f"--jobs={low}").stdout == "RUNNING\n", "the first job to run")
    high = cluster.run(*argv, user=bob).stdout.strip()
    wait_for(lambda: cluster.run(*state, f"--jobs={high}").stdout == "RUNNING\n", "the urgent job to run")
    wait_for(lambda: cluster.run(*state, f"--jobs={low}").stdout == "PENDING\n", "the first one to be requeued")
    assert cluster.run("squeue", "--noheader", "--format=%A", user=alice).stdout == f"{low}\n"
    argv = ["sacctmgr", "-nP", "list", "assoc", "format=account,user,fairshare", "where", "account=lab,team"]
    shown = cluster.run(*argv)
    assert set(shown.stdout.splitlines()) >= {"lab||10", f"team|{alice}|1", f"team|{bob}|1"}


def test_preemption_by_partition(new_cluster, wait_for):
    nodes = ("c4aiscw1", "c4aiscw2")
    cluster = new_cluster(
        partitions=(
            Partition("low", nodes, default=True, priority_tier=1, preempt_mode="requeue"),
            Partition("high", nodes, priority_tier=10, preempt_mode="off", max_time="1:00:00", default_time="10"),
        ),
        preemption=Preemption("partition", "requeue"),
        extra=("EnforcePartLimits=ALL",),
    )
    argv = ["sbatch", "--parsable", "-o", "/dev/null", "--exclusive", "-N2", "--wrap", "sleep 1000"]
    low = cluster.run(*argv).stdout.strip()
    state = ["squeue", "--noheader", "--format=%T %l"]
    wait_for(lambda: "RUNNING" in cluster.run(*state, f"--jobs={low}").stdout, "the first job to run")
    high = cluster.run(*argv, "-p", "high").stdout.strip()
    wait_for(lambda: cluster.run(*state, f"--jobs={high}").stdout == "RUNNING 10:00\n", "the other to take its place")
    with pytest.raises(CommandError, match="Requested time limit is invalid"):
        cluster.run("srun", "-p", "high", "-t", "2:00:00", "true")


def test_a_limit_that_sacctmgr_does_not_know_is_told_in_its_words(new_cluster, nothing_left):
    cluster = new_cluster(start=False, accounting=True, qos=(Qos("q", limits={"MaxLuck": "7"}),))
    with pytest.raises(EmbeddedError, match=r"sacctmgr refused 'modify qos q set MaxLuck=7'.*[Uu]nknown"):
        cluster.start()
    nothing_left(cluster.directory)


def test_changing_the_description_leaves_the_original_alone():
    arandu = load_description()
    assert replace(arandu, accounting=True) != arandu
    assert not arandu.accounting
