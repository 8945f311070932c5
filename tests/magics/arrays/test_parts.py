"""Tests of arrays with more tasks than the cluster allows: several arrays of Slurm, one job for the user."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from jupyter_slurm.embedded import EmbeddedCluster

pytestmark = [pytest.mark.slurm, pytest.mark.here_only("the parts are submissions like others, which are tried there")]

PLAIN = "python=/usr/bin/python3"
CELL = """%%sbatch -n1 sweep=n:0,1,2,3,4,5,6,7,8,9 in=ten out=got as=fit {words}
import os
print(task_index, os.environ["SLURM_ARRAY_TASK_ID"])
assert n != 5
got = n * ten
"""
SCRIPT = """%%sbatch -n1 --array=3-10:2%1 as=script -J named -- argument
#!/bin/bash
#SBATCH --comment x
echo "$task_index $SLURM_ARRAY_TASK_ID $1"
[ "$task_index" != 7 ]
"""
RESUMED = """%%sbatch -n1 sweep=n:a,b,c,d,e,f --array=3-5 resume as=resumed python={python} -- argument
#!/bin/sh
echo "$task_index $n $SLURM_ARRAY_TASK_ID $1"
[ -d "$JUPYTER_SLURM_CHECKPOINT_DIR" ]
"""


@pytest.fixture(scope="module")
def cluster(strict_cluster: EmbeddedCluster) -> EmbeddedCluster:
    """Provide the cluster of this module's kernel, with at most four tasks for an array."""
    return strict_cluster


@pytest.fixture(scope="module")
def done(kernel: Any) -> Any:
    """Provide a kernel in which a cell and a script have run as arrays in parts, in parallel."""
    kernel.ok("import jupyter_slurm\nten = 10")
    kernel.ok(CELL.format(words=PLAIN))
    kernel.ok(SCRIPT)
    kernel.ok(RESUMED.format(python=sys.executable))
    kernel.ok("fit.wait(check=False), script.wait(check=False), resumed.wait()")
    return kernel


def queue(cluster: EmbeddedCluster, form: str, states: str = "all") -> list[str]:
    return cluster.run("squeue", "-h", "-r", f"--states={states}", "-o", form).stdout.split()


def test_many_tasks_are_one_job_with_the_numbers_that_were_asked_for(done: Any) -> None:
    assert done.value("len(fit), len(fit.numbers), fit.state, fit.data['tasks']") == (
        "10 3 FAILED {'COMPLETED': 9, 'FAILED': 1}"
    )
    assert done.value("[task.stdout for task in fit]") == str([f"{n} {n % 4}\n" for n in range(10)])
    assert (
        done.value("fit.table()['n'], fit.table()['exit_code']")
        == f"{list(range(10))} {[0, 0, 0, 0, 0, 1, 0, 0, 0, 0]}"
    )
    assert done.value("fit.table()['got'][4], fit.table()['got'][9], fit[8].result()") == "40 90 80"
    assert done.value("fit[6].parameters, fit[6].index, fit[6].id == fit.numbers[1] + '_2'") == "{'n': 6} 6 True"
    assert done.value("str(fit) == ','.join(fit.numbers), fit.numbers[0] == fit.id") == "True True"
    assert "10 tasks" not in done.value("fit.data['warnings']")
    assert "this one is 3 arrays for Slurm" in done.value("fit.data['warnings']")
    assert done.value("sorted(task.index for task in jupyter_slurm.as_completed(fit))") == str(list(range(10)))
    ran = done.run("fit[10]")
    assert (ran.error, "Its tasks are 0-9" in ran.traceback) == ("JobNotFound", True)


def test_scripts_find_their_number_in_a_variable(done: Any) -> None:
    said = "[(task.index, task.stdout) for task in script]"
    assert done.value(said) == str([(n, f"{n} {n % 4} argument\n") for n in (3, 5, 7, 9)])
    assert (
        done.value("script.data['array'], script.name, script.source.startswith('#!/bin/bash')")
        == "3-10:2%1 named True"
    )
    assert done.value("[task.index for task in script.failed()], script[7].exit_code") == "[7] 1"
    # One after another, so that the throttle applies to all of them.
    assert "They run one after the other" in done.value("script.data['warnings']")
    begun = done.value("[int(task.start_time) for task in script]")
    assert json.loads(begun) == sorted(json.loads(begun))
    argv = done.ok("print(*jupyter_slurm.job(script.numbers[1] + '_1').record['argv'])").stdout
    assert f"--array=1-3:2%1 --dependency=afterany:{done.value('script.numbers[0]')} " in argv


def test_each_part_is_watched_over(done: Any) -> None:
    assert done.value("[task.stdout for task in resumed]") == str(
        ["3 d 3 argument\n", "4 e 0 argument\n", "5 f 1 argument\n"]
    )
    assert done.value("resumed.source.startswith('#!/bin/sh'), 'resume.py' in resumed.script") == "True True"


