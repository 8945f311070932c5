"""Files that images are made from: what kind they are, and whether they take other files along.

Sources: the reference of Dockerfiles (docs.docker.com/reference/dockerfile), apptainer.org/docs, "Definition Files".
"""

from __future__ import annotations

import re
from typing import Final, Literal

from jupyter_slurm.domain.containers.build_context import of_definition, of_dockerfile
from jupyter_slurm.errors import UsageError

__all__ = ["LARGEST", "REQUIREMENT", "Kind", "files_taken", "kind_of"]

Kind = Literal["dockerfile", "definition"]

LARGEST: Final = 256 * 1024
"""Bytes of a file that says how an image is made; it travels with the job's record."""

REQUIREMENT: Final = r"[A-Za-z0-9][^\u0000-\u001f\u007f]{0,999}"
"""A line of requirements: a package, and never an option of pip."""

_BOOTSTRAP = re.compile(r"bootstrap\s*:", re.IGNORECASE)
_FROM = re.compile(r"(?:from|arg)\s+\S", re.IGNORECASE)


def kind_of(name: str, text: str) -> Kind:
    """Tell what a file is by its first line that says something.

    Raises
    ------
    UsageError
        No image is made from it.
    """
    for line in text.lstrip("\ufeff").splitlines():
        said = line.strip()
        if _BOOTSTRAP.match(said):
            return "definition"
        if _FROM.match(said):
            return "dockerfile"
        if said and not said.startswith("#"):
            break
    raise UsageError(
        f"{name} is neither a Dockerfile nor a definition file.",
        hint="A Dockerfile begins with FROM, a definition file of Apptainer or Singularity with Bootstrap: and From:.",
    )


def files_taken(kind: Kind, text: str) -> list[str]:
    """Return what it takes of the folder that it lies in: paths and patterns; ``.`` is all of it."""
    return of_dockerfile(text) if kind == "dockerfile" else of_definition(text)
