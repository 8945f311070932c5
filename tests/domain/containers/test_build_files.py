"""Build files of images, and the packages of a Python."""

from __future__ import annotations

import json
import sys
import sysconfig
from pathlib import Path

import pytest

from jupyter_slurm.client.images.python_packages import installed_packages
from jupyter_slurm.domain.containers.build_files import context_sources, detect_kind
from jupyter_slurm.errors import UsageError
from jupyter_slurm.runner.container.build import of_packages


@pytest.mark.parametrize(
    ("text", "kind", "takes"),
    [
        ("# syntax=docker/dockerfile:1\n\nfrom a:1\nRUN true\n", "dockerfile", False),
        ("ARG V=1\nFROM a:$V\nCOPY --chown=1 . /x\n", "dockerfile", True),
        ("FROM a AS b\nFROM c\nCOPY --chown=1 --from=b /x /y\nADD https://a/b /c\n", "dockerfile", False),
        ("FROM a\nadd x /x\n", "dockerfile", True),
        ("BootStrap: docker\nFrom: a:1\n%post\n    copy x\n", "definition", False),
        ("# mine\nBootstrap: localimage\nFrom: a.sif\n%files\n    a /b\n", "definition", True),
        ("Bootstrap: docker\nFrom: a\n%files from build\n    a /b\n", "definition", False),
    ],
)
def test_what_a_file_is(text: str, kind: str, takes: bool) -> None:
    found = detect_kind("a file", text)
    assert (found, bool(context_sources(found, text))) == (kind, takes)


@pytest.mark.parametrize("text", ["", "#!/bin/sh\ndocker build .\n", "RUN true\nFROM a\n", "fromage: 1\n"])
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="neither a Dockerfile nor a definition file"):
        detect_kind("a file", text)


def _installed(folder: Path, name: str, version: str, *, url: object = None, installer: str = "pip") -> None:
    about = folder / f"{name}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (about / "INSTALLER").write_text(installer + "\n")
    if url is not None:
        (about / "direct_url.json").write_text(json.dumps(url))


def test_packages_of_this_python_are_those_that_others_can_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"purelib": str(tmp_path), "platlib": str(tmp_path)})
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    _installed(tmp_path, "Plain_One", "1.5")
    _installed(tmp_path, "pip", "24")
    _installed(tmp_path, "torch", "2.1.0+cu121")
    _installed(tmp_path, "mine", "0.1", url={"url": "file:///home/me/mine", "dir_info": {"editable": True}})
    vcs = {"vcs": "git", "commit_id": "abc"}
    _installed(tmp_path, "pulled", "1", url={"url": "https://host/x.git", "vcs_info": vcs})
    told, said = installed_packages()
    lines = ["plain-one==1.5", "pulled @ git+https://host/x.git@abc", "torch==2.1.0"]
    assert told == {"python": "{}.{}".format(*sys.version_info[:2]), "pip": lines}
    assert [("mine" in line, "torch 2.1.0+cu121" in line) for line in said] == [(True, False), (False, True)]

    _installed(tmp_path, "numpy", "2.0", installer="conda")
    (tmp_path / "conda-meta").mkdir()
    (tmp_path / "conda-meta/history").write_text("")
    hosts = {
        "ipykernel": "https://repo.anaconda.com/pkgs/main/noarch",
        "libblas": "https://conda.anaconda.org/t/se-cret/conda-forge/linux-64",
        "numpy": "https://me:secret@host.example/conda/t/se-cret/chan/linux-64/",
        "python": "conda-forge",
    }
    for name, channel in hosts.items():
        kept = {"name": name, "version": "2.0", "channel": channel}
        (tmp_path / "conda-meta" / f"{name}-2.0-0.json").write_text(json.dumps(kept))
    told, _ = installed_packages()
    assert told["pip"] == lines
    channels = ["defaults", "conda-forge", "https://host.example/conda/chan"]
    packages = ["ipykernel=2.0", "libblas=2.0", "numpy=2.0", "python=2.0", "jupyterlab"]
    assert told["conda"] == {"channels": channels, "packages": packages}
    files = of_packages(told, "Dockerfile", None)
    assert files["Dockerfile"].startswith("FROM docker.io/continuumio/miniconda3\nCOPY environment.yml /")
    made = {"channels": channels, "dependencies": [*packages, {"pip": lines}]}
    assert json.loads(files["environment.yml"]) == made
    _installed(tmp_path, "jupyter_server", "2")
    assert installed_packages()[0]["conda"]["packages"] == packages[:-1]


def test_a_definition_of_packages_is_one() -> None:
    files = of_packages({"python": "3.12", "pip": ["a==1"]}, "image.def", None)
    assert files["requirements.txt"] == "a==1\n"
    assert "From: python:3.12-slim\n" in files["image.def"]
    assert detect_kind("image.def", files["image.def"]) == "definition"
