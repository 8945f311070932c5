"""Tests of cells in one process of an allocation: a real kernel, a real agent, a real Slurm."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.client.render.terminal import plain

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("openssh"), pytest.mark.by_day()]

WaitFor = Callable[..., Any]


@pytest.fixture(scope="module")
def held(kernel: Any) -> Iterator[Any]:
    """Provide a kernel with an allocation of two tasks."""
    kernel.ok("%salloc -p arandu -n2 -c1 --gpus-per-task=1 as=gpu wait")
    yield kernel
    kernel.ok("import jupyter_slurm\nfor one in jupyter_slurm.allocations(): one.release()")


def _shown(ran: Any) -> list[tuple[str, str]]:
    """Return the output of a cell in order: text of streams, HTML or text of displays."""
    found: list[tuple[str, str]] = []
    for message in ran.messages:
        content, kind = message["content"], message["msg_type"]
        if kind == "stream" and content["name"] == "stdout":
            if found and found[-1][0] == "stdout":
                found[-1] = ("stdout", found[-1][1] + content["text"])
            else:
                found.append(("stdout", content["text"]))
        elif kind in ("display_data", "update_display_data"):
            found.append((kind, content["data"].get("text/html") or content["data"]["text/plain"]))
        elif kind == "clear_output":
            found.append((kind, ""))
    return found


def _until_it_says(text: str, held: Any, request: str, wait_for: WaitFor) -> None:
    wait_for(lambda: held.pump() or text in str(held.under(request)), text)


def test_state_stays_and_it_looks_as_if_it_had_run_here(held: Any) -> None:
    ran = held.ok(
        f"%%remote python={sys.executable}\nimport os, sys\nx = 20\ndef f(n): return n + x\nprint('one', file=sys.stderr)"
    )
    assert re.search(r"Allocation \d+ \(gpu\)", ran.stdout)
    assert ran.stderr.endswith("one\n")
    ran = held.ok("y = 22\n")
    ran = held.ok(
        "%%remote in=y out=z\nz = f(y)\n[os.environ[f'SLURM_{n}'] for n in ('NTASKS', 'CPUS_ON_NODE', 'GPUS_ON_NODE')]"
    )
    assert ran.stdout == "['1', '2', '2']\n"  # one task, with the resources of two
    assert held.value("z") == "42"
    held.ok("%%remote\nmuch = bytearray(300 << 20)")  # the process detects this on the node, without a query to Slurm
    said = held.ok("%remote").stdout
    now, most = map(float, re.findall(r"memory: ([0-9.]+) MiB, at most ([0-9.]+) MiB so far", said)[0])
    assert 300 <= now <= most
    held.ok("%%remote\ndel much")
    less, still = map(float, re.findall(r"memory: ([0-9.]+) MiB, at most ([0-9.]+)", held.ok("%remote").stdout)[0])
    assert less < now - 250
    assert still >= 300
    ran = held.ok(
        "%%remote\nfrom IPython.display import HTML, display, clear_output\nprint('a')\n"
        "handle = display(HTML('<b>1</b>'), display_id=True)\nprint('b')\ndisplay(HTML('<i>2</i>'))\nprint('c')\nx"
    )
    assert _shown(ran) == [
        ("stdout", "a\n"),
        ("display_data", "<b>1</b>"),
        ("stdout", "b\n"),
        ("display_data", "<i>2</i>"),
        ("stdout", "c\n20\n"),
    ]
    held.ok(
        "%%remote\nimport threading\ngo, gone = threading.Event(), threading.Event()\n"
        "def late(): go.wait(); print('late'); gone.set()\nthreading.Thread(target=late).start()\nprint('begun')\n"
        "import asyncio\nloop = asyncio.get_running_loop()\nloop.call_soon(loop.call_soon, loop.call_soon, go.set)"
    )
    assert held.ok("%%remote\nassert gone.wait(60)\nprint('now')").stdout == "late\nnow\n"
    ran = held.ok("%%remote\nhandle.update(HTML('<b>new</b>'))")
    assert _shown(ran) == [("update_display_data", "<b>new</b>")]


def test_an_error_an_interrupt_and_what_waits(held: Any, gate: Callable[[str], Path], wait_for: WaitFor) -> None:
    held.ok("%%remote\nimport pathlib, time\nkept = []")
    ran = held.run("%%remote\ndef g():\n    return [1][7]\ng()")
    assert ran.error == "JobFailed"
    assert ran.traceback.endswith("IndexError: list index out of range")
    assert re.search(r"In\[\d+\]|Cell In", plain(ran.stderr))
    assert "return [1][7]" in plain(ran.stderr)
    ran = held.run("%%remote\ninput('name? ')")
    assert "input() is not possible in a remote cell" in ran.traceback
    ran = held.run("%%remote\nraise ValueError('two\\nlines: \u00e9')")
    assert ran.traceback.endswith(": ValueError: two\nlines: \u00e9")
    held.ok(
        "from jupyter_slurm.magics import remote as magic\nsends = magic.ensure_process\n"
        "def interrupted(*_): magic.ensure_process = sends; raise KeyboardInterrupt\nmagic.ensure_process = interrupted"
    )
    assert "before the cell was sent: nothing runs" in held.run("%%remote\nkept.append(3)").traceback
    up = gate("up")
    loop = (
        f"kept.append(1)\npathlib.Path({str(up)!r}).touch()\nprint('begun', flush=True)\nwhile True: time.sleep(0.05)"
    )
    request = held.begin(f"%%remote\n{loop}")
    wait_for(lambda: held.pump() or up.exists(), "the loop")
    held.manager.signal_kernel(signal.SIGINT)
    ran = held.end(request)
    assert (ran.error, ran.stdout) == ("WaitInterrupted", "begun\n")
    assert "KeyboardInterrupt" in ran.stderr
    assert "was interrupted; its process keeps running, with all variables" in ran.traceback
    go = gate("go")
    ran = held.ok(
        f"%%remote nowait as=first\nuntil = pathlib.Path({str(go)!r})\nwhile not until.exists(): time.sleep(0.05)"
    )
    held.ok("%%remote nowait as=dropped\nkept.append(2)")
    held.ok("dropped.interrupt().wait(check=False)")
    assert held.value("dropped.state") == "CANCELLED"
    for interrupts in (1, 2):
        request = held.begin("%%remote\nkept.append(2)")
        _until_it_says("waits for the cells before it", held, request, wait_for)
        for _ in range(interrupts):
            held.manager.signal_kernel(signal.SIGINT)
        said = held.end(request).traceback
        assert "was cancelled before it started" in said or (interrupts == 2 and "is dropped" in said)
    held.ok(
        "from jupyter_slurm.errors import TransportError\nfrom jupyter_slurm.client.allocations import remote_cells as cells\n"
        "looks = cells._wait_reason\n"
        "def fails(*_):\n    cells._wait_reason = looks\n    raise TransportError('it is back in a moment')\n"
        "cells._wait_reason = fails"
    )
    request = held.begin("%%remote\nkept")
    _until_it_says("waits for the cells before it", held, request, wait_for)
    go.touch()
    ran = held.end(request)
    assert ran.stdout == "[1]\n"
    assert "waits for the cells before it in its process: Cell" in ran.stderr
    assert held.value("first.wait().state") == "COMPLETED"


@pytest.mark.here_only("what ends a process, and what is said of it, is the same either way")
def test_the_process_ends_and_another_one_begins(held: Any, gate: Callable[[str], Path], wait_for: WaitFor) -> None:
    held.ok("%%remote\nhere = 1")
    ran = held.run("%%remote\nimport os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")
    assert ran.error == "JobFailed"
    assert "all variables of the process are gone" in ran.traceback
    ran = held.run("%%remote\n'here' in globals()")
    assert ran.stdout.splitlines()[-1] == "False"
    assert "The earlier variables are lost" in ran.stderr
    ran = held.run("%%remote\nexit()")
    assert "(exit())" in ran.traceback
    ran = held.run("%%remote -c 1\nimport sys\nhere = 2\nsys.exit(3)")
    assert "exit code 3" in ran.traceback
    assert held.ok("%%remote -c 1 --overlap\nhere").stdout == "2\n"  # the agent adds it
    ran = held.run("%%remote -c 2\nhere")
    assert "already runs with other options" in ran.traceback
    said = held.ok("%remote").stdout
    assert "RUNNING" in said
    held.ok("from jupyter_slurm.client.allocations import remote_cells as remote\nremote._INTERRUPT_TIMEOUT_S = 0.5")
    deaf = gate("deaf")
    request = held.begin(
        "%%remote\nimport pathlib, signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        f"pathlib.Path({str(deaf)!r}).touch()\nwhile True: time.sleep(0.05)"
    )
    wait_for(lambda: held.pump() or deaf.exists(), "a cell that does not listen")
    held.manager.signal_kernel(signal.SIGINT)
    assert "does not react, or not yet. It keeps running" in held.end(request).traceback
    assert "was sent an interrupt" in held.ok("%remote interrupt").stdout
    said = held.ok("%remote restart").stdout
    assert "All its variables are lost" in said
    assert held.ok("%%remote\n'here' in globals()").stdout.splitlines()[-1] == "False"
    held.ok("%remote stop on=gpu")
    assert "No process for cells runs" in held.run("%remote").traceback
    assert "(the node has no /no/such/python: " in held.run("%%remote python=/no/such/python\n1").traceback
    assert held.ok("%%remote\n'here' in globals()").stdout.splitlines()[-1] == "False"
    held.ok("%remote stop")
    ran = held.run("%%remote -c 99\n1")
    assert re.search(r"(?:did not start|before it began) \(srun: error: Unable to create step for job", ran.traceback)
    assert "Ask for fewer tasks or CPUs" in ran.traceback
    assert "cannot be used: a process is one task" in held.run("%%remote -n 4\n1").traceback


@pytest.mark.here_only("the front end is the same either way")
def test_progress_figures_and_what_is_cleared(held: Any) -> None:
    ran = held.ok(
        "%%remote on=gpu\nfrom IPython.display import clear_output\nimport sys\nfor n in range(3):\n"
        "    clear_output(wait=True)\n    print(n)\nprint('\\x1b[31mred\\x1b[0m', file=sys.stderr)\n"
        "import matplotlib.pyplot as plt\nprint('before')\nplt.plot([1, 2])\nplt.show()\nprint('after')"
    )
    shown = _shown(ran)
    assert [part for part in shown if part[0] == "clear_output"][-1:] == [("clear_output", "")]
    kinds = [kind for kind, _ in shown[-3:]]
    assert (kinds, shown[-3][1], shown[-1][1]) == (
        ["stdout", "display_data", "stdout"],
        "2\nbefore\n",
        "after\n",
    )
    assert "\x1b[31mred\x1b[0m" in ran.stderr
    assert any("image/png" in message["content"].get("data", {}) for message in ran.messages)
    ran = held.ok("%%remote on=gpu out=n,w\nfor n in range(40_000): print('0123456789')\nprint('END')")
    assert 262_144 + 900 < len(ran.stdout) <= 262_144 + 1000
    assert ran.stdout.endswith("\n0123456789\nEND\n")
    assert "the rest of stdout is not shown; the whole output is in /" in ran.stderr
    assert ran.stderr.count("the cell ended without it") == 1


@pytest.mark.here_only("what runs in the job is the same over SSH")
def test_mpi_in_the_process_is_one_rank(held: Any) -> None:
    """The MPI of Debian does not support its Slurm: in a task of srun, importing mpi4py aborts the process."""
    program = "from mpi4py import MPI; print(MPI.COMM_WORLD.size)"
    ran = held.ok(
        f"%%remote python={sys.executable}\nimport subprocess\n"
        f"done = subprocess.run(['/usr/bin/python3', '-c', {program!r}], capture_output=True, text=True)\n"
        "import os\nprint(os.environ['SLURM_JOB_NAME'], done.stdout, done.stderr)"
    )
    assert ran.stdout.split()[-2:] == ["interactive", "1"]  # the name that salloc gives, too
    held.ok(f"%%srun -n 1 python=/usr/bin/python3 wait as=step\n{program}")
    assert held.value("step.stdout") == "1\n"


@pytest.mark.here_only("what runs in the job is the same over SSH")
def test_a_job_that_a_cell_submits_is_not_bound_to_the_cpus_of_the_cell(held: Any) -> None:
    """Libraries such as submitit submit jobs with the environment of the cell."""
    look = "import os\nprint(*sorted(name for name in os.environ if '_BIND' in name or 'STEP_ID' in name))"
    assert held.ok(f"%%remote\n{look}").stdout.splitlines()[-1:] == [""]
    held.ok(f"%%srun -n 1 python=/usr/bin/python3 wait as=step\n{look}")
    assert held.value("step.stdout") == "\n"


@pytest.mark.here_only("what a kernel finds again, its agent has")
def test_it_outlives_its_kernel_and_what_ran_is_seen_again(
    bare_kernel: Any, gate: Callable[[str], Path], wait_for: WaitFor
) -> None:
    bare_kernel.ok("%load_ext jupyter_slurm\n%salloc -p arandu as=kept keep wait")
    up, go = gate("up"), gate("go")
    bare_kernel.ok("%%remote on=kept\nimport pathlib, time\nbefore = 'kept'")
    bare_kernel.begin(
        f"%%remote on=kept\nprint('begun')\npathlib.Path({str(up)!r}).touch()\n"
        f"while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.05)\nafter = 'went on'\nafter"
    )
    wait_for(lambda: bare_kernel.pump() or up.exists(), "the cell")
    # A front end that restarts a kernel interrupts it before.
    bare_kernel.manager.signal_kernel(signal.SIGKILL)
    bare_kernel.restart()
    go.touch()
    ran = bare_kernel.ok("%%remote on=kept\nbefore, after")
    assert ran.stdout.splitlines()[-1] == "('kept', 'went on')"
    bare_kernel.ok(
        "import jupyter_slurm\nkept = [one for one in jupyter_slurm.allocations() if one.label == 'kept'][0]"
    )
    assert bare_kernel.value("[(type(one).__name__, one.state) for one in kept.steps[-2:]]") == (
        "[('RemoteCell', 'COMPLETED'), ('RemoteCell', 'COMPLETED')]"
    )
    shown = bare_kernel.ok("seen = kept.steps[-2]\nseen")
    assert "begun\n'went on'" in bare_kernel.text(shown.display)
    assert (
        bare_kernel.value("seen.process == kept.steps[0], jupyter_slurm.job(kept.steps[0].id) == kept.steps[0]")
        == "True True"
    )
    bare_kernel.ok("kept.release()")
