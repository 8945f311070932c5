"""Tests of allocations under a notebook: a real kernel, a real agent, a real Slurm."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("paramiko"), pytest.mark.by_day()]

WaitFor = Callable[..., Any]


@pytest.fixture(autouse=True)
def nothing_is_left(kernel: Any) -> Iterator[None]:
    yield
    kernel.ok("import jupyter_slurm\nfor one in jupyter_slurm.allocations(): one.release()")


def _none_is_open(kernel: Any) -> None:
    kernel.ok("import jupyter_slurm, time\nwhile jupyter_slurm.allocations(): time.sleep(0.2)")


def test_it_is_asked_for_and_used_by_name_while_other_cells_run(
    kernel: Any, gate: Callable[[str], Path], wait_for: WaitFor
) -> None:
    asked = kernel.ok("%salloc -p arandu --gpus 2 -n2 --time 1:00:00 as=gpu")
    held = asked.display
    kernel.ok("%salloc -p arandu --time 5:00 as=other")
    ran = kernel.ok("%srun on=gpu as=step wait sh -c 'echo task $SLURM_PROCID of $SLURM_NTASKS' {1 + 1}")
    assert re.search(r"Allocation \d+ \(gpu\)", ran.stdout)
    assert "PENDING" not in ran.stdout.splitlines()[0], "it has run"
    assert kernel.value("sorted(step.stdout.split('\\n'))") == "['', 'task 0 of 2', 'task 1 of 2']"
    assert kernel.value("step.allocation == gpu") == "True"
    wait_for(lambda: "RUNNING" in kernel.text(held), "the allocation, drawn")
    wait_for(lambda: "2 GPUs" in kernel.text(held), "its GPUs")
    assert re.search(r"Allocation \d+ \(gpu\): RUNNING, on \w+, ", kernel.text(held))
    assert re.search(r"59:\d\d left", kernel.text(held))
    assert "after 30 min without a step or kernel" in kernel.text(held)
    ran = kernel.ok("%srun wait as=step hostname")  # in the latest allocation of this kernel
    assert re.search(r"Allocation \d+ \(other\)", ran.stdout)
    stop = gate("stop")
    first = kernel.ok(f"%%srun on=gpu -n1 as=a\n#!/bin/sh\necho a-up\nuntil [ -e {stop} ]; do sleep 0.1; done\n")
    second = kernel.ok(f"%%srun on=gpu -n1 as=b\n#!/bin/sh\necho b-up\nuntil [ -e {stop} ]; do sleep 0.1; done\n")
    wait_for(lambda: "a-up" in kernel.text(first.display) and "b-up" in kernel.text(second.display), "both, live")
    wait_for(lambda: kernel.value("a.id") != "None", "its number, which may come after its first words")
    step = kernel.value("a.id")
    wait_for(lambda: step in kernel.complete(f"%scancel {step.partition('.')[0]}.")[0], "the step, offered")
    wait_for(lambda: {"gpu", "other"} <= set(kernel.complete("%srun on=")[0]), "the allocations, offered")
    assert kernel.complete("%srun on=gp")[1] == [kernel.value("gpu.title")]
    stop.touch()
    kernel.ok("a.wait(), b.wait()")
    wait_for(lambda: "COMPLETED" in kernel.text(first.display), "its end")
    ran = kernel.run("%salloc -p arandu as=gpu")
    assert "is already an open allocation" in ran.traceback
    kernel.ok("import jupyter_slurm")

    def listed() -> str:
        return str(kernel.ok("jupyter_slurm.allocations()").result["text/plain"]) + "\n"

    row = r"\d+ +gpu +RUNNING +arandu +\w+ +2 +59:\d\d +30 min\n"
    wait_for(lambda: re.search(row, listed()), "Slurm's own answer, which has the partition")
    shown = kernel.ok("%salloc release on=gpu").display
    assert "released" in kernel.text(shown)
    wait_for(lambda: re.search(r"\(gpu\): released, .* used \d:\d\d of 1:00:00$", kernel.text(held)), "its end, drawn")
    assert kernel.value("(gpu.state, gpu.is_open)") == "('CANCELLED', False)"
    ran = kernel.run("%srun on=gpu true")
    assert "was released" in ran.traceback, ran.stdout
    assert "no open allocation has this name" in kernel.run("%srun on=nobody true").traceback


def test_a_python_cell_with_values_figures_and_its_own_traceback(kernel: Any) -> None:
    kernel.ok(
        "from jupyter_slurm.client.output import live_view as view\nkept, view._MIN_DRAW_INTERVAL_S = view._MIN_DRAW_INTERVAL_S, 60"
    )
    ran = kernel.ok("%salloc -p arandu as=cpu wait")
    assert "RUNNING" in kernel.text(ran.display), "whoever waited sees it there"
    kernel.ok("view._MIN_DRAW_INTERVAL_S = kept\nx = 20")
    kernel.ok("%%srun wait as=good in=x out=y -- arg\nimport sys\ny = x + 1\nprint(sys.argv[1:])\ny * 2")
    assert kernel.value("y") == "21"
    assert kernel.value("good.stdout") == "['arg']\n42\n"
    shows = "from IPython.display import HTML, display\ndisplay(HTML('<b>shown</b>'))"
    request = kernel.begin(f"%%srun wait python={sys.executable}\n{shows}")
    assert kernel.end(request).status == "ok"
    assert any("<b>shown</b>" in bundle.get("text/html", "") for bundle in kernel.outputs(request))
    ran = kernel.run("%%srun wait as=bad\nvalues = [1]\nvalues[7]\n")
    assert ran.error == "JobFailed"
    assert "IndexError: list index out of range" in ran.traceback
    assert re.search(r"Step \d+\.\d+ \(cell.py\)", ran.traceback)
    ran = kernel.run("%srun wait sh -c 'exit 3'")
    assert "exit code 3" in ran.traceback
    assert "neither an option" in kernel.run("%%srun wiat\n1").traceback
    for options, said in (
        ("-n 3", "fewer tasks or CPUs (-n, -c)"),
        ("-N 2", "fewer nodes"),
        ("--gpus=1", "fewer GPUs"),
    ):
        ran = kernel.run(f"%%srun {options} wait\n#!/bin/sh\ntrue")
        assert (ran.error, said in ran.traceback) == ("JobFailed", True), ran.traceback
        assert ran.traceback.count("Slurm did not start the step.") == 1
    assert "requested than permitted" in kernel.run("%%srun -n 3 wait\n1").traceback  # message of Slurm itself
    ran = kernel.run("%%sbatch -p arandu after=good\n#!/bin/sh\ntrue\n")
    assert "good is a step" in ran.traceback


# Only a slurmd of root reads the environment of a user, as that of each cluster does.
@pytest.mark.parametrize(
    "asked",
    [
        pytest.param("--export=NONE", marks=pytest.mark.root),
        pytest.param("--export=NONE --get-user-env", marks=pytest.mark.root),
        "--export=HOME,LANG=C",
    ],
)
def test_steps_of_an_allocation_without_environment_have_home_and_path(kernel: Any, asked: str) -> None:
    kernel.ok(f"%salloc {asked} as=bare wait")
    kernel.ok(
        "%%remote on=bare out=found\nimport os\nfound = [os.environ.get(n, '') for n in ('HOME', 'PATH', 'USER')]"
    )
    assert "''" not in kernel.value("found[:2]")
    kernel.ok('%%srun on=bare wait as=step\n#!/bin/bash\n[ -n "$HOME" ] && env | grep -q ^PATH= && echo there')
    assert kernel.value("step.stdout") == "there\n"
    kernel.ok("%salloc release on=bare")


def test_an_interrupt_ends_the_step_and_not_the_allocation(
    kernel: Any, gate: Callable[[str], Path], wait_for: WaitFor
) -> None:
    kernel.ok("%salloc -p arandu as=cpu")
    up = gate("up")
    request = kernel.begin(
        f"%%srun wait as=step\nimport pathlib, time\npathlib.Path({str(up)!r}).touch()\nwhile True: time.sleep(0.1)"
    )
    wait_for(lambda: kernel.pump() or up.exists(), "the step")
    kernel.manager.signal_kernel(signal.SIGINT)
    ran = kernel.end(request)
    assert ran.error == "WaitInterrupted"
    assert "was interrupted; its allocation stays open" in ran.traceback
    assert "KeyboardInterrupt" in kernel.text(ran.display)
    assert kernel.value("cpu.state") == "RUNNING"
    kernel.ok("%srun wait true")


def test_without_an_allocation_it_works_as_srun_does(kernel: Any, wait_for: WaitFor) -> None:
    _none_is_open(kernel)
    ran = kernel.ok("%srun as=one wait -p arandu -n2 --wait=60 -lQ sh -c 'echo hello'")
    assert re.search(r"No allocation is open. srun requests one for this step, \d+.", ran.stdout)
    assert kernel.value("sorted(one.stdout.split('\\n'))") == "['', '0: hello', '1: hello']"
    wait_for(lambda: kernel.value("one.allocation.is_finished") == "True", "the end of its allocation")
    assert "no-such" in kernel.run("%srun -p no-such true").traceback
    request = kernel.begin("%srun as=late wait -p arandu --begin=now+3600 true")
    wait_for(lambda: kernel.pump() or "BeginTime" in str(kernel.under(request)), "why it pends")
    kernel.manager.signal_kernel(signal.SIGINT)
    # On a busy computer, the end of the step comes later than the cell waits for it.
    assert re.search("was cancelled before it started|has not ended yet", kernel.end(request).traceback)
    ended = "('CANCELLED', 'CANCELLED')"
    wait_for(lambda: kernel.value("(late.state, late.allocation.state)") == ended, "the end of both")
    kernel.ok("%salloc -p arandu --begin=now+3600 as=later")
    request = kernel.begin("%srun as=late wait true")
    wait_for(lambda: kernel.pump() or "(true): PENDING" in str(kernel.under(request)), "the step")
    kernel.manager.signal_kernel(signal.SIGINT)
    assert "still waits, and is dropped when it could start" in kernel.end(request).traceback
    assert kernel.value("(late.state, later.is_open)") == "('PENDING', True)"


def test_an_allocation_that_another_handle_has_just_released_is_not_used(kernel: Any) -> None:
    _none_is_open(kernel)
    kernel.ok("%salloc -p arandu as=held wait")
    kernel.ok(
        "(other,) = [one for one in jupyter_slurm.allocations() if one.id == held.id]\n"
        "held._follower = None  # its events may arrive later\nassert held.refresh().is_open\n"
        "other.release()\nget_ipython().run_line_magic('srun', 'as=one wait -p arandu true')"
    )
    assert kernel.value("(one.state, one.allocation.id == held.id)") == "('COMPLETED', False)"


def test_a_step_that_never_comes_leaves_no_allocation_and_one_for_a_step_is_listed(
    kernel: Any, wait_for: WaitFor
) -> None:
    _none_is_open(kernel)
    asked_for = "[job.key for job in jupyter_slurm.jobs() if isinstance(job, jupyter_slurm.Allocation)]"
    before = kernel.value(asked_for)
    ran = kernel.run("%srun -p arandu --pty true")
    assert "a cell has no terminal" in ran.traceback
    assert kernel.value(asked_for) == before  # no allocation was requested
    kernel.ok(
        "from jupyter_slurm.magics import srun as steps\nreal = steps.start_step\n"
        "def interrupted(*_):\n    steps.start_step = real\n    raise KeyboardInterrupt\n"
        "steps.start_step = interrupted"
    )
    assert kernel.run("%srun -p arandu true").error == "KeyboardInterrupt"
    _none_is_open(kernel)
    kernel.ok("%srun as=long -p arandu sleep 1000")
    listed = "[one == long.allocation for one in jupyter_slurm.allocations()]"
    wait_for(lambda: kernel.value(listed) == "[True]", "it is listed")
    kernel.ok("number = long.allocation.id")
    assert "no open allocation has this name" in kernel.run("%srun on={number} true").traceback
    kernel.ok("long.allocation.release()")
    wait_for(lambda: kernel.value("long.state") == "CANCELLED", "its end")


def test_it_is_seen_from_a_terminal_and_from_the_panel_and_given_back_there(
    kernel: Any, environment: dict[str, str], wait_for: WaitFor
) -> None:
    """The panel uses the same API through the Jupyter server, which adds nothing to it."""
    held = kernel.ok("%salloc -p arandu --gpus 1 as=mine wait").display
    other = kernel.ok("%salloc -p arandu as=another wait").display
    number, path = kernel.value("mine.id"), kernel.value("mine._cluster.path('jobs')")

    def cli(*words: str) -> str:
        argv = [sys.executable, "-m", "jupyter_slurm.cli.main", *words]
        env = {**os.environ, **environment}
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=True, timeout=60).stdout

    row = next(line.split() for line in cli("jobs").splitlines() if line.startswith(number))
    assert {"RUNNING", "mine"} <= {*row}
    assert re.search(r"^kind +allocation$", cli("show", number), re.MULTILINE)
    assert cli("cancel", number).startswith(f"Cancelled job {number}: ")
    wait_for(lambda: "(mine): released" in kernel.text(held), "it is told where it was asked for")
    assert "was released" in kernel.run("%srun on=mine true").traceback
    kernel.ok(
        f"ask = another._cluster.client\nlisted = {{job['label']: job for job in ask.get({path!r}, params={{'state': 'active'}})}}\n"
        f"asked = ask.post({path!r} + '/' + listed['another']['key'] + '/cancel', json={{'signal': None}})"
    )
    told = "[listed['another'][name] for name in ('kind', 'state', 'keep', 'gpus')], asked['released']"
    assert kernel.value(told) == "['allocation', 'RUNNING', False, 0] asked"
    wait_for(lambda: "(another): released" in kernel.text(other), "and this one, too")


def test_kept_or_released_with_the_kernel_and_found_again(kernel: Any, bare_kernel: Any, wait_for: WaitFor) -> None:
    _none_is_open(kernel)
    kernel.ok("%salloc -p arandu as=gone wait")
    kernel.ok("%salloc -p arandu as=kept keep wait")
    ids = kernel.value("(gone.id, kept.id)")
    bare_kernel.ok("%load_ext jupyter_slurm")
    assert "(kept)" in bare_kernel.ok("%srun wait true").stdout  # the other allocation belongs to that kernel
    bare_kernel.ok("%salloc -p arandu as=gone")
    bare_kernel.ok("%salloc release on=gone")
    ran = bare_kernel.run("%srun on=gone true")
    assert "was released" in ran.traceback
    assert kernel.value("len(gone.steps)") == "0"
    kernel.manager.shutdown_kernel(now=False)  # as "Restart kernel" does, not with SIGKILL
    kernel.restart()
    kernel.ok(f"import jupyter_slurm\ngone, kept = map(jupyter_slurm.job, {ids})")
    wait_for(lambda: kernel.value("gone.state") == "CANCELLED", "what ended with its kernel")
    ran = kernel.ok("%srun as=step wait echo back")
    assert "(kept)" in ran.stdout
    assert kernel.value("(kept.state, kept.steps[-1] == step, step.tail(1))") == "('RUNNING', True, 'back')"
    kernel.ok("mine, kept = kept, None")  # as after a repeated run of all cells
    ran = kernel.run("%salloc -p arandu as=kept keep")
    assert "kept is already a kept allocation" in ran.traceback
    assert "Use `%salloc on=kept as=kept` to use it" in ran.traceback
    kernel.ok("kept = mine")
    shown = kernel.ok("%salloc on=kept as=again")
    assert "RUNNING" in kernel.text(shown.display)
    assert kernel.value("again == kept") == "True"


def test_a_command_has_the_variables_that_only_its_node_has(kernel: Any) -> None:
    kernel.ok("%salloc -p arandu -n 2 --gpus 1 --time 5:00 as=held wait")
    words = "job=${SLURM_JOB_ID} \"$SLURM_PROCID of 2\" '$SLURM_PROCID' $SLURM_NOT_THERE x$HOME_OF_NOBODY"
    kernel.ok(f"%srun on=held wait as=step printf '[%s]' {words}")
    told = kernel.value("step.stdout")
    same, number = "[$SLURM_PROCID][$SLURM_NOT_THERE][x$HOME_OF_NOBODY]", kernel.value("held")
    assert sorted(re.findall(r"\[job=.*?\[\d of 2\]", told)) == [f"[job={number}][{rank} of 2]" for rank in "01"]
    assert told.count(same) == 2
    kernel.ok("%srun on=held wait as=step -n 1 echo $CUDA_VISIBLE_DEVICES $SLURM_JOB_NODELIST $SLURMD_NODENAME")
    assert re.fullmatch(r"\d+ (\w+) \1\n", kernel.ok("print(step.stdout, end='')").stdout)


def test_a_shell_is_opened_in_a_terminal(kernel: Any) -> None:
    ran = kernel.run("%srun -p arandu --gpus 1 --pty -u bash -i")
    assert "--pty cannot be used: a cell has no terminal" in ran.traceback
    assert "`%salloc -p arandu --gpus 1 as=node`, then `jupyter slurm shell node" in ran.traceback
    kernel.ok("%salloc -p arandu --time 5:00 as=held wait")
    for line in ("%srun --pty bash -i", "%srun on=held bash", "%srun -n 1 bash -l", "%%srun --pty\n#!/bin/sh\ndate"):
        assert "Use `jupyter slurm shell held" in kernel.run(line).traceback


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("-N1 srun hostname", "Use `%salloc -N1 as=node`, then `%srun on=node hostname`."),
        ("-N1 -- srun -n 2 hostname", "Use `%salloc -N1 as=node`, then `%srun on=node -n 2 hostname`."),
        ("-N1 as=two ./run.sh 'a b'", "Use `%salloc -N1 as=two`, then `%srun on=two ./run.sh 'a b'`."),
        ("-N1 python train.py", "Use `%salloc -N1 as=node`, then `%srun on=node python train.py`."),
        ("--gres=gpu:1 bash", "Use `%salloc --gres=gpu:1 as=node`, then `jupyter slurm shell node"),
        ("-N1 srun --pty bash", "Use `%salloc -N1 as=node`, then `jupyter slurm shell node"),
        ("-N1 --pty bash", "Use `%salloc -N1 as=node`, then `jupyter slurm shell node"),
        ("-N1 wiat", "Did you mean wait?"),
    ],
)
def test_an_allocation_runs_no_command(kernel: Any, line: str, hint: str) -> None:
    assert hint in kernel.run(f"%salloc {line}").traceback
