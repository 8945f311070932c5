"""Jobs of the embedded cluster get the resources of a real one: GPUs, CPU masks, memory limits, clean-up, users."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from jupyter_slurm.domain.slurm_values import Gres, parse_gres
from jupyter_slurm.embedded.machine import cgroups
from jupyter_slurm.embedded.toml_fields import Table
from jupyter_slurm.errors import CommandError

pytestmark = pytest.mark.slurm

with_cgroups = pytest.mark.skipif(not cgroups.detect()[0], reason=f"no control groups: {cgroups.detect()[1]}")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def state_of(cluster, wait_for):
    """Return a function: ``state_of(job)`` waits for the end of a job and returns its state."""

    def get(job: str) -> str:
        ended = ("COMPLETED", "FAILED", "CANCELLED", "OUT_OF_MEMORY", "TIMEOUT", "NODE_FAIL")

        def state() -> str:
            text = cluster.run("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T").stdout.strip()
            return text if text in ended else ""

        return wait_for(state, f"the end of job {job}")

    return get


@pytest.fixture
def submit(cluster):
    """Return a function: ``submit(script, *options, user=…)`` submits a job and returns its ID."""

    def run(script: str, *options: str, **more) -> str:
        argv = ["sbatch", "--parsable", "--output=/dev/null", *options]
        return cluster.run(*argv, stdin=f"#!/bin/bash\n{script}\n", **more).stdout.strip()

    return run


def test_gpus_are_given_by_type_and_number(cluster):
    script = "echo $SLURM_GPUS_ON_NODE $CUDA_VISIBLE_DEVICES $SLURMD_NODENAME"
    done = cluster.run("srun", "-p", "arandu", "--gpus=a100:3", "bash", "-c", script)
    assert done.stdout == "3 0,1,2 dgx01\n"
    with pytest.raises(CommandError, match=r"Requested node configuration|Invalid generic resource"):
        cluster.run("srun", "-p", "arandu", "--gpus=h100:1", "true")


def test_two_jobs_do_not_get_the_same_gpu(cluster, submit, wait_for):
    for _ in range(2):
        submit("sleep 1000", "-p", "arandu", "--gpus=4")
    used = ["scontrol", "--oneliner", "show", "node", "-d", "dgx01"]
    wait_for(lambda: "GresUsed=gpu:a100:8(IDX:0-7)" in cluster.run(*used).stdout, "all eight GPUs in use")
    pending = submit("true", "-p", "arandu", "--gpus=1")
    reason = ["squeue", "--noheader", f"--jobs={pending}", "--format=%T %r"]
    wait_for(lambda: cluster.run(*reason).stdout == "PENDING Resources\n", "the ninth GPU to be waited for")


def test_nodes_have_their_features_and_devwork_is_the_default(cluster):
    done = cluster.run("srun", "--constraint=workstation", "--gpus=1", "printenv", "SLURM_JOB_PARTITION")
    assert done.stdout == "devwork\n"


def test_more_tasks_than_this_machine_has_cpus(cluster, tmp_path):
    """Check a step that automatic binding would refuse in a job with control groups."""
    output = tmp_path / "output"
    step = ["--wrap", "srun printenv SLURM_PROCID"]
    cluster.run("sbatch", "--wait", "-w", "c4aiscw1", "-N1", "-n16", "-o", str(output), *step)
    assert sorted(map(int, output.read_text().split())) == list(range(16))


def test_jobs_that_say_nothing_about_memory_share_a_node(cluster, submit, wait_for):
    for _ in range(3):
        submit("sleep 1000", "-w", "c4aiscw2")
    running = ["squeue", "--noheader", "--states=running", "--nodelist=c4aiscw2"]
    wait_for(lambda: len(cluster.run(*running).stdout.splitlines()) == 3, "three jobs on one node")


@with_cgroups
def test_a_job_is_bound_to_its_cpus(cluster):
    count = "import os; print(len(os.sched_getaffinity(0)))"
    assert cluster.run("srun", "-n1", "-c1", "python3", "-c", count).stdout == "1\n"


@with_cgroups
def test_a_job_that_takes_too_much_memory_is_out_of_memory(submit, state_of):
    job = submit("python3 -c 'x = bytearray(300 * 1024 * 1024)'", "--mem=100M")
    assert state_of(job) == "OUT_OF_MEMORY"


@with_cgroups
def test_what_a_job_detached_ends_with_it(cluster, submit, state_of, tmp_path, wait_for):
    tmp_path.chmod(0o777)
    job = submit(f"env -i setsid --fork sh -c 'echo $$ > {tmp_path}/pid; exec sleep 1000' & sleep 1000")
    pid = int(wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "the detached process"))
    os.kill(pid, 0)
    cluster.run("scancel", job)
    assert state_of(job) == "CANCELLED"
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"), "the detached process to end")


@as_root
def test_jobs_run_as_the_user_who_submitted_them(cluster, alice, bob, wait_for):
    for user in (alice, bob):
        assert cluster.run("srun", "id", "-un", user=user).stdout == f"{user}\n"
    job = cluster.run("sbatch", "--parsable", "--wrap", "sleep 1000", "-o", "/dev/null", user=alice).stdout.strip()
    with pytest.raises(CommandError, match="Access/permission denied"):
        cluster.run("scancel", job, user=bob)
    # By default squeue also shows finished jobs that are not yet cleaned up, such as those of srun.
    mine = ["squeue", "--me", "--states=pending,running", "--noheader", "--format=%A"]
    assert cluster.run(*mine, user=bob).stdout == ""
    assert cluster.run(*mine, user=alice).stdout == f"{job}\n"


def test_a_job_starts_without_waiting_for_a_round_of_the_scheduler(cluster, submit, state_of):
    """Check five in a row: slurmctld looks for batch jobs once a second, with its defaults every three."""
    for _ in range(5):
        assert state_of(submit("true")) == "COMPLETED"


def test_no_variable_of_another_cluster_reaches_the_commands(cluster, monkeypatch):
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    monkeypatch.setenv("SBATCH_PARTITION", "none")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("MINE", "kept")
    env = cluster.env()
    assert not {"SQUEUE_FORMAT", "SBATCH_PARTITION", "SLURM_JOB_ID"} & set(env)
    assert (env["MINE"], env["SLURM_CONF"]) == ("kept", str(cluster.slurm_conf))


def test_parts_of_gpus_are_types_as_any_other(new_cluster):
    """Check names of MIG, which begin with a digit."""
    group = new_cluster(start=False).description.nodes[0]
    gpus = Table({"gpus": {"1g.10gb": 2, "a100": 1}}, "").gpus("gpus")
    cluster = new_cluster(nodes=(replace(group, gpus=gpus),))
    for option, seen in (("--gres=gpu:1g.10gb:1", "0"), ("--gpus=1g.10gb:2", "0,1"), ("--gpus=a100:1", "2")):
        said = cluster.run("srun", option, "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
        assert said.stdout == f"{seen}\n"
    found = parse_gres(cluster.run("sinfo", "--noheader", "--nodes", group.names[0], "--format=%G").stdout)
    assert found == [Gres("gpu", "1g.10gb", 2), Gres("gpu", "a100", 1)]
    assert parse_gres("gpu:1g.10gb") == [Gres("gpu", "1g.10gb", 1)]
