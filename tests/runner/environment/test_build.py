"""Tests of the program that makes an environment, on a disk without room."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

BUILD = str(resources.files("jupyter_slurm.runner").joinpath("environment/build.py"))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Provide a disk of 4 MB, smaller than an environment with pip."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.root
def test_a_full_disk_is_named_and_nothing_is_left(disk: Path) -> None:
    """The last words of venv are only an exit status."""
    made = disk / "envs/.made"
    made.mkdir(parents=True)
    wish = {"kind": "requirements", "name": "torch", "hash": "0" * 16, "folder": str(disk / "envs"), "tool": "pip"}
    request = made / ".request.json"
    request.write_text(json.dumps({**wish, "source": "requirements.txt", "files": {"requirements.txt": ""}}))
    argv = [sys.executable, "-u", BUILD, "--login", str(request)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert "The disk is full, or your quota is used up" in done.stderr
    assert [path for path in disk.rglob("*") if not path.is_dir()] == []
    assert os.listdir(disk / "envs") == [".made"]


def test_what_killed_builds_have_left_is_removed(tmp_path: Path) -> None:
    """Incomplete environments of the same request at once; folders of commands after two weeks."""
    made, mine, other = tmp_path / "envs/.made", "a" * 16, "b" * 16
    for name in (f"{mine}.{'0' * 8}", f"{mine}.{'1' * 8}", f"{other}.{'0' * 8}", ".files.0", ".files.1"):
        (made / name / "bin").mkdir(parents=True)
    (made / f"{mine}.{'1' * 8}/jupyter_slurm.json").write_text('{"made": 1}')
    os.utime(made / ".files.0", (1, 1))
    program = tmp_path / "micromamba"
    program.write_text(f'#!/bin/sh\nmkdir -p "$4/bin" && ln -s "{sys.executable}" "$4/bin/python"\n')
    program.chmod(0o755)
    wish = {"kind": "conda", "name": "mine", "hash": mine, "folder": str(tmp_path / "envs"), "tool": "micromamba"}
    request = made / ".request.json"
    request.write_text(json.dumps({**wish, "replace": True, "source": "x", "files": {"environment.yml": ""}}))
    argv, env = [sys.executable, "-u", BUILD, "--login", str(request)], {**os.environ, "PATH": f"{tmp_path}:/bin"}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120, env=env)
    assert done.returncode == 0, done.stderr
    new = os.path.basename(os.readlink(tmp_path / "envs/mine"))
    assert set(os.listdir(made)) == {new, f"{mine}.{'1' * 8}", f"{other}.{'0' * 8}", ".files.1"}
