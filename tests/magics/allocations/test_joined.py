"""Tests of steps in running jobs that were submitted in a terminal: a real kernel, a real agent, a real Slurm."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sessions import Page, run_a_cell

from jupyter_slurm.embedded import EmbeddedCluster

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("paramiko"), pytest.mark.by_day()]

_here = pytest.mark.here_only("what is different over SSH is in the first one")

WaitFor = Callable[..., Any]
Submit = Callable[..., str]


def state(cluster: EmbeddedCluster, job: str) -> str:
    """Return the state of a job or of a task of an array."""
    return cluster.run("squeue", "--noheader", "--format=%T", f"--jobs={job}", "--states=all").stdout.strip()


@pytest.fixture
def by_hand(cluster: EmbeddedCluster, wait_for: WaitFor, gate: Callable[[str], Path]) -> Iterator[Submit]:
    """Return a function that submits a job as in a terminal, and waits until it runs; the jobs end with the test."""
    made = []

    def submit(*options: str, task: str = "", state_of: str = "RUNNING") -> str:
        waits = f"until [ -e {gate('end')} ]; do sleep 0.2; done"
        words = ["sbatch", "--parsable", "-p", "arandu", "--output=/dev/null", "--time=30:00", *options]
        job = cluster.run(*words, f"--wrap={waits}").stdout.strip().partition(";")[0]
        made.append(job)
        wait_for(lambda: state_of in state(cluster, f"{job}{task}"), "the job of the terminal")
        return job + task

    yield submit
    cluster.run("scancel", *made)
    wait_for(lambda: not cluster.run("squeue", "--noheader", f"--jobs={','.join(made)}").stdout, "their ends")


def test_steps_and_cells_run_in_a_job_of_a_terminal_and_leave_it_running(
    kernel: Any, by_hand: Submit, cluster: EmbeddedCluster, wait_for: WaitFor
) -> None:
    job = by_hand("--gpus=1", "--nodes=1", "--ntasks=2", "--mem=400M")
    ran = kernel.ok(f"%srun on={job} as=step wait -n 1 sh -c 'echo job $SLURM_JOB_ID gpus $CUDA_VISIBLE_DEVICES'")
    assert f"Allocation {job}" in ran.stdout
    assert kernel.value("step.stdout.strip()") == f"job {job} gpus 0"
    assert re.fullmatch(rf"{job}\.\d+", kernel.value("step.id"))
    joined = kernel.text(kernel.ok(f"x = 20\n%salloc on={job} as=mine").display)
    assert "It is released after" in joined, joined
    assert "The job continues." in joined, joined
    kernel.ok(f"%%remote on={job} in=x\nimport os\nkept = x + 1, os.environ['SLURM_JOB_ID']")
    kernel.ok("%%remote on=mine out=kept\nkept = kept")
    assert kernel.value("kept") == str((21, job))
    kernel.ok(f"%%srun on={job} -n 1 wait out=answer\nanswer = 6 * 7")
    assert kernel.value("answer") == "42"

    assert "Ask for less memory" in kernel.run(f"%srun on={job} wait -n 1 --mem=100G true").traceback

    # It is used only where it is named.
    assert "no allocation" in kernel.run("%%remote\n1").traceback.lower()
    assert kernel.value("len(__import__('jupyter_slurm').allocations())") == "0"
    listed = "[one.id for one in __import__('jupyter_slurm').jobs(active=True)]"  # other tests may have jobs, too
    assert kernel.value(f"{listed}.count('{job}')") == "1", "the step that holds it is no job of its own"

    shown = kernel.ok(f"%salloc release on={job}").display
    wait_for(lambda: "released" in kernel.text(shown), "its end, drawn")
    assert "The job continues." in kernel.text(shown)
    wait_for(lambda: kernel.value("mine.is_finished") == "True", "the end of the step that holds it")
    assert state(cluster, job) == "RUNNING", "only the step of ours has ended"
    wait_for(lambda: "python" not in cluster.run("squeue", "--steps", "--noheader", "--format=%i %j").stdout, "no step")


@_here
def test_a_session_runs_in_a_job_of_a_terminal_and_ends_alone_or_with_it(
    kernel: Any, by_hand: Submit, cluster: EmbeddedCluster, wait_for: WaitFor
) -> None:
    job = by_hand("--gpus=1", "--nodes=1", "--mem=1G")
    for words, why in (
        ("--gpus 1", "keeps its resources and its time limit"),
        ("resume", "resume and on= cannot be combined"),
        (f"stage={Path(__file__).parent}", "a folder is sent before a job starts"),
    ):
        assert why in kernel.run(f"%slurm launch on={job} {words}").traceback
    for words in ("app=tensorboard logdir=~/no-logs", "dir=~/no-logs", "app=tensorboard logdir=no-logs dir=~"):
        refused = kernel.run(f"%slurm launch on={job} {words}").traceback
        assert refused, words
        assert re.search(r"=: The folder \S+/no-logs does not exist on ", refused), refused
        assert "mkdir -p" in refused
    assert "jupyter_slurm" not in cluster.run("squeue", "--steps", "--noheader", "--format=%j", f"--jobs={job}").stdout
    kernel.ok(f"%slurm launch on={job} dir=/none name=lost")
    assert "The folder /none does not exist on " in kernel.value("*lost.data['warnings']"), "a node may have it"
    wait_for(lambda: kernel.value("lost.is_finished") == "True", "its end")
    shown = kernel.ok(f"%slurm launch on={job} name=inside\n").display
    wait_for(lambda: kernel.value("inside.state") == "ready", "the session")
    assert re.fullmatch(rf"{job}\.\d+", kernel.value("inside.id"))
    wait_for(lambda: f"It runs in job {job}, and ends with it." in kernel.text(shown), "its card")
    page = Page(kernel.value("inside.page()"))
    code = "import os; print(os.environ['SLURM_JOB_ID'], os.environ['CUDA_VISIBLE_DEVICES'], 'SLURM_STEP_ID' in os.environ)"
    assert asyncio.run(run_a_cell(page, code)) == f"{job} 0 False\n"
    wait_for(lambda: (kernel.value("inside.data['time_limit']") or "None") != "None", "the limit of its job")
    assert 1500 < int(kernel.value("inside.data['time_limit']")) <= 1800
    kernel.ok("inside.stop()")
    assert kernel.value("inside.state") == "CANCELLED"
    assert state(cluster, job) == "RUNNING", "only the session has ended"

    cluster.run("scontrol", "update", f"jobid={job}", "timelimit=365-00:00:00")
    kernel.ok(f"%slurm launch on={job} name=inside -- {sys.executable} -m http.server --bind {{host}} {{port}}\n")
    wait_for(lambda: kernel.value("inside.state") == "ready", "another server, in the same step of ours")
    no_limit = str(365 * 86_400)  # what Slurm gives a job without a limit
    wait_for(lambda: kernel.value("inside.data['time_limit']") == no_limit, "no limit, and not the rest of a year")
    assert " left" not in kernel.ok("print(inside)").stdout
    cluster.run("scancel", job)
    wait_for(lambda: kernel.value("inside.is_finished") == "True", "its end with its job")
    assert f"Job {job} has ended" in kernel.run(f"%slurm launch on={job}").traceback


@_here
def test_a_task_of_an_array_is_joined_and_its_end_is_reported(
    kernel: Any, by_hand: Submit, cluster: EmbeddedCluster, wait_for: WaitFor
) -> None:
    task = by_hand("--array=3,4", task="_4")
    whole = task.partition("_")[0]
    assert f"on={whole}_INDEX" in kernel.run(f"%srun on={whole} true").traceback
    wait_for(lambda: f"{whole}_3" in kernel.complete("%slurm launch on=")[0], "the completion of its tasks")
    kernel.ok(f"%srun on={task} as=step wait printenv SLURM_JOB_ID")
    assert kernel.value("step.id").startswith(f"{task}.")
    kernel.ok(f"%%srun on={task} as=late\n#!/bin/sh\necho up\nexec sleep 600\n")
    wait_for(lambda: "up" in kernel.value("late.stdout"), "the step")
    cluster.run("scancel", task)
    wait_for(lambda: kernel.value("late.is_finished") == "True", "the end of the step with its job")
    ended = kernel.run("late.wait()").traceback
    assert f"Job {task} ended or was released." in ended, ended
    assert "Name a running job with on=." in ended
    assert "%salloc" not in ended
    wait_for(lambda: kernel.value("late.allocation.is_finished") == "True", "the end of the joined job")
    assert f"Job {task} has ended" in kernel.run(f"%srun on={task} true").traceback
    assert state(cluster, f"{whole}_3") == "RUNNING"


@_here
def test_a_job_that_cannot_be_joined_is_refused_before_anything_starts(
    kernel: Any, by_hand: Submit, cluster: EmbeddedCluster, home: Path
) -> None:
    before = set((home / "jobs").rglob("job.json"))
    pending = by_hand("--hold", state_of="PENDING")
    ran = kernel.run(f"%srun on={pending} true")
    assert f"Job {pending} is not running (PENDING)" in ran.traceback
    assert "held" in ran.traceback
    assert "no job 999999" in kernel.run("%srun on=999999 true").traceback
    parts = by_hand("-N1", ":", "-N1")
    assert "heterogeneous" in kernel.run(f"%srun on={parts} true").traceback
    assert set((home / "jobs").rglob("job.json")) == before


@_here
def test_nothing_starts_in_a_suspended_job_and_it_continues_when_resumed(
    kernel: Any, by_hand: Submit, cluster: EmbeddedCluster, wait_for: WaitFor
) -> None:
    job = by_hand("--nodes=1", "--mem=400M")
    kernel.ok(f"%srun on={job} as=step wait true")
    kernel.ok(f"job = __import__('jupyter_slurm').job('{job}')")
    assert kernel.value("job.suspend().state, job.refresh().state") == "SUSPENDED SUSPENDED"
    why = f"Job {job} is suspended, so "
    for cell in (f"%srun on={job} true", f"%%remote on={job}\n1", f"%slurm launch on={job}", "job.tunnel(9999)"):
        assert why in kernel.run(cell).traceback, cell
    shell = "from jupyter_slurm.client.clusters.cluster import current\nhere = current()\n"
    opens = f"here.client.post(here.path('terminals'), json={{'job': '{job}', 'rows': 24, 'columns': 80}})"
    assert why in kernel.run(shell + opens).traceback
    cluster.run("scontrol", "resume", job)  # not by jupyter_slurm: Slurm is asked, or the queue shows it soon
    wait_for(lambda: kernel.run(f"%srun on={job} as=late wait true").status == "ok", "a step")
    assert kernel.value("job.refresh().state") == "RUNNING"


@_here
def test_the_output_of_a_step_of_a_terminal_and_the_manual_are_shown(
    kernel: Any, cluster: EmbeddedCluster, gate: Callable[[str], Path], wait_for: WaitFor
) -> None:
    step = f"srun sh -c ': >{gate('up')}; until [ -e {gate('end')} ]; do echo tick; sleep 0.2; done; echo over'"
    words = ("sbatch", "--parsable", "-p", "arandu", "--output=/dev/null", "--time=30:00")
    job = cluster.run(*words, f"--wrap={step}").stdout.strip()
    try:
        wait_for(lambda: gate("up").exists(), "its step")
        request = kernel.begin(f"job = {job}\n%sattach --label {{job}}.0")
        wait_for(lambda: kernel.pump() or "0: tick" in str(kernel.under(request)), "its output", timeout=20)
        kernel.manager.interrupt_kernel()
        stopped = kernel.end(request)
        assert f"The job continues. `%sattach --label {job}.0` shows its output again" in stopped.traceback
        request = kernel.begin(f"%sattach --label {job}.0")
        wait_for(lambda: kernel.pump() or "0: tick" in str(kernel.under(request)), "its output", timeout=20)
        gate("end").touch()
        assert kernel.end(request).stdout.endswith("0: over\n")
        assert "Invalid job id" in kernel.run("%sattach 999999.0").stderr
    finally:
        cluster.run("scancel", job)
    assert "--gpus-per-node" in kernel.ok("%slurm man sbatch").stdout
    assert "one manual page" in kernel.run("%slurm man ../sbatch").traceback
