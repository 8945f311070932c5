"""Tests of the move of an open notebook to a remote kernel, and then to another allocation, with variables."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.embedded import EmbeddedCluster

pytestmark = [pytest.mark.slurm, pytest.mark.here_only("what moves is of the Jupyter server here")]

MOVES = "jupyter-slurm/api/server/moves"
JOB = "__import__('os').environ.get('SLURM_JOB_ID')"
LONG = 180
OWN = """
import threading
import numpy as np
class Point:
    def __init__(self, x): self.x = x
def doubled(point, by=2): return Point(point.x * by)
point, field = Point(21), np.arange(1_200_000)
weights = [1.0]
model, optimizer = {"weights": weights}, [(weights, 0.1)]
lock, huge = threading.Lock(), bytes(30_000_000)
import sys, types
sys.modules["only_here"] = types.ModuleType("only_here")
exec("class Near: pass", vars(sys.modules["only_here"]))
near = sys.modules["only_here"].Near()
"""


class Notebook:
    """A notebook of a real Jupyter server, and its moves."""

    def __init__(self, server: Any, cluster: EmbeddedCluster, wait_for: Callable[..., Any]) -> None:
        self.server, self._cluster, self._wait_for = server, cluster, wait_for
        self._others = self._queued("PENDING,RUNNING")  # of tests before, whose kernels give them back later

    def move(self, *names: str, **to: str | bool) -> str:
        told = self.server.ask("POST", MOVES, {"notebook": "moved.ipynb", "in": list(names), **to})
        assert (told["notebook"], told["in"]) == ("moved.ipynb", list(names))
        return str(told["id"])

    def told(self, move: str) -> dict[str, Any]:
        told: dict[str, Any] = self.server.ask("GET", f"{MOVES}/{move}")
        return told

    def reaches(self, move: str, state: str, text: str = "") -> str:
        """Wait for a state of a move; return its description."""

        def look() -> str | None:
            told = self.told(move)
            return told["text"] if told["state"] == state and text in told["text"] else None

        return str(self._wait_for(look, f"{state} {text}", LONG))

    @property
    def jobs(self) -> list[str]:
        """Return the unfinished jobs of this notebook."""
        return [job for job in self._queued("PENDING,RUNNING") if job not in self._others]

    def release(self) -> str:
        """Let the held allocation start; return its number."""
        (job,) = [job for job in self._queued("PENDING") if job not in self._others]
        self._cluster.run("scontrol", "release", job)
        return job

    def _queued(self, states: str) -> list[str]:
        return self._cluster.run("squeue", "--noheader", "--format=%A", f"--states={states}").stdout.split()

    def terminal(self, *words: str) -> Terminal:
        return Terminal(words, self.server.folder, self.server.env, self._wait_for)

    def give_up(self, move: str) -> dict[str, Any]:
        told: dict[str, Any] = self.server.ask("DELETE", f"{MOVES}/{move}")
        return told


class Terminal:
    """Runner of ``jupyter slurm kernel …``, in the folder of the notebook."""

    def __init__(self, words: tuple[str, ...], folder: Path, env: dict[str, str], wait_for: Callable[..., Any]) -> None:
        self._file, self._wait_for = folder / "terminal", wait_for
        command = [sys.executable, "-P", "-m", "jupyter_slurm.cli.main", "kernel", *words]
        with self._file.open("wb") as file:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": file}
            self.process = subprocess.Popen(command, cwd=folder, env=env, **pipes)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def says(self, text: str) -> None:
        self._wait_for(lambda: text in self._file.read_text(), text, LONG)

    def ends(self) -> int:
        return self.process.wait(LONG)


@pytest.fixture
def notebook(
    study: Any, jupyter: Callable[..., Any], cluster: EmbeddedCluster, wait_for: Callable[..., Any]
) -> Notebook:
    """Provide a notebook with variables and a local kernel; allocations of the kernel ``held`` wait for a release."""
    study.add_kernel("-p", "arandu", "--hold", name="held")
    study.add_kernel("-p", "no-such-partition", name="refused")
    server = jupyter("--Settings.values_limit=20_000_000")
    assert server.open("moved.ipynb", "python3").run(OWN).status == "ok"
    return Notebook(server, cluster, wait_for)


@pytest.mark.timeout(900)
def test_a_notebook_moves_to_a_node_and_on_into_the_next_allocation(
    notebook: Notebook, wait_for: Callable[..., Any]
) -> None:
    server, here = notebook.server, notebook.server.kernel
    local = server.session["kernel"]["id"]
    asked = here.run(
        '%load_ext jupyter_slurm\n%slurm kernel switch "A held kernel" in=point,field,doubled,np,model,optimizer,near'
    )
    assert "moved.ipynb moves to A held kernel when it is ready, with point, field" in asked.shown
    (move,) = [one["id"] for one in server.ask("GET", MOVES)["moves"]]
    notebook.reaches(move, "waiting", "Waiting for its allocation (PENDING)")
    assert "waiting: Waiting for its allocation (PENDING)" in here.run("%slurm kernel").shown
    again = server.request("POST", MOVES, {"notebook": "moved.ipynb", "kernel": "held"})
    assert (again.status_code, again.headers["content-type"]) == (409, "application/problem+json")
    assert here.run("point = doubled(point)").status == "ok"  # the notebook is used meanwhile
    job = notebook.release()
    told = notebook.reaches(move, "done")
    assert (
        "Sent point, field, doubled, np, model, optimizer. near needs the module only_here, which is missing." in told
    )

    here.client.stop_channels()
    there = server.connect()
    assert server.session["kernel"]["name"] == "held"
    assert server.request("GET", f"api/kernels/{local}").status_code == 404
    assert (
        there.value(f"{JOB}, point.x, doubled(point, 3).x, field.sum(), np.pi > 3") == f"{job} 42 126 719999400000 True"
    )
    assert there.value('optimizer[0][0] is model["weights"]') == "True"
    assert there.value("len(In), [name for name in globals() if 'slurm' in name]") == "4 []"  # these three cells

    assert there.run("point = doubled(point)").status == "ok"
    with notebook.terminal("follow", "./moved.ipynb", "in=point,doubled") as terminal:
        terminal.says("Waiting for its allocation (PENDING)")
        assert there.value(f"{JOB}, point.x") == f"{job} 84"
        # the variable cannot be transferred any more
        assert there.run("import threading; point.lock = threading.Lock()").status == "ok"
        follower = notebook.release()
        terminal.says("Sent point, doubled")
        terminal.says("The variables are those of")
        assert terminal.ends() == 0
    there.client.stop_channels()
    there = server.connect()
    assert there.value(f"{JOB}, doubled(point).x, 'field' in globals()") == f"{follower} 168 False"
    wait_for(lambda: notebook.jobs == [follower], "the allocation before is given back", LONG)
    server.close()
    wait_for(lambda: notebook.jobs == [], "this one, too", LONG)


@pytest.mark.timeout(900)
def test_an_allocation_of_the_old_kernel_is_kept_for_the_next_kernel_of_the_notebook(
    notebook: Notebook, wait_for: Callable[..., Any]
) -> None:
    server, here = notebook.server, notebook.server.kernel
    held = server.folder / "held"
    step = f"%load_ext jupyter_slurm\n%srun wait -n1 sh -c 'printenv SLURM_JOB_ID > {held}'"
    for name in ("box", "other"):
        told = here.run(f"%load_ext jupyter_slurm\n%salloc -p arandu --mem=100M as={name} wait")
        assert told.status == "ok", told.error
    first, last = sorted(notebook.jobs, key=int)
    assert (
        "The move keeps the allocations box, other for the next kernel"
        in here.run("%slurm kernel switch python3").shown
    )
    (move,) = [one["id"] for one in server.ask("GET", MOVES)["moves"]]
    notebook.reaches(move, "done", "Kept the allocations box, other")
    here.client.stop_channels()
    there = server.connect()
    assert there.run(step).status == "ok"
    assert held.read_text().strip() == last  # the latest, as in the kernel before
    assert {*notebook.jobs} == {first, last}

    # It belongs to that kernel now, and ends with it; the other one stays.
    notebook.reaches(notebook.move(kernel="python3", keep=False), "done")
    wait_for(lambda: notebook.jobs == [first], "the allocation that was taken up is released", LONG)
    there.client.stop_channels()
    again = server.connect()
    assert again.run(step).status == "ok"
    assert held.read_text().strip() == first
    assert again.run("%salloc release").status == "ok"
    wait_for(lambda: notebook.jobs == [], "it is released", LONG)


@pytest.mark.timeout(900)
def test_a_restart_keeps_the_allocation_and_a_shutdown_releases_it(
    notebook: Notebook, wait_for: Callable[..., Any]
) -> None:
    server, kernel = notebook.server, notebook.server.kernel
    asks = "%load_ext jupyter_slurm\n%salloc -p arandu --mem=100M {}as=box wait"
    assert kernel.run(asks.format("")).status == "ok"
    held = server.folder / "held"
    step = f"%load_ext jupyter_slurm\n%srun wait -n1 sh -c 'printenv SLURM_JOB_ID > {held}'"
    (job,) = notebook.jobs

    def restart() -> Any:
        server.request("POST", f"api/kernels/{server.session['kernel']['id']}/restart").raise_for_status()
        server.kernel.client.stop_channels()
        return server.connect()

    kernel = restart()
    assert kernel.value("'box' in globals()") == "False"
    assert kernel.run(step).status == "ok"  # the next cell finds it
    assert held.read_text().strip() == job
    kernel = restart()  # it had been taken up, and is kept again
    told = kernel.run(asks.format(""))  # as when all cells run again
    assert told.status == "ok", told.error
    assert f"Allocation {job} (box) is still open since the kernel before, and is used again." in told.stdout
    assert kernel.value("box.id") == job
    assert notebook.jobs == [job]
    for edited in (asks.format("--gpus=1 "), asks.format("lease=10m "), asks.format("").replace("--mem=100M ", "")):
        kernel = restart()
        assert kernel.run(edited).status == "ok"
        assert kernel.value("box.id") != job, edited
        assert kernel.run(f"%salloc release on={job}").status == "ok"
        job = kernel.value("box.id")
        wait_for(lambda job=job: notebook.jobs == [job], "the one from before is released", LONG)
    kernel = restart()
    assert "is used again" in kernel.run(edited).stdout
    server.close()
    wait_for(lambda: notebook.jobs == [], "a shutdown releases the allocation", LONG)


@pytest.mark.timeout(900)
def test_a_server_that_is_killed_while_the_next_allocation_pends_leaves_the_kernel_and_nothing_else(
    notebook: Notebook, study: Any, jupyter: Callable[..., Any], wait_for: Callable[..., Any]
) -> None:
    notebook.server.close()
    kernel = notebook.server.open("moved.ipynb")
    job = kernel.value(JOB)
    assert kernel.run("x = 1").status == "ok"
    study.add_kernel("-p", "arandu", "--hold")
    notebook.reaches(notebook.move("x"), "waiting", "Waiting for its allocation (PENDING)")
    assert len(notebook.jobs) == 2
    notebook.server.end(signal.SIGKILL)
    server = jupyter()
    again = server.open("moved.ipynb")
    assert again.value(f"{JOB}, x") == f"{job} 1"
    wait_for(lambda: notebook.jobs == [job], "what was asked of Slurm is given back", LONG)
    server.close()
    wait_for(lambda: notebook.jobs == [], "the kernel is shut down", LONG)


@pytest.mark.timeout(900)
def test_a_notebook_stays_where_it_cannot_move(notebook: Notebook, wait_for: Callable[..., Any]) -> None:
    server, here = notebook.server, notebook.server.kernel
    traces = "len(In), sorted(name for name in globals() if name[:2] != '_i')"
    number, _, names_before = here.value(traces).partition(" ")
    for names, says in {
        ("points",): "Not moved: there is no variable points. Did you mean point?",
        ("point", "lock"): "lock (lock) cannot be sent",
        ("huge",): "larger than 20.0 MB: huge 30.0 MB",
    }.items():
        assert says in notebook.reaches(notebook.move(*names, kernel="held"), "failed")
    refusals = {
        404: [{"notebook": "closed.ipynb", "kernel": "held"}, {"notebook": "moved.ipynb", "kernel": "nowhere"}],
        400: [{"notebook": "moved.ipynb"}, {"notebook": "moved.ipynb", "kernel": "held", "in": ["a b"]}, {}],
    }
    for status, bodies in refusals.items():
        for body in bodies:
            answer = server.request("POST", MOVES, body)
            assert (answer.status_code, bool(answer.json()["detail"])) == (status, True), body
    assert notebook.jobs == []  # no request to Slurm remains

    assert "no-such-partition" in notebook.reaches(notebook.move("point", kernel="refused"), "failed")

    assert "The new kernel can use none of the variables. near needs" in notebook.reaches(
        notebook.move("near", kernel="far"), "failed"
    )

    # A running cell is awaited; a failing cell affects no other.
    cell = here.begin("while 'go' not in __import__('os').listdir(): __import__('time').sleep(0.05)\n1/0")
    move = notebook.move("point", kernel="held")
    notebook.reaches(move, "waiting", "Waiting for the running cell")
    (server.folder / "go").touch()
    assert here.end(cell).kind == "ZeroDivisionError"
    notebook.reaches(move, "waiting", "Waiting for its allocation (PENDING)")
    assert notebook.give_up(move)["state"] == "cancelled"
    assert notebook.give_up(move)["state"] == "cancelled"
    with notebook.terminal("switch", "moved.ipynb", "held") as terminal:
        terminal.says("Waiting for its allocation (PENDING)")
        terminal.process.send_signal(signal.SIGINT)
        terminal.says("Cancelled: the notebook keeps its kernel.")
        assert terminal.ends() == 130
    wait_for(lambda: notebook.jobs == [], "what was asked of Slurm is given back", LONG)
    for words, says in {
        ("switch", "closed.ipynb", "held"): "Open notebooks: moved.ipynb",
        ("switch", "moved.ipynb", "arandu", "-p", "arandu"): "jupyter slurm kernel add",
        ("follow", "moved.ipynb"): "does not run on a node",
    }.items():
        with notebook.terminal(*words) as terminal:
            assert terminal.ends() == 1
            terminal.says(says)
    assert server.ask("GET", f"api/sessions/{server.session['id']}")["kernel"]["name"] == "python3"
    assert here.value("point.x") == "21"
    assert here.value(traces) == f"{int(number) + 3} {names_before}"  # these, and no trace of the transfer
    assert len(server.ask("GET", "api/kernels")) == 1
    assert [one["state"] for one in server.ask("GET", MOVES)["moves"]] == ["failed"] * 5 + ["cancelled"] * 2
