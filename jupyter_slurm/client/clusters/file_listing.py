"""Listing of a directory of the cluster."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING, Any

from jupyter_slurm.client.clusters.cluster import Cluster
from jupyter_slurm.client.render.present_size import format_size
from jupyter_slurm.client.render.table import Table
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.errors import FileError

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["FileListing", "path_on", "request_listing"]

_BREAKS = re.compile(r"[\t\n]")


class FileListing:
    """Entries of a directory, by name.

    Attributes
    ----------
    path : str
        The absolute path on the cluster.
    entries : list of dict
        The API's entries: name, type, is_link, size in bytes, modified in seconds since the epoch.
    is_whole : bool
        Whether the directory has no more entries.
    """

    def __init__(self, data: api.FileList, *, has_hidden: bool) -> None:
        self.path, self.is_whole = data["path"], data["is_whole"]
        entries = (entry for entry in data["entries"] if has_hidden or not entry["name"].startswith("."))
        self.entries = sorted(entries, key=lambda entry: entry["name"])

    @property
    def table(self) -> Table:
        """Return a row for each entry."""
        return Table(["NAME", "SIZE", "MODIFIED"], [_row(entry) for entry in self.entries])

    def __repr__(self) -> str:
        shown = repr(self.table) if self.entries else f"{_escaped(self.path)} has no entries."
        return shown if self.is_whole else f"{shown}\nThe directory has more entries."

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    def _repr_html_(self) -> str | None:
        return self.table._repr_html_() if self.entries and self.is_whole else None


def path_on(cluster: Cluster, path: str) -> str:
    """Return the path for the API: on this computer, relative paths start in the working directory.

    Variables at the beginning are those of the cluster.
    """
    if cluster.is_remote or path.startswith("$"):
        return path
    whole = os.path.abspath(os.path.expanduser(path))
    return whole + "/" if path.endswith("/") and whole != "/" else whole


def request_listing(cluster: Cluster, path: str = ".", *, has_hidden: bool = False) -> FileListing:
    """List a directory, or one file.

    Parameters
    ----------
    cluster : Cluster
        The cluster.
    path : str
        Absolute, or relative: to the home directory over SSH, to the working directory on this computer.
    has_hidden : bool
        Whether names that begin with a dot are listed.

    Raises
    ------
    FileError
        The directory does not exist or cannot be read.
    """
    asked = {"path": path_on(cluster, path)}
    try:
        data: api.FileList = cluster.client.post(cluster.path("files", "list"), json=asked)
    except FileError as error:
        if error.details.get("reason") != "ENOTDIR":
            raise
        entry: api.FileEntry = cluster.client.post(cluster.path("files", "entry"), json=asked)
        return FileListing({"path": asked["path"], "entries": [entry], "is_whole": True}, has_hidden=True)
    return FileListing(data, has_hidden=has_hidden)


def _row(entry: api.FileEntry) -> list[str]:
    ending = "/" if entry["type"] == "directory" else "@" if entry["is_link"] else ""
    size = format_size(entry["size"]) if entry["type"] == "file" else ""
    return [_escaped(entry["name"]) + ending, size, _time(entry["modified"])]


def _time(seconds: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        return "unknown"


def _escaped(name: str) -> str:
    """Return a name on one line, with visible escapes for controls and bytes that are not UTF-8."""
    return _BREAKS.sub(lambda found: ascii(found[0])[1:-1], printable(name))
