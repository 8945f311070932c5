"""Tests of %slurm ls and of its command in a terminal, here and over SSH."""

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


def test_a_directory_is_listed_in_a_notebook_and_a_terminal(kernel: Any, environment: dict[str, str]) -> None:
    kernel.ok(
        '%slurm sh out=where d=$(mktemp -d); cd "$d"; head -c 3000 /dev/zero > data; mkdir sub; touch .hidden; '
        "touch \"$(printf 'e\\033[2J\\nvil')\"; pwd"
    )
    folder = kernel.value("where.strip()").strip("'")
    kernel.ok("from jupyter_slurm.client.clusters import cluster\nhere = cluster.chosen()")
    try:
        shown = kernel.ok(f"found = %slurm ls {folder}\nfound").result["text/plain"]
        lines = [line.split()[:3] for line in shown.splitlines()[1:]]
        assert [line[0] for line in lines] == ["data", r"e\x1b[2J\nvil", "sub/"]
        assert lines[0][1:] == ["3", "KiB"]
        assert "e\\x1b" in kernel.ok(f"%slurm ls {folder}").result["text/html"]
        assert ".hidden" in kernel.ok(f"%slurm ls all {folder}").result["text/plain"]
        assert "data" in kernel.ok(f"%slurm ls {folder}/data").result["text/plain"]
        assert "does not exist" in kernel.run(f"%slurm ls {folder}/none").traceback
        assert "data" in kernel.ok(f"%slurm ls {kernel.value('here')}:{folder}").result["text/plain"]
        done = terminal(environment, "ls", "--json", folder)
        assert (done.returncode, done.stderr) == (0, "")
        assert {entry["name"]: entry["size"] for entry in json.loads(done.stdout)}["data"] == 3000
        assert "sub/" in terminal(environment, "ls", folder).stdout
        assert terminal(environment, "ls", "a", "b", "c").returncode == 1
    finally:
        kernel.ok(f"%slurm sh rm -r {folder}")


def test_two_paths_are_refused(kernel: Any) -> None:
    assert "Use `%slurm ls [all] [[CLUSTER:]PATH]`" in kernel.run("%slurm ls a b").traceback
