"""Room for files on a cluster: free space and quotas, for a notebook and a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyter_slurm.client.clusters.cluster import Cluster
from jupyter_slurm.client.render.present_size import format_size
from jupyter_slurm.client.render.present_time import answer_age
from jupyter_slurm.client.render.table import Table, escape
from jupyter_slurm.client.render.terminal import printable

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["Room", "request_room"]

_KEPT = {
    "jobs": ("Job directories", "`jupyter slurm clean` removes those of finished jobs."),
    "images": ("Container images", "`%slurm image remove NAME` removes one."),
}


class Room:
    """Free space and quotas of the user's directories on a cluster.

    Attributes
    ----------
    data : dict
        The API's answer, with sizes in bytes.
    unknown_since : float or None
        Time since which the cluster does not answer, in seconds since the epoch; None if it answers.
    """

    def __init__(self, data: api.Room) -> None:
        self.data = data
        self.unknown_since = data["unknown_since"]

    @property
    def table(self) -> Table:
        """Return a row for each disk and each quota."""
        return Table(["FOLDER", "USED", "LIMIT", "FREE", "FILES", "SOURCE"], [_row(one) for one in self.data["spaces"]])

    @property
    def notes(self) -> list[str]:
        """Return the time of the answer, and the sizes of the directories of jupyter_slurm, a sentence or two each."""
        said = [answer_age(self.data["asked_at"], self.unknown_since, self.data["said"])]
        for one in self.data["kept"]:
            if one["used"] and one["kind"] in _KEPT:
                what, todo = _KEPT[one["kind"]]
                said.append(f"{what} in {one['folder']}: {format_size(one['used'])}. {todo}")
        return said

    def __repr__(self) -> str:
        shown = repr(self.table) if self.data["spaces"] else "The login node shows no free space."
        reports = [f"{printable(one['name'])}:\n{printable(one['text'])}".rstrip() for one in self.data["reports"]]
        return "\n\n".join([shown, *reports, "\n".join(map(printable, self.notes))])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    def _repr_html_(self) -> str:
        shown = self.table._repr_html_() if self.data["spaces"] else "<p>The login node shows no free space.</p>"
        reports = [f"<p>{escape(one['name'])}:</p><pre>{escape(one['text'])}</pre>" for one in self.data["reports"]]
        return "".join([shown, *reports, *(f"<p>{escape(note)}</p>" for note in self.notes)])


def request_room(cluster: Cluster, *, newer: bool = False) -> Room:
    """Request the free space and the quotas: at most one query in five minutes for all clients.

    Parameters
    ----------
    cluster : Cluster
        The cluster.
    newer : bool
        Whether to query now even if the last answer is newer. In a loop this works only a few times.

    Raises
    ------
    SlurmError
        The cluster does not answer, and no earlier answer exists.
    """
    asked = {"newer": "true" if newer else "false"}
    return Room(cluster.client.get(cluster.path("room"), params=asked))


def _row(one: api.RoomSpace) -> list[Any]:
    sizes = [format_size(size) if (size := one[name]) is not None else "" for name in ("used", "limit", "free")]
    files = "" if one["files"] is None else f"{one['files']}"
    files += f" of {one['files_limit']}" if files and one["files_limit"] is not None else ""
    return [one["folder"] or one["file_system"], *sizes, files, _source(one)]


def _source(one: api.RoomSpace) -> str:
    if not one["owner"]:
        return "disk, shared by all users"
    return f"{one['tool']} quota of {one['owner']}".removeprefix("quota ")
