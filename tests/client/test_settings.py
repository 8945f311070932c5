"""Tests of invalid settings: an error of two lines, with the file, the name and the allowed values."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from traitlets.config import Config

from jupyter_slurm.config import Settings, load_settings
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
    path = _written(tmp_path, f"c.JupyterSlurm.{setting} = {value}\n", monkeypatch)
    with pytest.raises(ConfigError) as caught:
        load_settings()
    assert caught.value.message == f"{path}: c.JupyterSlurm.{setting} = {value} is not allowed."
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
    text = "c.JupyterSlurm.pol_shortest = 20.0\nc.JupyterSlurm.output_limit = 2048\n"
    path = _written(tmp_path, text, monkeypatch)
    assert load_settings().output_limit == 2048
    assert load_settings().poll_shortest == 10.0
    said = capsys.readouterr().err
    expected = (
        f"Warning: {path}: there is no setting c.JupyterSlurm.pol_shortest. "
        "Did you mean c.JupyterSlurm.poll_shortest?\n"
    )
    assert said == expected


def test_what_a_front_door_brings_is_checked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _written(tmp_path, "c.Settings.poll_longest = 60.0\n", monkeypatch)
    given = Config({"Settings": {"poll_shortest": 20.0}, "ServerApp": {"port": 1}})
    settings = load_settings(given)
    assert (settings.poll_shortest, settings.poll_longest) == (20.0, 60.0)
    with pytest.raises(ConfigError, match="command line"):
        load_settings(Config({"Settings": {"poll_shortest": 1.0}}))


def test_the_former_name_of_the_section_is_still_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "c.Settings.poll_shortest = 20.0\nc.Settings.output_limit = 2048\nc.JupyterSlurm.poll_shortest = 30.0\n"
    path = _written(tmp_path, text, monkeypatch)
    settings = load_settings()
    assert (settings.poll_shortest, settings.output_limit) == (30.0, 2048)
    given = Config({"Settings": {"poll_shortest": 40.0}})
    assert load_settings(given).poll_shortest == 40.0, "a front end overrides the files under either name"
    path.write_text("c.Settings.output_limit = 3\n")
    with pytest.raises(ConfigError, match=r"c\.Settings\.output_limit = 3 is not allowed"):
        load_settings()


def _config(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "jupyter_slurm.cli.main", "config", *words]
    return subprocess.run(argv, env=dict(os.environ), capture_output=True, text=True, check=False, timeout=60)


def test_a_command_prints_all_settings_with_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _written(tmp_path, "c.JupyterSlurm.poll_shortest = 30.0\n", monkeypatch)
    (tmp_path / "jupyter_slurm_config.json").write_text(json.dumps({"Settings": {"cluster": "far"}}))
    done = _config("--json")
    found = {one["name"]: one for one in json.loads(done.stdout)}
    assert set(found) == set(Settings.class_traits(config=True))
    assert all(one["help"] and one["kind"] for one in found.values())
    assert found["poll_shortest"] | {"help": "", "kind": ""} == {
        "name": "poll_shortest",
        "help": "",
        "kind": "",
        "default": 10.0,
        "value": 30.0,
        "source": str(path),
    }
    assert (found["cluster"]["value"], found["cluster"]["source"]) == ("far", str(path.with_suffix(".json")))
    assert found["on_interrupt"]["source"] is None
    shown = _config("poll_shortest").stdout
    assert "c.JupyterSlurm.poll_shortest = 30.0\n" in shown
    assert "Allowed: a float, at least 10. Default: 10.0." in shown
    assert f"Set in {path}." in shown
    assert "on_interrupt" not in shown
    assert [line for line in _config("--changed").stdout.splitlines() if line.startswith("c.")] == [
        "c.JupyterSlurm.cluster = 'far'",
        "c.JupyterSlurm.poll_shortest = 30.0",
    ]
    wrong = _config("pol_shortest")
    assert wrong.returncode == 1
    assert "Did you mean poll_shortest?" in wrong.stderr
