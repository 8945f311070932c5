"""Room for files on a cluster: free space and quotas of the user's directories, and what jupyter_slurm keeps there."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from jupyter_slurm.domain.clock_text import clock_text
from jupyter_slurm.domain.storage.disk_space import DISK_SPACE_SCRIPT, FolderQuota, find_shortage, parse_quotas
from jupyter_slurm.errors import SlurmError
from jupyter_slurm.services.inventory.shared_query import SharedQuery
from jupyter_slurm.services.slurm.client import SlurmClient, decode_output, printable
from jupyter_slurm.services.slurm.location import ClusterLocation

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["RoomInventory"]

_CACHE_AGE_S: Final = 300.0  # seconds for which an answer is reused
_IMPATIENT: Final = 3  # newer answers on request, before the limit
_LITTLE_SPACE_BYTES: Final = 1e9
_MAX_REPORT_BYTES: Final = 16384
_IMAGE_FOLDER: Final = "~/.cache/jupyter_slurm/images"

# A directory with millions of files has no known size.
_SIZES: Final = """
for folder do LC_ALL=C timeout -k 1 20 du -skx -- "$folder" </dev/null 2>/dev/null; printf '\\0'; done
"""
_REPORT: Final = f'timeout -k 1 30 "$@" </dev/null 2>&1 | head -c {_MAX_REPORT_BYTES}'

_ExpandPath = Callable[[str], Awaitable[str]]

_T = TypeVar("_T")


@dataclass(frozen=True)
class _Spaces:
    requested_at: float
    found: tuple[FolderQuota, ...]


@dataclass(frozen=True)
class _Details:
    reports: list[api.RoomReport]
    kept: list[api.RoomKept]


class _DirectoryQuery(SharedQuery[_T]):
    """Query about the user's directories, answered by the login node."""

    source = "The login node"

    def __init__(
        self, client: SlurmClient, location: ClusterLocation, expand_path: _ExpandPath, clock: Callable[[], float]
    ) -> None:
        super().__init__(_CACHE_AGE_S, impatient=_IMPATIENT, clock=clock)
        self._client, self._location, self._expand_path = client, location, expand_path

    async def _image_folder(self) -> str:
        return await self._expanded(self._location.container.get("image_dir", _IMAGE_FOLDER))

    async def _expanded(self, path: str) -> str:
        """Return a directory of the profile; empty if its variable is not set."""
        try:
            return posixpath.normpath(await self._expand_path(path)) if path else ""
        except SlurmError:
            return ""


class RoomInventory(_DirectoryQuery[_Spaces]):
    """Cache what df and the tools for quotas say about the user's directories. Slurm is not asked.

    Parameters
    ----------
    client : SlurmClient
        Runs the tools where the commands of Slurm run.
    location : ClusterLocation
        Home, job directories, and the directories of the profile.
    expand_path : callable
        Inserts the home and variables of the login node into a path.
    clock : callable
        Seconds since the epoch.
    """

    subject = "free space and quotas"

    def __init__(
        self, client: SlurmClient, location: ClusterLocation, expand_path: _ExpandPath, clock: Callable[[], float]
    ) -> None:
        super().__init__(client, location, expand_path, clock)
        self._details = _RoomDetails(client, location, expand_path, clock)

    async def to_api(self, *, wait: float, is_newer: bool) -> api.Room:
        """Return the directories in the form of the API; see :meth:`SharedQuery._current_answer`."""
        (known, standing), details = await asyncio.gather(
            self._current_answer(wait=wait, is_newer=is_newer), self._details.current(wait=wait, is_newer=is_newer)
        )
        spaces = [_space_to_api(one) for one in known.found]
        return {
            "asked_at": known.requested_at,
            **standing,
            "spaces": spaces,
            "reports": details.reports,
            "kept": details.kept,
        }

    def refresh(self) -> None:
        """Ask about free space and quotas in the background, if the last answer is old."""
        self._refresh(is_newer=False)

    def shortage_notice(self) -> str:
        """Return a warning if little space was left at the last query, else an empty text."""
        found = find_shortage(self._answer.found, _LITTLE_SPACE_BYTES) if self._answer else None
        if found is None or self._answer is None:
            return ""
        folder, room = found
        since = clock_text(self._answer.requested_at, self._clock())
        return (
            f"Little space: only {room.free / 1e6:.0f} MB {room.description} in {printable(folder)} (checked {since}). "
            "Without space, jobs fail and their output is lost. `%slurm room` shows all disks and quotas."
        )

    async def stop(self) -> None:
        """Stop."""
        await super().stop()
        await self._details.stop()

    async def _query_slurm(self, started_at: float) -> _Spaces:
        location = self._location
        shared = await self._expanded(location.storage.get("shared", ""))
        paths = [location.home, shared, location.folder, await self._image_folder()]
        folders = list(dict.fromkeys(filter(None, paths)))
        told = await self._client.query(["/bin/sh", "-c", DISK_SPACE_SCRIPT, "sh", *folders])
        return _Spaces(started_at, tuple(parse_quotas(decode_output(told), folders)))


class _RoomDetails(_DirectoryQuery[_Details]):
    """Cache the reports of the site, and the sizes of the directories of jupyter_slurm: only users ask for them."""

    subject = "the sizes of directories"

    async def current(self, *, wait: float, is_newer: bool) -> _Details:
        """Return the last answer; see :meth:`SharedQuery._current_answer`."""
        return (await self._current_answer(wait=wait, is_newer=is_newer))[0]

    async def _query_slurm(self, started_at: float) -> _Details:
        storage = self._location.storage
        kept = await self._kept({"jobs": self._location.folder, "images": await self._image_folder()})
        reports: list[api.RoomReport] = []
        if path := storage.get("usage_file"):
            argv = ["head", "-c", str(_MAX_REPORT_BYTES), "--", await self._expanded(path) or path]
            reports.append({"name": path, "text": await self._report(argv)})
        if command := storage.get("usage_command"):
            reports.append({"name": " ".join(command), "text": await self._report(command)})
        return _Details(reports, kept)

    async def _kept(self, folders: dict[str, str]) -> list[api.RoomKept]:
        told = await self._client.query(["/bin/sh", "-c", _SIZES, "sh", *folders.values()])
        sizes = [answer.split("\t")[0].strip() for answer in decode_output(told).split("\0")]
        return [
            {"kind": kind, "folder": printable(folder), "used": int(size) << 10 if _is_size(size) else None}
            for (kind, folder), size in zip(folders.items(), sizes, strict=False)
            if folder
        ]

    async def _report(self, argv: Sequence[str]) -> str:
        try:
            return printable(decode_output(await self._client.query(["/bin/sh", "-c", _REPORT, "sh", *argv])))
        except SlurmError as error:
            return error.message


def _is_size(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 18


def _space_to_api(one: FolderQuota) -> api.RoomSpace:
    quota = one.quota
    return {
        "folder": printable(one.folder) or None,
        "file_system": printable(quota.file_system),
        "tool": one.tool,
        "owner": printable(quota.owner),
        "used": quota.used,
        "limit": quota.limit,
        "free": quota.free,
        "files": quota.files,
        "files_limit": quota.files_limit,
    }
