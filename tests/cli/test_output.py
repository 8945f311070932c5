"""Tests of the output of commands: readers that have gone, and terminals that cannot show all characters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("words", ["--help", "--version", "jobs --help", "config"])
def test_a_reader_that_has_gone_is_an_error_without_words(words: str) -> None:
    """Check output that is smaller than a buffer: it is written at the end."""
    reading, writing = os.pipe()
    os.close(reading)
    argv = [sys.executable, "-P", "-m", "jupyter_slurm.cli.main", *words.split()]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    try:
        done = subprocess.run(argv, env=env, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_without_standard_output_a_command_works() -> None:
    argv = ["sh", "-c", 'exec "$0" "$@" >&-', sys.executable, "-P", "-m", "jupyter_slurm.cli.main", "config"]
    done = subprocess.run(argv, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_terminal_that_is_not_utf8_shows_escapes(tmp_path: Path) -> None:
    (tmp_path / "jupyter_slurm_config.json").write_text(json.dumps({"Settings": {"job_root": "/tmp/é"}}))
    env = {**os.environ, "JUPYTER_CONFIG_DIR": str(tmp_path), "PYTHONIOENCODING": "ascii"}
    argv = [sys.executable, "-P", "-m", "jupyter_slurm.cli.main", "config"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert r"/tmp/\xe9" in done.stdout
