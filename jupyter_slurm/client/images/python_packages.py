"""Packages of this Python, in a form that another one can install: by pip, or by conda in a conda environment.

Sources: PEP 610 (direct_url.json), PEP 627 (INSTALLER), the files of conda-meta.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
import sysconfig
from collections.abc import Iterator, Set
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from jupyter_slurm.domain.containers.build_files import REQUIREMENT

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["installed_packages"]

_BASE_PACKAGES = frozenset({"pip", "setuptools", "wheel", "distribute"})  # part of every base
_JUPYTER_PACKAGES = frozenset({"jupyterlab", "notebook", "jupyter-server", "nbclassic"})
_MAX_NAMED_PACKAGES = 8


def installed_packages(
    place: str = "image", only: Set[str] | None = None
) -> tuple[api.ImageWantedEnvironment, list[str]]:
    """Return the packages of this Python as an API object, and the packages that cannot be installed elsewhere.

    Parameters
    ----------
    place : str
        What the packages are for, as the notes call it.
    only : set of str, optional
        Names of the packages to return, all from PyPI.
    """
    pip, left, others = list[str](), list[str](), list[str]()
    conda = _conda_packages(Path(sys.prefix)) if only is None else None
    for name, version, told, installer in sorted(_distributions() if only is None else _distributions(sys.path)):
        if only is not None:
            if name not in only:
                continue
            told = "" if installer == "conda" else told  # conda notes the folder of its own build
        if name in _BASE_PACKAGES or (conda and installer == "conda"):
            continue
        line, is_left = _line(name, version, told)
        if is_left or not re.fullmatch(REQUIREMENT, line):
            left.append(name)
            continue
        if "+" in version and not told:
            others.append(f"{name} {version}")
        pip.append(line)
    said = []
    if left:
        said.append(f"Not in the {place}, because they are in folders of this computer: {_listed(left)}.")
    if others:
        said.append(f"From another index, and in the {place} as on PyPI: {_listed(others)}.")
    if conda and not _JUPYTER_PACKAGES & {
        re.split("[= ]", line)[0].replace("_", "-") for line in (*conda["packages"], *pip)
    }:
        conda["packages"].append("jupyterlab")  # needed by sessions; the environment of a kernel may lack it
    own: api.ImageWantedEnvironment = {"python": "{}.{}".format(*sys.version_info[:2]), "pip": pip}
    if conda:
        own["conda"] = {"channels": conda["channels"], "packages": conda["packages"]}
    return own, said


def _listed(names: list[str]) -> str:
    more = len(names) - _MAX_NAMED_PACKAGES
    return ", ".join(names[:_MAX_NAMED_PACKAGES]) + (f" and {more} more" if more > 0 else "")


def _distributions(folders: list[str] | None = None) -> Iterator[tuple[str, str, str, str]]:
    """Return name, version, direct_url.json and installer of each package, once; by default without the system's."""
    paths = sysconfig.get_paths()
    seen = set[str]()
    path = folders or list(dict.fromkeys([paths["purelib"], paths["platlib"]]))
    for found in importlib.metadata.distributions(path=path):
        name = re.sub(r"[-_.]+", "-", found.metadata["Name"] or "").lower()
        if name and name not in seen:
            seen.add(name)
            told, installer = (found.read_text(file) or "" for file in ("direct_url.json", "INSTALLER"))
            yield name, found.version, told, installer.strip()


def _line(name: str, version: str, text: str) -> tuple[str, bool]:
    """Return the requirements line of a package, and whether it cannot be installed elsewhere."""
    try:
        url = json.loads(text) if text else {}
        place = str(url.get("url", ""))
        if vcs := url.get("vcs_info"):
            return f"{name} @ {vcs['vcs']}+{place}@{vcs['commit_id']}", place.startswith("file:")
        if url:
            return f"{name} @ {place}", not place.startswith("https://")
    except (ValueError, TypeError, KeyError, AttributeError):
        return name, True
    return f"{name}=={version.partition('+')[0]}", False


def _conda_packages(prefix: Path) -> dict[str, list[str]] | None:
    """Return channels and packages of a conda environment; None for another environment."""
    channels, packages = list[str](), dict[str, str]()
    for path in sorted((prefix / "conda-meta").glob("*.json")):
        try:
            told = json.loads(path.read_text("utf-8"))
            name = _channel(str(told.get("channel", "")))
            packages[str(told["name"])] = f"{told['name']}={told['version']}"
        except (OSError, ValueError, KeyError, AttributeError):
            continue
        if name and name not in channels:
            channels.append(name)
    if not packages:
        return None
    kept = [line for line in packages.values() if re.fullmatch(REQUIREMENT, line)]
    return {"channels": [name for name in channels if re.fullmatch(REQUIREMENT, name)], "packages": kept}


def _channel(url: str) -> str:
    """Return the name of a channel for environment.yml: its name, or its address without credentials."""
    parts = urlsplit(url.rstrip("/"))
    path = re.sub(r"/(?:noarch|(?:linux|osx|win)-\w+)$", "", re.sub(r"/t/[^/]+", "", parts.path, count=1))
    if parts.hostname in (None, "conda.anaconda.org"):
        return path.lstrip("/")
    if parts.hostname == "repo.anaconda.com":
        return "defaults"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{path}"
