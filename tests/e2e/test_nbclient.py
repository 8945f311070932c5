"""Tests of the quickstart notebook, executed whole: undisturbed, and after the end of controller and agent."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from jupyter_slurm.embedded import EmbeddedCluster

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def quickstart(tmp_path, short_path, monkeypatch):
    """Provide the notebook on a cluster of its own, and that cluster; no file of the tester is touched."""
    settings = {name: str(short_path / name) for name in ("job_root", "state_dir", "runtime_dir")}
    (tmp_path / "jupyter_slurm_config.json").write_text(json.dumps({"Settings": settings}))
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", str(tmp_path))
    with EmbeddedCluster(directory=short_path / "slurm") as cluster:
        monkeypatch.setenv("SLURM_CONF", str(cluster.slurm_conf))
        yield nbformat.read(EXAMPLES / "quickstart.ipynb", as_version=4), cluster
        run_cli("agent", "stop")


def run_cli(*words):
    command = [
        sys.executable,
        "-P",
        "-c",
        "import sys; from jupyter_slurm.cli.main import main; sys.exit(main())",
        *words,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def text_of(cell):
    """Return the visible text under a cell."""
    parts = []
    for output in cell.outputs:
        if output.output_type == "stream":
            parts.append(output.text)
        elif output.output_type == "error":
            parts.append("\n".join(output.traceback))
        else:
            parts.append(output.data.get("text/plain", ""))
    return "\n".join(parts)


def check(notebook):
    """Check the output of each cell; only the intended errors may occur."""
    cells = {cell.source.splitlines()[0]: text_of(cell) for cell in notebook.cells if cell.cell_type == "code"}
    signs = ("wait as=hello", "hello.id", "fit.wait", "long.wait", "devwork   wait")
    found = {sign: text for sign in signs for head, text in cells.items() if sign in head}
    assert re.search(r"node: dgx01\nGPUs: \d", found["wait as=hello"])
    assert re.search(r"'COMPLETED', 0", found["hello.id"])
    losses = [float(loss) for loss in re.findall(r"loss +([\d.]+)", found["fit.wait"])]
    assert len(losses) == 11
    assert losses == sorted(losses, reverse=True)
    assert "sin(x) is about" in found["fit.wait"]
    assert "CANCELLED" in found["long.wait"]
    assert "exit code 3" in found["devwork   wait"]
    assert "No such file or directory" in found["devwork   wait"]
    table = cells["import jupyter_slurm"]
    assert sum(table.count(state) for state in ("COMPLETED", "CANCELLED", "FAILED")) == 4


def execute(notebook, **hooks):
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(EXAMPLES)}}, **hooks).execute()


def test_quickstart_shows_what_it_promises(quickstart):
    notebook, _ = quickstart
    execute(notebook)
    check(notebook)


def test_quickstart_survives_a_controller_restart_and_a_killed_agent(quickstart, wait_for):
    """Both happen repeatedly while the notebook runs: two cells wait for that."""
    notebook, cluster = quickstart
    over, killed = threading.Event(), []

    def disturb():
        while not over.wait(6):
            status = run_cli("agent", "status", "--json")
            pid = json.loads(status).get("pid") if status.strip() else None
            if pid:
                os.kill(pid, signal.SIGKILL)
                killed.append((pid, time.monotonic()))
            cluster.restart_controller()

    def wait_for_kills(cell, cell_index):
        expected = 2 if cell is notebook.cells[-1] else int("as=long" in cell.source)
        wait_for(lambda: len(killed) >= expected or not thread.is_alive(), f"{expected} ends of an agent")

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        execute(notebook, on_cell_start=wait_for_kills)
    finally:
        over.set()
        thread.join()
    check(notebook)
    assert len(killed) >= 2
