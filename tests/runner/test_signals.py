"""Signals of Slurm at any moment: the program of the job hears them, and the runner does the rest."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

RUNNERS = resources.files("jupyter_slurm.runner.lifecycle")
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
from jupyter_slurm.runner.container import client as run
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


def start_stage(tmp_path: Path, run: list[str], *, code: str = "", **options: Any) -> subprocess.Popen[str]:
    """Start the program that runs a job on the node's own disk; ``code`` runs before, in the same process."""
    folder = tmp_path / "job"
    folder.mkdir()
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "data").write_text("data")
    stage = {"folders": [{"dest": str(tmp_path / "project")}], "local": str(tmp_path / "disk"), "announced": True}
    (folder / "job.json").write_text(json.dumps({"key": "k", "events": str(folder), "run": run, "stage": stage}))
    text = f"import os, signal, sys\nfrom jupyter_slurm.runner.lifecycle import stage\n{code}\nsys.exit(stage.main())"
    env = {**os.environ, "SLURM_JOB_ID": "7", "PWD": str(tmp_path / "project")}
    argv = [sys.executable, "-c", text, str(folder)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen(argv, cwd=tmp_path / "project", env=env, text=True, **options)


def test_a_program_that_the_node_lacks_leaves_no_copy(tmp_path: Path) -> None:
    started = start_stage(tmp_path, ["/no/such/shell", "x"])
    _, printed = started.communicate(timeout=120)
    assert (started.returncode, printed) == (127, "stage: /no/such/shell cannot be run: No such file or directory.\n")
    assert os.listdir(tmp_path / "disk") == []


def test_the_warning_before_the_time_limit_during_the_copy_ends_nothing(tmp_path: Path) -> None:
    code = (
        "copy = stage.copy\n"
        "stage.copy = lambda *names: (os.kill(os.getpid(), signal.SIGUSR1), copy(*names))\n"  # from Slurm
    )
    started = start_stage(tmp_path, ["/bin/sh", "-c", "cat data"], code=code)
    assert started.communicate(timeout=120) == ("data", "")
    assert started.returncode == 0
    assert os.listdir(tmp_path / "disk") == []


def test_the_end_right_before_the_program_starts_leaves_no_copy(tmp_path: Path) -> None:
    code = "stage.command = lambda place, args: [os.kill(os.getpid(), signal.SIGTERM)]\n"
    started = start_stage(tmp_path, ["/bin/true"], code=code)
    started.communicate(timeout=120)
    assert started.returncode == 143
    assert os.listdir(tmp_path / "disk") == []


def test_a_program_hears_of_its_end_while_files_are_copied_back(tmp_path: Path, wait_for: Any) -> None:
    """At the warning, the copy takes longer than the time that is left: Slurm sends SIGTERM meanwhile."""
    code = (
        "import time\n"
        "def copy_back(self):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    end = time.monotonic() + 60\n"
        "    while not os.path.exists('ended') and time.monotonic() < end: time.sleep(0.02)\n"
        "    print(os.path.exists('ended'), flush=True)\n"
        "    stage.StageCopy.bring_back = real\n"
        "    return 0\n"
        "real, stage.StageCopy.bring_back = stage.StageCopy.bring_back, copy_back\n"
    )
    ended, ready = tmp_path / "project" / "ended", tmp_path / "ready"
    text = f"trap 'touch {ended}; exit 0' TERM; touch {ready}; while :; do sleep 0.05; done"
    started = start_stage(tmp_path, ["/bin/sh", "-c", text], code=code)
    wait_for(ready.exists, "the program")
    started.send_signal(signal.SIGUSR1)
    printed, _ = started.communicate(timeout=120)
    assert (started.returncode, printed) == (0, "True\n")


def test_messages_on_a_full_disk_end_no_program(tmp_path: Path, wait_for: Any) -> None:
    with open("/dev/full", "w") as full:
        text = f"trap 'echo last > last; exit 0' TERM; touch {tmp_path}/ready; while :; do sleep 0.05; done"
        started = start_stage(tmp_path, ["/bin/sh", "-c", text], stdout=subprocess.DEVNULL, stderr=full)
        wait_for((tmp_path / "ready").exists, "the program")
        started.send_signal(signal.SIGUSR1)
        started.send_signal(signal.SIGTERM)
        assert started.wait(120) == 0
        assert (tmp_path / "project" / "last").read_text() == "last\n"


def start_resume(folder: Path, text: str, **options: Any) -> subprocess.Popen[bytes]:
    """Start the program that follows a script with ``resume``, without commands of Slurm."""
    record = {
        "key": "k",
        "events": str(folder),
        "run": ["/bin/sh", "-c", f"PATH=/usr/bin:/bin; {text}"],
        "resume": 1,
        "preemptible": False,
    }
    (folder / "job.json").write_text(json.dumps(record))
    runner = str(RUNNERS.joinpath("resume.py"))
    env = {"PATH": str(folder), "SLURM_JOB_ID": "7"}
    return subprocess.Popen([sys.executable, "-u", runner, str(folder)], env=env, cwd=folder, **options)


def test_a_script_with_resume_hears_of_the_end_of_its_job(tmp_path: Path, wait_for: Any) -> None:
    (tmp_path / "squeue").write_text(f"#!/bin/sh\n/bin/sleep 25\n: > {tmp_path}/answered\n")  # the controller is silent
    (tmp_path / "squeue").chmod(0o755)
    text = "trap 'echo saved > saved; exit 0' TERM; touch ready; while :; do sleep 0.05; done"
    started = start_resume(tmp_path, text)
    wait_for((tmp_path / "ready").exists, "the script")
    started.send_signal(signal.SIGTERM)  # Slurm signals the batch script alone
    wait_for((tmp_path / "saved").exists, "the last words")
    assert not (tmp_path / "answered").exists()
    assert started.wait(120) == 143
    assert (tmp_path / "saved").read_text() == "saved\n"


def test_a_warning_on_a_full_disk_ends_no_script(tmp_path: Path, wait_for: Any) -> None:
    with open("/dev/full", "w") as full:
        started = start_resume(tmp_path, "touch ready; while [ ! -e go ]; do sleep 0.05; done", stderr=full)
        wait_for((tmp_path / "ready").exists, "the script")
        started.send_signal(signal.SIGUSR1)
        wait_for((tmp_path / "resume" / "warned.0").exists, "the warning")
        (tmp_path / "go").touch()
        assert started.wait(120) == 0


def test_the_end_of_a_run_before_is_not_that_of_this_run(tmp_path: Path) -> None:
    has_recorded_end = runpy.run_path(str(RUNNERS.joinpath("resume.py")))["has_recorded_end"]
    place = SimpleNamespace(folder=str(tmp_path), suffix=".3")
    assert not has_recorded_end(place, 0)
    for text, first, second in (('{"restarts": 0}', True, False), ("{", False, False), ("[]", False, False)):
        (tmp_path / "end.3.json").write_text(text)
        assert (has_recorded_end(place, 0), has_recorded_end(place, 1)) == (first, second)
