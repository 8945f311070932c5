"""Files from which images are built: their kinds, and the other files that they use.

Sources: the reference of Dockerfiles (docs.docker.com/reference/dockerfile), apptainer.org/docs, "Definition Files".
"""

from __future__ import annotations

import re
from typing import Final, Literal

from jupyter_slurm.domain.containers.build_context import definition_sources, dockerfile_sources
from jupyter_slurm.errors import UsageError

__all__ = ["MAX_BUILD_FILE_BYTES", "REQUIREMENT", "Kind", "context_sources", "detect_kind"]

Kind = Literal["dockerfile", "definition"]

MAX_BUILD_FILE_BYTES: Final = 256 * 1024
"""Bytes of the largest build file, which is sent with the job's record."""

REQUIREMENT: Final = r"[A-Za-z0-9][^\u0000-\u001f\u007f]{0,999}"
"""A line of a requirements file: a package, never an option of pip."""

_BOOTSTRAP = re.compile(r"bootstrap\s*:", re.IGNORECASE)
_FROM = re.compile(r"(?:from|arg)\s+\S", re.IGNORECASE)


def detect_kind(name: str, text: str) -> Kind:
    """Return the kind of a build file, by its first significant line.

    Raises
    ------
    UsageError
        No image can be built from the file.
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
        hint="Begin a Dockerfile with FROM, and a definition file (Apptainer, Singularity) with Bootstrap: and From:.",
    )


def context_sources(kind: Kind, text: str) -> list[str]:
    """Return the paths and patterns that a build file uses from its folder; ``.`` is the whole folder."""
    return dockerfile_sources(text) if kind == "dockerfile" else definition_sources(text)
