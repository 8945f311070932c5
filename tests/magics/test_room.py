"""Tests of %slurm room and of its command in a terminal: the real df of the login node, here and over SSH."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.by_day()]


def terminal(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "jupyter_slurm.cli.main", *words]
    env = {**os.environ, **environment, "COLUMNS": "200"}
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, check=False)


def test_a_notebook_and_a_terminal_show_free_space(kernel: Any, environment: dict[str, str]) -> None:
    kernel.ok("%%sbatch -p arandu wait\n#!/bin/sh\ntrue")
    kernel.ok('%slurm sh out=shown df -Pk "$HOME" | tail -n 1; df -Pi "$HOME" | tail -n 1; echo $HOME')
    blocks, inodes, home = json.loads(kernel.value("__import__('json').dumps(shown)")).splitlines()
    ran = kernel.ok("room = %slurm room\nroom")
    assert "disk, shared by all users" in ran.result["text/plain"]
    assert "Checked " in ran.result["text/plain"]
    assert "<table" in ran.result["text/html"]
    first = json.loads(kernel.value("__import__('json').dumps(room.data['spaces'][0])"))
    assert (first["folder"], first["limit"]) == (home, int(blocks.split()[1]) << 10)
    assert first["files_limit"] == (int(inodes.split()[1]) or None)
    assert 0 < first["free"] <= first["limit"]
    assert "Job directories in" in ran.result["text/plain"]

    done = terminal(environment, "room", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["spaces"][0] == first, "within five minutes the answer is the same"
    kernel.ok("%slurm room --newer")
    done = terminal(environment, "room", "newer")
    assert done.stdout.split()[:6] == ["FOLDER", "USED", "LIMIT", "FREE", "FILES", "SOURCE"]


def test_a_wrong_keyword_is_refused(kernel: Any) -> None:
    assert "Use `%slurm room [newer]`." in kernel.run("%slurm room new").traceback
