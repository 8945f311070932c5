"""A signal of Slurm that arrives while a job starts its program ends the program, and the runner does the rest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CELL = [sys.executable, "-c", "import time; time.sleep(600)"]
# Slurm sends SIGTERM at the moment at which the program starts.
START = f"""
import os, signal, subprocess, sys
from types import SimpleNamespace

def start_after_a_signal(*args, _start=subprocess.Popen, **options):
    os.kill(os.getpid(), signal.SIGTERM)
    return _start(*args, **options)

subprocess.Popen = start_after_a_signal
folder = sys.argv[1]
cell = {CELL!r}
"""
STAGE = """
from jupyter_slurm.runner.lifecycle import stage
made = SimpleNamespace(local=folder, shared=folder, bring_back=lambda: print("copied back", flush=True))
sys.exit(stage.follow(cell, made, is_announced=False))
"""
CONTAINER = """
from jupyter_slurm.runner.container import run
run.why = run.end_inside = lambda *_, **__: ""
run.images = SimpleNamespace(run_query=lambda *_: print("removed", flush=True))
sys.exit(run.follow(cell, dict(os.environ), "name", "image"))
"""
RAY = """
from jupyter_slurm.runner.ranks import ray_cluster
ray_cluster.commands = lambda *_: (cell, None)
place = SimpleNamespace(job={}, folder=folder, suffix="", write=lambda *_: None)
code = ray_cluster.run(place, [])
print("followed to its end", flush=True)
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("text", "printed"),
    [(STAGE, "copied back\n"), (CONTAINER, "removed\n"), (RAY, "followed to its end\n")],
    ids=["stage", "container", "ray"],
)
def test_a_signal_before_the_program_has_started(text: str, printed: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-c", START + text, str(tmp_path)]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (143, printed), done.stderr
