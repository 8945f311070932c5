"""Tests of the script that runs the entry point of an image, with the configurations that runtimes print or keep."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.runner.container.entry_point import script, write


def _run(path: Path, text: str, *args: str) -> tuple[int, str]:
    write(str(path), text)
    assert path.stat().st_mode & 0o777 == 0o700
    done = subprocess.run([path, *args], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("configuration", "args", "said"),
    [
        ({"Entrypoint": ["printf", "%s|"], "Cmd": ["a b", "$HOME", "it's"]}, (), "a b|$HOME|it's|"),
        ({"Entrypoint": ["printf", "%s|"], "Cmd": ["a b"]}, ("c", "`d`"), "c|`d`|"),
        ({"Entrypoint": None, "Cmd": ["echo", "of CMD"]}, (), "of CMD\n"),
        ({"Cmd": ["echo", "of CMD"]}, ("echo", "mine"), "mine\n"),
        ({"Entrypoint": ["echo"]}, (), "\n"),
        ({}, ("echo", "mine"), "mine\n"),
    ],
)
def test_arguments_replace_those_of_the_image(
    tmp_path: Path, configuration: dict[str, Any], args: tuple[str, ...], said: str
) -> None:
    text = script("docker", "me/train:1", lambda *_: (0, json.dumps(configuration), ""))
    assert _run(tmp_path / "entrypoint", text, *args) == (0, said)
    (tmp_path / "ch").mkdir()
    (tmp_path / "ch" / "config.pulled.json").write_text(json.dumps({"config": configuration}))
    assert script("charliecloud", str(tmp_path), lambda *_: (1, "", "")) == text


@pytest.mark.parametrize("answer", ["", "[]", "null", '{"Entrypoint": "sh -c true"}', '{"config": 1}'])
def test_an_image_without_an_entry_point_says_so(tmp_path: Path, answer: str) -> None:
    text = script("podman", "me/train:1", lambda *_: (0, answer, ""))
    code, said = _run(tmp_path / "entrypoint", text)
    assert (code, said.startswith("container: The image has no entry point.")) == (125, True)


def test_apptainer_has_a_runscript(tmp_path: Path) -> None:
    assert script("apptainer", "/images/lolcow.sif", lambda *_: (1, "", "")).endswith('runscript "$@"\n')
    assert "no entry point" in script("apptainer", str(tmp_path), lambda *_: (1, "", ""))
