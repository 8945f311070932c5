"""Request of an environment: its checks, and the hash by which equal requests share an environment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from jupyter_slurm.errors import UsageError
from jupyter_slurm.services.jobdir.job_directory import is_key
from jupyter_slurm.services.slurm.client import printable

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["build_part"]

_FILES: Final = {
    "requirements": {"requirements.txt"},
    "uv.lock": {"pyproject.toml", "uv.lock"},
    "conda": {"environment.yml"},
}
_TOOLS: Final = {"requirements": ("uv", "pip"), "uv.lock": ("uv",), "conda": ("micromamba", "mamba", "conda")}


def build_part(requested: api.EnvironmentWanted, folder: str, named: Mapping[str, object]) -> dict[str, Any]:
    """Return ``environment_build`` of job.json.

    Parameters
    ----------
    requested : mapping
        Request of the API.
    folder : str
        Folder of environments on the cluster.
    named : mapping
        Environments of the profile, whose names are taken.

    Raises
    ------
    UsageError
        The request cannot be met.
    """
    if not is_key(requested["key"]):
        raise UsageError(
            f"{requested['key']!r} is not a valid submission key.", hint="Run the command again to get a new key."
        )
    name, kind, tool, files = requested["name"], requested["kind"], requested.get("tool"), requested["files"]
    if name in named:
        raise UsageError(
            f"The profile of the cluster already has an environment {printable(name)}.", hint="Choose another name."
        )
    if set(files) != _FILES[kind]:
        raise UsageError(
            f"An environment of kind {kind} needs {' and '.join(sorted(_FILES[kind]))}.", hint="Update jupyter_slurm."
        )
    if tool and tool not in _TOOLS[kind]:
        raise UsageError(
            f"tool={tool} cannot make an environment from {printable(requested['source'])}.",
            hint=f"Omit tool=, or use {' or '.join(_TOOLS[kind])}.",
        )
    if kind == "conda" and requested.get("python"):
        raise UsageError("python= has no effect for a conda environment.", hint="Write python=3.12 into the file.")
    about: dict[str, Any] = {"kind": kind, "files": dict(files), "python": requested.get("python"), "tool": tool}
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
    part = {**about, "name": name, "hash": digest, "folder": folder, "source": requested["source"]}
    part["replace"] = bool(requested.get("replace"))
    return {field: value for field, value in part.items() if value is not None and value is not False}
