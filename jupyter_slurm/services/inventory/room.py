"""Room for files on a cluster: free space and quotas of the user's directories, and what jupyter_slurm keeps there."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from jupyter_slurm.domain.storage.disk_space import DISK_SPACE_SCRIPT, FolderQuota, parse_quotas
from jupyter_slurm.errors import SlurmError
from jupyter_slurm.services.inventory.shared_query import SharedQuery
from jupyter_slurm.services.slurm.client import SlurmClient, decode_output, printable
from jupyter_slurm.services.slurm.location import ClusterLocation

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["RoomInventory"]

_CACHE_AGE_S: Final = 300.0  # seconds for which an answer is reused
_IMPATIENT: Final = 3  # newer answers on request, before the limit
_SIZE_TIMEOUT_S: Final = 20  # seconds: a directory with millions of files has no known size
_MAX_REPORT_BYTES: Final = 16384
_IMAGE_FOLDER: Final = "~/.cache/jupyter_slurm/images"

_SIZES = f'for folder do LC_ALL=C timeout -k 1 {_SIZE_TIMEOUT_S} du -skx -- "$folder" 2>/dev/null </dev/null; ' + (
    'printf "\\0"; done'
)
_REPORT = f'timeout -k 1 30 "$@" </dev/null 2>&1 | head -c {_MAX_REPORT_BYTES}'


@dataclass(frozen=True)
class _RoomAnswer:
    requested_at: float
    spaces: tuple[FolderQuota, ...]
    reports: tuple[api.RoomReport, ...]
    kept: tuple[api.RoomKept, ...]


class RoomInventory(SharedQuery[_RoomAnswer]):
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
    source = "The login node"

    def __init__(
        self,
        client: SlurmClient,
        location: ClusterLocation,
        expand_path: Callable[[str], Awaitable[str]],
        clock: Callable[[], float],
    ) -> None:
        super().__init__(_CACHE_AGE_S, impatient=_IMPATIENT, clock=clock)
        self._client, self._location, self._expand_path = client, location, expand_path

    async def to_api(self, *, wait: float, is_newer: bool) -> api.Room:
        """Return the directories in the form of the API; see :meth:`SharedQuery._current_answer`."""
        known, standing = await self._current_answer(wait=wait, is_newer=is_newer)
        return {
            "asked_at": known.requested_at,
            **standing,
            "spaces": [_space_to_api(one) for one in known.spaces],
            "reports": list(known.reports),
            "kept": list(known.kept),
        }

    async def _query_slurm(self, started_at: float) -> _RoomAnswer:
        storage, jobs = self._location.storage, self._location.folder
        shared = await self._expanded(storage.get("shared"))
        images = await self._expanded(self._location.container.get("image_dir", _IMAGE_FOLDER))
        folders = list(dict.fromkeys(filter(None, (self._location.home, shared, jobs, images))))
        asked = self._client.query(["/bin/sh", "-c", DISK_SPACE_SCRIPT, "sh", *folders])
        told, kept, reports = await asyncio.gather(asked, self._kept({"jobs": jobs, "images": images}), self._reports())
        return _RoomAnswer(started_at, tuple(parse_quotas(decode_output(told), folders)), reports, kept)

    async def _expanded(self, path: str | None) -> str:
        """Return a directory of the profile; empty if its variable is not set."""
        try:
            return posixpath.normpath(await self._expand_path(path)) if path else ""
        except SlurmError:
            return ""

    async def _kept(self, folders: dict[str, str]) -> tuple[api.RoomKept, ...]:
        """Return the sizes of the directories of jupyter_slurm."""
        told = await self._client.query(["/bin/sh", "-c", _SIZES, "sh", *folders.values()])
        sizes = [answer.split("\t")[0].strip() for answer in decode_output(told).split("\0")]
        return tuple(
            {"kind": kind, "folder": printable(folder), "used": int(size) << 10 if size.isdecimal() else None}
            for (kind, folder), size in zip(folders.items(), sizes, strict=False)
            if folder
        )

    async def _reports(self) -> tuple[api.RoomReport, ...]:
        """Return the texts of the file and of the command that the profile names."""
        told: list[api.RoomReport] = []
        if path := self._location.storage.get("usage_file"):
            argv = ["head", "-c", str(_MAX_REPORT_BYTES), "--", await self._expanded(path) or path]
            told.append({"name": path, "text": await self._report(argv)})
        if command := self._location.storage.get("usage_command"):
            told.append({"name": " ".join(command), "text": await self._report(command)})
        return tuple(told)

    async def _report(self, argv: list[str]) -> str:
        try:
            return printable(decode_output(await self._client.query(["/bin/sh", "-c", _REPORT, "sh", *argv])))
        except SlurmError as error:
            return error.message


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
