"""Compatibility of versions: the agents that a client can use, and those that it may replace."""

from __future__ import annotations

from collections.abc import Mapping

from packaging.version import InvalidVersion, Version

from jupyter_slurm import _version
from jupyter_slurm.agent.hosting.discovery import API_MAJOR
from jupyter_slurm.errors import AgentRefused

__all__ = ["check_version", "is_older"]


def check_version(info: Mapping[str, object]) -> None:
    """Raise AgentRefused unless the agent has this package's major version of the API."""
    api = info.get("api")
    if not isinstance(api, dict) or api.get("major") != API_MAJOR:
        raise AgentRefused(
            f"The agent speaks another version of the API ({api}).", hint="Stop it with the version that started it."
        )


def is_older(version: str) -> bool:
    """Return whether an agent of this version is older than this package."""
    try:
        return Version(version) < Version(_version.__version__)
    except InvalidVersion:
        return False
