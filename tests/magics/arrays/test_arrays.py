"""Tests of arrays and sweeps in a notebook: parameters, tasks, tables."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("paramiko"), pytest.mark.by_day()]

HERE = f"python={sys.executable}"
PLAIN = "python=/usr/bin/python3"  # without IPython, cloudpickle and numpy
SWEEP = (
    f"%%sbatch sweep=lr:1e-4,1e-3;opt:adam,True out=loss as=sweep {PLAIN}\n"
    "print(task_index, lr, opt)\nloss = lr * 10 if opt == 'adam' else None"
)


@pytest.fixture(scope="module")
def done(kernel: Any) -> Any:
    """Provide a kernel in which arrays of all kinds have run in parallel."""
    kernel.ok(SWEEP)
    kernel.ok("grid = [{'a': 'two words', 'n': 1}, {'a': '$HOME', 'n': 2.5}, {'a': \"'\", 'n': None}]")
    kernel.ok(
        "%%sbatch sweep=grid as=script --array=0-2%2 -J named -- argument\n#!/bin/bash\n#SBATCH --comment x\n"
        'echo "$task_index|$a|$n|$1"\n[ "$n" != 2.5 ]'
    )
    kernel.ok(f"%%sbatch --array=3,5 as=plain {HERE}\nprint(task_index + 1)")
    kernel.ok("import pandas\nframe = pandas.DataFrame({'a': [1, 2], 'b': ['x', 'y']})")
    kernel.ok("a = 'of the notebook'\ndef joined(sep=a): return f'{a}{b}'")  # the parameters of the task
    kernel.ok(f"%%sbatch sweep=frame in=joined out=c as=framed {HERE}\nc = joined()")
    kernel.ok(f'%%sbatch sweep=name:"a,b","it\'s",\'c;d\';n:1,2,3 zip as=zipped {PLAIN}\nprint(name, n)')
    for name in ("sweep", "script", "plain", "framed", "zipped"):
        kernel.ok(f"{name}.wait(check=False)")
    return kernel


def test_a_sweep_of_a_python_cell_is_one_array_with_a_table(done: Any) -> None:
    assert done.value("(len(sweep), bool(sweep), type(sweep).__name__, sweep.state)") == (
        "(4, True, 'ArrayJob', 'COMPLETED')"
    )
    assert "4 COMPLETED" in done.value("repr(sweep)")
    listed = "[row['TASKS'] for row in jupyter_slurm.jobs().table() if row['JOBID'] == sweep.id]"
    assert done.ok(f"import jupyter_slurm\nprint({listed})").stdout == "['4 COMPLETED']\n"
    assert done.value("sweep[2].stdout") == "2 0.001 adam\n"
    assert done.value("sweep[3].parameters") == "{'lr': 0.001, 'opt': True}"
    assert done.value("sweep[0].result()") == "0.001"
    assert done.value("[task.index for task in sweep[1:3]], len(sweep[2:]), type(sweep[:1]).__name__") == (
        "[1, 2] 2 TaskList"
    )
    assert done.value("sweep[-1].stdout, sweep[-4].index, [task.index for task in sweep[::-2]]") == (
        "3 0.001 True\n 0 [3, 1]"
    )
    assert done.value("[(task.index, task.state) for task in sweep]") == str([(i, "COMPLETED") for i in range(4)])
    assert done.value("sweep.table().columns") == str(["task", "lr", "opt", "state", "exit_code", "elapsed", "loss"])
    assert done.value("sweep.table()['opt'], sweep.table()[1]['state']") == "['adam', True, 'adam', True] COMPLETED"
    assert done.value("list(sweep.failed())") == "[]"
    ran = done.run("sweep[9]")
    assert ran.error == "JobNotFound"
    assert "Its tasks are 0-3" in ran.traceback


def test_quotes_group_a_value_and_zip_takes_them_side_by_side(done: Any) -> None:
    assert done.value("[task.stdout for task in zipped]") == str(["a,b 1\n", "it's 2\n", "c;d 3\n"])
    assert done.value("zipped[0].parameters") == "{'name': 'a,b', 'n': 1}"


def test_a_sweep_of_a_script_sets_variables(done: Any) -> None:
    assert done.value("[task.stdout for task in script]") == str(
        ["0|two words|1|argument\n", "1|$HOME|2.5|argument\n", "2|'|None|argument\n"]
    )
    assert done.value("[row['PARTITION'] != '' for row in script.failed().table()]") == "[True]"
    assert done.value("script.state, [task.index for task in script.failed()], script[1].exit_code") == "FAILED [1] 1"
    assert done.value("script.table()['a'] == [row['a'] for row in grid], script.table()['exit_code']") == (
        "True [0, 1, 0]"
    )
    shown = done.value("script.table()[2:]").splitlines()[-1].split()
    assert shown[:4] == ["2", "'", "None", "COMPLETED"]
    assert done.value("script.source.startswith('#!/bin/bash'), script.name") == "True named"
    assert "JobFailed" in done.run("script[1].wait()").traceback
    failed = done.run("script.wait()")
    assert failed.error == "JobFailed"
    number = done.value("script.id")
    assert f"The first task that failed: Job {number}_1 (script): FAILED" in failed.traceback
    assert re.search(r"Last lines of \S*stdout\.1:\n    1\|\$HOME\|2.5\|argument", failed.traceback)


def test_tasks_that_failed_run_again_and_no_others(done: Any, wait_for: Callable[..., Any]) -> None:
    done.ok("again = script.failed().resubmit()")
    assert done.value("again.data['array'], len(again), again.record['resubmitted_from'] == script.key") == "1%2 1 True"
    wait_for(lambda: done.value("again[1].stdout.strip()") == "1|$HOME|2.5|argument", "the task that runs again")
    assert done.value("again[1].parameters, again.name") == "{'a': '$HOME', 'n': 2.5} named"
    assert done.run("sweep.failed().resubmit()").error == "UsageError"


def test_a_task_that_waits_is_cancelled_at_once_and_once_for_all(
    done: Any, cluster: Any, wait_for: Callable[..., Any]
) -> None:
    done.ok(f"%%sbatch --array=0-4 --begin=now+1hour as=held {PLAIN}\n1")
    wait_for(lambda: done.value("held.data['tasks']") == "{'PENDING': 5}", "the tasks in the queue")
    assert done.value("held[1].cancel().wait(check=False).state, held[1].is_finished") == "CANCELLED True"
    assert done.value("held.data['tasks']") == "{'CANCELLED': 1, 'PENDING': 4}"
    cluster.run("scancel", f"{done.value('held.id')}_2")  # by another program: Slurm no longer lists the task
    assert done.value("held[2].wait(check=False).state, held[2].is_finished") == "UNKNOWN True"
    assert "tasks that were cancelled before they started" in done.run("held[2].wait()").traceback
    assert done.value("held.cancel().wait(check=False).data['tasks']") == "{'CANCELLED': 4}"
    told = ["CANCELLED", "CANCELLED", "UNKNOWN", "CANCELLED", "CANCELLED"]
    assert done.value("[task.state for task in held], held[1].state, held.table()['state'][1:3]") == (
        f"{told} CANCELLED {told[1:3]}"
    )
    ran = done.run("held[-6]")
    assert (ran.error, "job[-1] for the last one" in ran.traceback) == ("JobNotFound", True)


def test_the_index_of_an_array_is_in_the_cell(done: Any) -> None:
    assert done.value("len(plain), [(task.index, task.stdout) for task in plain]") == "2 [(3, '4\\n'), (5, '6\\n')]"
    assert done.value("plain[3].parameters, plain[-1].index") == "{} 5"
    ran = done.run("plain[0:2]")
    assert ran.error == "UsageError"
    assert "are 3,5: a slice could mean their indices or their positions" in ran.traceback
    assert "Use job[3].parameters for one task, or job.table() for all." in (done.run("plain.parameters").traceback)
    assert "has no attribute 'nonsense'" in done.run("plain.nonsense").traceback


def test_a_data_frame_there_and_back(done: Any) -> None:
    assert done.value("framed.table().to_pandas()[['a', 'b', 'c']].values.tolist()") == (
        "[[1, 'x', '1x'], [2, 'y', '2y']]"
    )


def test_what_cannot_be_a_sweep_is_said(kernel: Any) -> None:
    kernel.ok("grid, odd = {'a': [1, 2], 'b': range(3)}, [{'a': object()}]")
    cases = {
        "sweep=gird": "Did you mean grid?",
        "sweep=lr=1,2": "Write sweep=lr:1,2;",
        "sweep=lr:range(3)": "grid = {'lr': range(3)} before it, and sweep=grid",
        "sweep=odd": "a is a object, which cannot be a parameter",
        "sweep=a:1,2 out=b,a": "a is a parameter of the sweep",
        "sweep=a:1,2 in=grid,a": "a differs in each task",
        "--array=0-1 in=task_index": "task_index differs in each task",
        "zip": "`zip` has no effect without sweep=",
        "sweep=grid zip": "the same number of values for each parameter",
        "sweep=a:1,2 --array=0-2": "the sweep has no row 2",
        "sweep=a:1,2 --array=x": "is not a list of array tasks",
    }
    for words, said in cases.items():
        assert said in kernel.run(f"%%sbatch {words}\n1").traceback, words
    assert "--array=0-5" in kernel.ok("%%sbatch sweep=grid show\n1").result["text/plain"]
    hidden = kernel.ok("%%sbatch sweep=print:1,2;max:3 show\nself.max(1)\nprint(max)").stderr
    assert "print is a parameter of the sweep: print(…) calls its value" in hidden
    assert "max(…)" not in hidden


def test_nothing_of_it_is_lost_with_the_kernel(bare_kernel: Any) -> None:
    """A kernel of its own: other tests need what the shared one knows."""
    bare_kernel.ok("%load_ext jupyter_slurm")
    bare_kernel.ok(SWEEP)
    bare_kernel.ok("sweep.wait()")
    number = bare_kernel.value("sweep")
    bare_kernel.restart()
    bare_kernel.ok(f"import jupyter_slurm\nsweep = jupyter_slurm.job({number})")
    assert bare_kernel.value("sweep.table()['loss'], sweep[1].parameters") == (
        "[0.001, None, 0.01, None] {'lr': 0.0001, 'opt': True}"
    )
