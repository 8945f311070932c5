"""Folders that a session needs: its own, and those that the keywords of its app name."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyter_slurm.errors import SlurmError, UsageError
from jupyter_slurm.services.slurm.client import printable
from jupyter_slurm.services.slurm.location import ClusterLocation
from jupyter_slurm.transport.base import Transport

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["MissingFolder", "folder_paths", "missing_folders", "refuse_missing"]


@dataclass(frozen=True)
class MissingFolder:
    """Folder that the login node does not have.

    Attributes
    ----------
    option : str
        Keyword that names it.
    path : str
        Absolute path.
    is_file : bool
        Whether the path is a file.
    is_certain : bool
        Whether the nodes do not have it either: it is in the home directory, which they share.
    """

    option: str
    path: str
    is_file: bool
    is_certain: bool

    def to_api(self, host: str) -> api.OptionProblem:
        """Return the problem for a form."""
        scope, lack = ("file", "is not a folder") if self.is_file else ("missing", "does not exist")
        text = f"The folder {printable(self.path)} {lack} on {host}."
        return {"option": self.option, "scope": scope, "limit": "", "text": text}


def folder_paths(home: str, work_dir: str, own: str, named: Mapping[str, str]) -> dict[str, str]:
    """Return the absolute paths of the folders of a session by their keywords.

    Parameters
    ----------
    home, work_dir : str
        Home directory, and working directory of the job; empty if it is not known.
    own : str
        Value of ``dir``; empty without one.
    named : mapping
        Folders that the keywords of the app name, by keyword; relative ones are below the own folder.
    """
    base = _absolute(home, work_dir, own or ".")
    paths = {"dir": base} if own else {}
    paths |= {option: _absolute(home, base, path) for option, path in named.items()}
    return {option: path for option, path in paths.items() if posixpath.isabs(path)}


def _absolute(home: str, base: str, path: str) -> str:
    """Return an absolute path, from one that is relative to a folder or begins with ``~/``."""
    path = home + path[1:] if path == "~" or path.startswith("~/") else path
    return posixpath.normpath(posixpath.join(base, path))


async def missing_folders(
    transport: Transport, location: ClusterLocation, paths: Mapping[str, str]
) -> list[MissingFolder]:
    """Return the folders, by keyword and absolute path, that the login node does not have; none if that is unknown."""
    if not paths or location.storage.get("home_on_nodes") is False:
        return []
    try:
        found = await transport.stat_all([each for path in paths.values() for each in (path, f"{path}/.")])
    except SlurmError:
        return []
    home = f"{location.home.rstrip('/')}/"
    return [
        MissingFolder(option, path, path in found, is_certain=path.startswith(home))
        for option, path in paths.items()
        if f"{path}/." not in found
    ]


def refuse_missing(missing: list[MissingFolder], host: str) -> None:
    """Refuse folders that the nodes do not have for certain.

    Raises
    ------
    UsageError
        There is such a folder.
    """
    for one in missing:
        if one.is_certain:
            problem = one.to_api(host)
            raise UsageError(
                f"{one.option}=: {problem['text']}",
                hint="Check the name." if one.is_file else "Check the name, or make the folder first: `mkdir -p`.",
                option=one.option,
            )
