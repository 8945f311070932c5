"""Request of an environment: its checks, and the hash by which equal requests share an environment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from jupyter_slurm.documentation import page_url
from jupyter_slurm.errors import UsageError
from jupyter_slurm.runner.environment import cuda
from jupyter_slurm.services.jobdir.job_directory import is_key
from jupyter_slurm.services.slurm.client import printable

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["build_part", "check_cuda"]

_EXAMPLES: Final = {11: "118", 12: "121"}
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


def check_cuda(files: Mapping[str, str], limit: str | None, drivers: Mapping[str, str], cluster: str) -> None:
    """Refuse packages that are built for a newer CUDA than the drivers of the nodes run.

    Parameters
    ----------
    files : mapping
        Files of the request.
    limit : str or None
        Newest CUDA toolkit of the site profile: ``11`` or ``11.8``.
    drivers : mapping
        Known drivers, with the jobs that have found them: used without a limit in the profile.
    cluster : str
        Name of the cluster.

    Raises
    ------
    UsageError
        No known node can run the packages.
    """
    needs = cuda.needed_by(dict(files))
    if needs is None or not (limit or drivers):
        return
    if limit:
        newest, source = int(limit.partition(".")[0]), f"the site profile of {cluster}"
    else:
        driver = max(drivers, key=lambda one: [int(part) for part in one.split(".")])
        newest, source = cuda.limit_of(driver), f"driver {driver}, found by job {printable(drivers[driver])}"
    if needs.major <= newest:
        return
    raise UsageError(
        f"{needs.package} is built for CUDA {needs.major}, but the drivers of {cluster} run CUDA {limit or newest} at "
        f"most ({source}). Nothing was installed.",
        hint=f"Choose a version for CUDA {newest}. For PyTorch add a line such as `--index-url "
        f"https://download.pytorch.org/whl/cu{_EXAMPLES.get(newest, '118')}` to requirements.txt. To install the "
        f"packages all the same, for example to use CPUs only, add `force`: {page_url('how-to/make-environments')}",
        scope="cuda",
    )
