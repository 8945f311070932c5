"""Disturbances that other tests cause in a cluster have the intended effect."""

from __future__ import annotations

import signal

import pytest

from jupyter_slurm.errors import CommandError, EmbeddedError

pytestmark = pytest.mark.slurm


def submit(cluster, *options: str) -> str:
    argv = ["sbatch", "--parsable", "--output=/dev/null", *options, "--wrap", "sleep 1000"]
    return cluster.run(*argv).stdout.strip()


def state(cluster, job: str) -> str:
    argv = ["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T"]
    return cluster.run(*argv, check=False).stdout.strip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_jobs_outlive_a_restart_of_the_controller(new_cluster, wait_for, number):
    cluster = new_cluster()
    job = submit(cluster)
    wait_for(lambda: state(cluster, job) == "RUNNING", "the job to run")
    before = cluster.status().daemons["slurmctld"]
    steps = wait_for(lambda: _steps(cluster), "the job to have begun on its node")
    if number == signal.SIGKILL:
        # slurmctld does not save at once that backfill started a job, but it soon saves a change to the job.
        cluster.run("scontrol", "update", f"jobid={job}", "comment=saved")
        saved = cluster.layout.controller_state / "job_state"
        wait_for(lambda: saved.exists() and b"c4aiscw1" in saved.read_bytes(), "the running job on disk")
    cluster.restart_controller(number)
    assert cluster.status().daemons["slurmctld"] != before
    wait_for(lambda: state(cluster, job) == "RUNNING", "the job after the restart")
    assert _steps(cluster) & steps


def _steps(cluster) -> set[int]:
    return {process.pid for process in cluster.processes(cluster.state) if process.name == "slurmstepd"}


def test_a_stopped_controller_is_out_of_reach_until_it_is_started(new_cluster):
    cluster = new_cluster()
    cluster.stop_controller()
    assert cluster.status().missing == ["slurmctld"]
    with pytest.raises(CommandError, match="Unable to contact slurm controller"):
        cluster.run("squeue")
    cluster.start_controller()
    assert cluster.status().state == "running"


def test_a_frozen_controller_takes_the_call_and_does_not_answer(new_cluster, wait_for):
    cluster = new_cluster(extra=("MessageTimeout=3",))
    with cluster.frozen_controller():
        done = cluster.run("sbatch", "--wrap", "true", "-o", "/dev/null", check=False)
        assert done.returncode == 1
        assert "timed out" in done.stderr
    queue = ["squeue", "--noheader", "--states=all", "--format=%j"]
    wait_for(lambda: cluster.run(*queue, check=False).stdout == "wrap\n", "the job whose answer was lost")


def test_a_node_without_power_loses_its_jobs(new_cluster, wait_for):
    cluster = new_cluster(extra=("SlurmdTimeout=3",))
    job = submit(cluster, "--nodelist=c4aiscw2", "--no-requeue")
    wait_for(lambda: state(cluster, job) == "RUNNING", "the job to run")
    cluster.kill_node("c4aiscw2")
    assert cluster.status().missing == ["slurmd/c4aiscw2"]
    assert not _steps(cluster)
    wait_for(lambda: state(cluster, job) == "NODE_FAIL", "the controller to notice")
    cluster.start_node("c4aiscw2")
    wait_for(lambda: cluster.status().nodes["c4aiscw2"] == "idle", "the node to be back")
    with pytest.raises(EmbeddedError, match="not a node"):
        cluster.kill_node("c4aiscw9")


def test_slurmdbd_can_be_away(accounting_cluster):
    accounting_cluster.stop_slurmdbd()
    try:
        with pytest.raises(CommandError, match=r"Connection refused|slurmdbd"):
            accounting_cluster.run("sacct")
        assert accounting_cluster.run("srun", "echo", "jobs go on").stdout == "jobs go on\n"
    finally:
        accounting_cluster.start_slurmdbd()
    accounting_cluster.run("sacct")
