"""Tests of invalid settings: an error of two lines, with the file, the name and the allowed values."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from traitlets.config import Config

from jupyter_slurm.config import load_settings
from jupyter_slurm.errors import ConfigError


def _written(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(folder))
    path = folder / "jupyter_slurm_config.py"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("setting", "value", "allowed"),
    [
        ("poll_shortest", "1.0", "at least 10"),
        ("output_limit", "3", "at least 1024"),
        ("agent_host", "'moon'", "daemon"),
        ("live_output", "'no'", "boolean"),
        ("node_ports", "[20999, 20000]", "First and last port"),
    ],
)
def test_a_value_that_is_not_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, value: str, allowed: str
) -> None:
    path = _written(tmp_path, f"c.Settings.{setting} = {value}\n", monkeypatch)
    with pytest.raises(ConfigError) as caught:
        load_settings()
    assert caught.value.message == f"{path}: c.Settings.{setting} = {value} is not allowed."
    assert allowed in caught.value.hint
    assert "\n" not in caught.value.hint


def test_a_command_says_it_in_two_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _written(tmp_path, "c.Settings.poll_shortest = 1.0\n", monkeypatch)
    done = subprocess.run(
        [sys.executable, "-m", "jupyter_slurm.cli.main", "jobs"], env=dict(os.environ), capture_output=True, text=True
    )
    assert done.returncode == 1
    assert str(path) in done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_an_unknown_name_is_told_once_with_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _written(tmp_path, "c.Settings.pol_shortest = 20.0\nc.Settings.output_limit = 2048\n", monkeypatch)
    assert load_settings().output_limit == 2048
    assert load_settings().poll_shortest == 10.0
    said = capsys.readouterr().err
    expected = f"Warning: {path}: there is no c.Settings.pol_shortest. Did you mean c.Settings.poll_shortest?\n"
    assert said == expected


def test_what_a_front_door_brings_is_checked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _written(tmp_path, "c.Settings.poll_longest = 60.0\n", monkeypatch)
    given = Config({"Settings": {"poll_shortest": 20.0}, "ServerApp": {"port": 1}})
    settings = load_settings(given)
    assert (settings.poll_shortest, settings.poll_longest) == (20.0, 60.0)
    with pytest.raises(ConfigError, match="command line"):
        load_settings(Config({"Settings": {"poll_shortest": 1.0}}))
