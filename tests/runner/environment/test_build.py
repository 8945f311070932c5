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
