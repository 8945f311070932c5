"""Tests of the life of a remote kernel: start, pending, restart, death, shutdown; and of deaths beside it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hostile_folder import fill

from jupyter_slurm.client.jobs.request import new_key
from jupyter_slurm.embedded import EmbeddedCluster

pytestmark = pytest.mark.slurm

_here = pytest.mark.here_only("what is different over SSH is in the first one")

_JOB = "__import__('os').environ['SLURM_JOB_ID']"


def jobs(cluster: EmbeddedCluster) -> set[str]:
    """Return the unfinished jobs."""
    states = "--states=PENDING,RUNNING,CONFIGURING"
    return set(cluster.run("squeue", "--noheader", "--format=%A", states).stdout.split())


@_here
def test_it_begins_where_it_is_told_to_and_knows_of_its_processors(node_kernel: Any, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "in").mkdir(mode=0o755)
    where = "(__import__('os').getcwd(), __import__('os').environ.get('SLURM_CPUS_PER_TASK'))"
    by_slurm = node_kernel("-p", "arandu", "-c", "2", f"--chdir={tmp_path}")
    by_us = node_kernel("-p", "arandu", f"--chdir={tmp_path}", f"dir={tmp_path}/in")
    assert by_slurm.value(where) == str((str(tmp_path), "2"))
    assert by_us.value(where) == str((str(tmp_path / "in"), None))
    assert (
        by_slurm.value("__import__('subprocess').getoutput('srun --overlap printenv SLURM_JOB_CPUS_PER_NODE')") == "2"
    )
    by_slurm.stop()
    by_us.stop()


@_here
def test_a_folder_with_names_of_modules_harms_no_kernel(node_kernel: Any, study: Any) -> None:
    """Also by a kernelspec of an earlier version, which lacks -P; both the proxy and the kernel run in this folder."""
    files = fill(study.folder)
    try:
        kernel = node_kernel("-p", "arandu", f"dir={study.folder}", PYTHONSAFEPATH="")
        assert kernel.value("__import__('own_module_of_the_user').answer") == "42"
        kernel.stop()
    finally:
        for file in files:
            file.unlink()


@pytest.mark.carrier("paramiko")
def test_a_kernel_begins_lives_and_gives_back_what_it_had(
    node_kernel: Any, study: Any, cluster: EmbeddedCluster, wait_for: Callable[..., Any]
) -> None:
    kernel = node_kernel("-p", "arandu", "--gpus", "1")
    job = kernel.value(_JOB)
    (record,) = (study.folder / "jobs").rglob(f"{kernel.post['allocation']}/job.json")
    assert json.loads(record.read_text())["kernel"]["display_name"] == "A far kernel"
    assert job in jobs(cluster)
    assert kernel.value("__import__('os').environ['CUDA_VISIBLE_DEVICES']") == "0"
    secret = kernel.post["secret"]
    told = cluster.run("scontrol", "show", "job", job).stdout
    assert secret not in told
    assert secret not in kernel.value("open('/proc/self/environ').read()")

    # Another kernel can share the allocation, and ends nothing but itself.
    other = node_kernel(f"on={kernel.post['label']}")
    assert other.value(_JOB) == job
    other.stop()
    assert kernel.value(_JOB) == job
    study.add_kernel("-p", "arandu", "--gpus", "1")  # a restart uses the present kernelspec

    # A restart keeps the allocation, and no variables.
    kernel.run("x = 1")
    kernel.manager.restart_kernel()
    kernel.listen()
    assert kernel.value(_JOB) == job
    assert kernel.run("x").kind == "NameError"

    # So does a death, with its reason: a restarter of jupyter_client does the same.
    died = kernel.run("import os; os.kill(os.getpid(), 9)")
    assert died.kind == "KernelDied"
    assert "SIGKILL" in died.error
    wait_for(lambda: not kernel.manager.is_alive(), "the front has ended")
    kernel.manager.restart_kernel(now=True)
    kernel.listen()
    assert kernel.value(_JOB) == job

    kernel.stop()
    wait_for(lambda: job not in jobs(cluster), "the allocation is given back")
    wait_for(lambda: not kernel.post, "nothing is left of its allocation")


@_here
def test_a_cell_says_what_it_waits_for_and_can_be_given_up(
    node_kernel: Any, cluster: EmbeddedCluster, wait_for: Callable[..., Any]
) -> None:
    before = jobs(cluster)
    kernel = node_kernel("-p", "arandu", "--begin=now+1hour")
    cell = kernel.begin("1")
    wait_for(lambda: "Waiting for its allocation (PENDING)" in kernel.said(cell), "the cell says what it waits for")
    kernel.manager.interrupt_kernel()
    assert kernel.end(cell).kind == "KeyboardInterrupt"
    assert len(jobs(cluster) - before) == 1, "the allocation is waited for"
    kernel.client.stop_channels()
    kernel.manager.shutdown_kernel(now=True)
    wait_for(lambda: jobs(cluster) <= before, "it is given back, although its front was killed at once")


@_here
def test_what_slurm_refuses_says_so_in_the_cell_and_is_not_asked_for_again(node_kernel: Any) -> None:
    kernel = node_kernel("-p", "nosuch")
    told = kernel.run("1")
    assert told.kind == "KernelNotStarted"
    assert "nosuch" in told.error or "partition" in told.error
    assert kernel.manager.is_alive()


@_here
def test_the_kernel_goes_on_when_front_and_agent_are_killed(
    node_kernel: Any, study: Any, cluster: EmbeddedCluster, wait_for: Callable[..., Any]
) -> None:
    kernel = node_kernel("-p", "arandu")
    gate = study.folder / "go-on"
    cell = kernel.begin(
        f"import pathlib, time\nx = 1\nprint('begun', flush=True)\n"
        f"while not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.05)\n"
        "for number in range(5000): print(number)\n"
    )
    wait_for(lambda: "begun" in kernel.said(cell), "the cell has begun")
    front = kernel.front
    os.kill(front, signal.SIGKILL)
    wait_for(lambda: kernel.manager.is_alive() and kernel.front != front, "another front has taken its place")
    gate.touch()
    printed = kernel.end(cell).stdout
    assert printed == "begun\n" + "".join(f"{number}\n" for number in range(5000))

    os.kill(_agent(study.folder), signal.SIGKILL)
    assert kernel.value("x") == "1"

    # A proxy killed during its request has not received the allocation.
    job = kernel.value(_JOB)
    kill_asking(kernel, wait_for, allocation=None, step=None)
    assert kernel.value(_JOB) == job
    cluster.run("scancel", job)


def kill_asking(kernel: Any, wait_for: Callable[..., Any], **unheard: Any) -> None:
    """Kill a proxy as if it had just sent a request without its answer."""
    front = kernel.front
    os.kill(front, signal.SIGSTOP)
    left = {**kernel.post, "state": "starting", **unheard}
    Path(f"{kernel.manager.connection_file}.slurm").write_text(json.dumps(left) + "\n")
    os.kill(front, signal.SIGKILL)
    wait_for(lambda: kernel.manager.is_alive() and kernel.front != front, "another front has taken its place")
    kernel.listen()


@_here
def test_there_is_one_step_wherever_a_front_is_killed(
    node_kernel: Any, cluster: EmbeddedCluster, wait_for: Callable[..., Any]
) -> None:
    """More than three proxies in a minute are not started, so there are three."""
    kernel = node_kernel("-p", "arandu")
    kernel.run("x = 2")
    kill_asking(kernel, wait_for)
    assert kernel.value("x") == "2", "the step is found"
    key, job = new_key(), kernel.value(_JOB)
    kill_asking(kernel, wait_for, step=key)
    assert kernel.run("x").kind == "NameError"
    assert kernel.post["step"] == key, "the step that was not asked for yet is asked for"

    # A proxy without a proof reports that; the kernel that it cannot reach is ended.
    steps = ("squeue", "--steps", "--noheader", f"--jobs={job}", "--format=%i")
    numbers = [one.rpartition(".")[2] for one in cluster.run(*steps).stdout.split()]
    unreached = f"{job}.{max(int(number) for number in numbers if number.isdecimal())}"
    kill_asking(kernel, wait_for, state="running", secret="00" * 32)
    assert "not this kernel" in kernel.run("1").error
    kernel.manager.restart_kernel(now=True)
    kernel.listen()
    assert kernel.value(_JOB) == job
    wait_for(lambda: unreached not in cluster.run(*steps).stdout.split(), "the kernel before it has ended")


def _agent(folder: Path) -> int:
    """Return the process of the agent."""
    records = [json.loads(path.read_text()) for path in (folder / "run").rglob("*.json")]
    return next(int(record["pid"]) for record in records if "pid" in record)


@_here
def test_an_allocation_that_ends_says_why_and_a_restart_asks_for_another(
    node_kernel: Any, cluster: EmbeddedCluster
) -> None:
    kernel = node_kernel("-p", "arandu")
    job = kernel.value(_JOB)
    cell = kernel.begin("import time; time.sleep(600)")
    cluster.run("scancel", job)
    told = kernel.end(cell)
    assert told.kind == "KernelEnded"
    assert job in told.error
    assert kernel.manager.is_alive(), "nothing is asked of Slurm before a person does"
    assert kernel.run("1").kind == "KernelEnded"
    kernel.manager.restart_kernel()
    kernel.listen()
    assert kernel.value(_JOB) != job


@_here
def test_cells_of_another_notebook_run_in_the_kernel(
    node_kernel: Any, notebook: Any, study: Any, cluster: EmbeddedCluster, wait_for: Callable[..., Any]
) -> None:
    assert "No kernel runs on a node" in notebook.run("%%remote kernel\n1").error
    kernel = node_kernel("-p", "arandu")
    kernel.run("import pathlib, time\nmodel, n = {'weights': [1]}, 1")
    notebook.run("step = 2")
    told = notebook.run(
        "%%remote kernel in=step out=total\nfrom IPython.display import HTML, display\n"
        "model['weights'].append(step); total = sum(model['weights'])\nprint('there')\n"
        "display(HTML('<b>shown</b>'))\nn + 1"
    )
    assert told.status == "ok", told.error
    assert told.stdout.endswith("(A far kernel)\nthere\n2\n"), told.stdout
    shown = [one["content"]["data"] for one in notebook.messages if one["msg_type"] == "display_data"]
    assert shown[-1]["text/html"] == "<b>shown</b>"
    assert notebook.value("total") == "3"
    assert kernel.value("model, total, step") == "{'weights': [1, 2]} 3 2"
    told = notebook.run("%%remote kernel\n1 / 0")
    assert (told.kind, "ZeroDivisionError: division by zero" in told.error) == ("JobFailed", True)

    # The kernel is running a cell of its own: the other cell waits, is withdrawn, and interrupts nothing.
    gate = study.folder / "its-own-cell"
    busy = kernel.begin(f"print('on', flush=True)\nwhile not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.05)")
    wait_for(lambda: "on" in kernel.said(busy), "the kernel's own cell has begun")
    cell = notebook.begin("%%remote kernel\nnever = 0")
    wait_for(
        lambda: "waits for its turn: the kernel has other work" in notebook.said(cell), "it says what it waits for"
    )
    notebook.manager.interrupt_kernel()
    told = notebook.end(cell)
    assert "cancelled before it started" in told.error or "still waits" in told.error  # on a slow machine
    cell = notebook.begin("%%remote kernel\nn = 7\nprint('at work', flush=True)\ntime.sleep(600)")
    gate.touch()
    assert kernel.end(busy).status == "ok"
    wait_for(lambda: "at work" in notebook.said(cell), "its turn has come")
    notebook.manager.interrupt_kernel()
    assert "was interrupted" in notebook.end(cell).error
    assert kernel.value("n, 'never' in globals()") == "7 False"
    said = [one["content"].get("text", "") for one in kernel.messages if one["msg_type"] == "stream"]
    assert not any("there" in text or "at work" in text for text in said), "its notebook hears nothing of them"

    # The kernel ends, and another one starts in the same allocation; at the end everything is released.
    job = kernel.value(_JOB)
    told = notebook.run("%%remote kernel\nimport os; os.kill(os.getpid(), 9)")
    assert "The kernel ended while it ran: all variables of the kernel are gone (by signal 9)." in told.error
    wait_for(lambda: not kernel.manager.is_alive(), "the front has ended")
    kernel.manager.restart_kernel(now=True)
    kernel.listen()
    assert kernel.value(_JOB) == job
    cell = notebook.begin("%%remote kernel\nmodel")
    assert "NameError" in notebook.end(cell).error
    assert "was restarted. Its variables are lost" in notebook.said(cell)
    cell = notebook.begin("%%remote kernel\nimport time\nprint('on', flush=True)\ntime.sleep(600)")
    wait_for(lambda: "on" in notebook.said(cell), "it has begun")
    kernel.stop()
    wait_for(lambda: job not in jobs(cluster), "the allocation is given back")
    assert notebook.end(cell).kind == "JobFailed"


@_here
@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGTERM, "b.ipynb"), (signal.SIGKILL, "a.ipynb"), (signal.SIGKILL, "b.ipynb")]
)
def test_a_notebook_finds_its_kernel_again_after_its_jupyter_server_has_ended(
    jupyter: Any, cluster: EmbeddedCluster, wait_for: Callable[..., Any], number: signal.Signals, name: str
) -> None:
    """Also a notebook that was renamed before."""
    server = jupyter()
    kernel = server.open("a.ipynb")
    kernel.run("x = 1")
    job = kernel.value(_JOB)
    if name != "a.ipynb":
        server.ask("PATCH", f"api/sessions/{server.session['id']}", {"path": name, "name": name})
        owners = (server.folder / "runtime").glob
        if number == signal.SIGKILL:
            wait_for(lambda: list(owners("*.slurm-owner")), "its new name is known beside its kernel")
    server.end(number)
    server = jupyter()
    kernel = server.open(name)
    assert kernel.value("x") == "1"
    assert job in jobs(cluster)
    server.close()
    wait_for(lambda: job not in jobs(cluster), "the allocation is given back")