def test_one_row_in_the_list_and_found_by_any_of_its_numbers(done: Any) -> None:
    listed = "[row['TASKS'] for row in jupyter_slurm.jobs().table() if row['JOBID'] in fit.numbers]"
    assert done.value(listed) == "['9 COMPLETED, 1 FAILED']"
    assert done.value(
        "[jupyter_slurm.job(n) == fit for n in fit.numbers[:1]], jupyter_slurm.job(fit.numbers[2]).id == fit.id"
    ) == ("[True] True")
    assert (
        done.value("jupyter_slurm.job(fit.id + '_9').stdout, jupyter_slurm.job(fit.numbers[2] + '_1').index")
        == "9 1\n 9"
    )
    assert (
        done.value("fit.record['sweep']['rows'], fit.record['part']['tasks'], fit[9].record['key'] == fit.key")
        == "10 0-9 True"
    )


def test_only_what_failed_runs_again_and_others_can_wait_for_all(
    done: Any, cluster: EmbeddedCluster, wait_for: Callable[..., Any]
) -> None:
    done.ok("again = fit.failed().resubmit()")
    assert done.value("again.data['array'], [task.index for task in again.tasks()]") == "5 [5]"
    assert "would never start" in done.run("%%sbatch after=fit\n#!/bin/sh\n").traceback
    done.ok("%%sbatch -n1 --array=0-5 --hold as=held\n#!/bin/sh\ntrue\n")
    done.ok("%%sbatch -n1 after=held as=later\n#!/bin/sh\ntrue\n")
    first, second = json.loads(done.value("held.numbers").replace("'", '"'))
    assert f"--dependency=afterok:{first}:{second}" in done.value("' '.join(later.data['argv'])")
    assert "supports only one" in done.run("%%sbatch afternotok=held\n#!/bin/sh\n").traceback
    assert f"{second}_1" in queue(cluster, "%i")
    done.ok("held[5].cancel()")
    left = {f"{first}_{n}" for n in range(4)} | {f"{second}_0"}
    wait_for(
        lambda: {task for task in queue(cluster, "%i", "pending") if "_" in task} == left, "that task alone is gone"
    )
    done.ok("%scancel {held}")
    done.ok("held.wait(check=False, timeout=60), again.wait(check=False)")
    assert done.value("held.state, set(task.state for task in held) <= {'CANCELLED', 'UNKNOWN'}") == "CANCELLED True"
    assert done.value("again[5].stdout, again[5].parameters, again[5].state") == "5 1\n {'n': 5} FAILED"


def test_what_cannot_be_held_over_several_arrays_is_refused_before_anything_is_submitted(
    done: Any, cluster: EmbeddedCluster
) -> None:
    before = queue(cluster, "%i")
    cases = {
        "--array=0-4 -o out.%a": "would write into the same files",
        "--array=0-4%2 --dependency=singleton?afterany:1": "a throttle",
        "--array=0-999999": "MaxJobCount",
    }
    for words, said in cases.items():
        assert said in done.run(f"%%sbatch {words}\n#!/bin/sh\n").traceback, words
    shown = done.ok("%%sbatch --array=0-4 show\n#!/bin/sh\n").result["text/plain"]
    assert "--array=0-3" in shown
    assert "2 arrays for Slurm" in shown
    assert queue(cluster, "%i") == before


def test_a_task_of_a_later_part_is_cancelled_alone(done: Any) -> None:
    done.ok(f"%%sbatch -n1 --array=0-9 --begin=now+1hour as=far {PLAIN}\n1")
    assert done.value("far[9].cancel().wait(check=False).state, far[9].state") == "CANCELLED CANCELLED"
    assert done.value("far.refresh().data['tasks']") == "{'CANCELLED': 1, 'PENDING': 9}"
    assert done.value("[task.index for task in far.failed()], far[1].state") == "[9] PENDING"
    ran = done.run("far[11]")  # could be a task of the last part
    assert f"Job {done.value('far.id')} has no task 11" in ran.traceback
    assert done.value("far.cancel().wait(check=False).data['tasks']") == "{'CANCELLED': 10}"


def test_nothing_of_it_is_lost_with_kernel_and_agent(done: Any) -> None:
    number, others = done.value("fit.numbers[0]"), done.value("script.id, resumed.id").split()
    argv = [sys.executable, "-P", "-m", "jupyter_slurm.cli.main", "agent", "stop"]
    subprocess.run(argv, env={**done.env}, cwd="/", check=True, capture_output=True)
    done.restart()
    done.ok(f"import jupyter_slurm\nfit = jupyter_slurm.job({number})")
    assert done.value("len(fit), fit.table()['got'][8:], fit[5].state") == "10 [80, 90] FAILED"
    assert done.value("[job.id for job in jupyter_slurm.jobs()].count(fit.id), len(fit.numbers)") == "1 3"
    # The other tests use the same kernel, in any order.
    done.ok(f"ten, (script, resumed) = 10, map(jupyter_slurm.job, {others})")
