"""Space that a user may still fill in a directory, from df, quota and lfs.

Sources: df(1), quota(1), lfs-quota(1).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["DISK_SPACE_SCRIPT", "DiskSpace", "parse_room"]

_QUOTA_TIMEOUT_S: Final = 10  # seconds: quota(1) queries each file server, and a server may not answer

DISK_SPACE_SCRIPT: Final = (
    "LC_ALL=C; export LC_ALL; { "
    'df -Pk -- "$1"; printf "\\0"; '
    f'timeout {_QUOTA_TIMEOUT_S} quota -wp; printf "\\0"; '
    f'timeout {_QUOTA_TIMEOUT_S} lfs quota -q -u "$(id -un)" "$1"; '
    "} 2>/dev/null; :"
)
"""Shell text that prints the input of :func:`parse_room` for the directory in its argument."""

_QUOTA_FIELDS: Final = 9  # file system; then used, quota, limit, grace for blocks, and the same for files
_MARKS: Final = "*[]"  # of lfs and of quota: over the quota, or not exactly known


class DiskSpace(NamedTuple):
    """Bytes that may still be written; ``words`` name their origin: a disk or a quota."""

    free: int
    description: str


def parse_room(text: str) -> DiskSpace | None:
    """Return the space in a directory, by its disk or a quota; None if unknown.

    For a quota the hard limit counts, because the soft limit may be exceeded for a while.
    """
    disk, quota, lustre = [*text.split("\0"), "", ""][:3]
    fields = disk.splitlines()[-1].split() if disk.strip() else []
    if len(fields) <= 5:
        return None
    rows = [row for line in quota.splitlines() if len(row := line.split()) == _QUOTA_FIELDS and row[0] == fields[0]]
    if len(row := lustre.split()) == _QUOTA_FIELDS:  # a long name stands on its own line
        rows.append(row)
    rooms = [DiskSpace(left, "left of your quota") for row in rows if (left := _free_bytes(row)) is not None]
    if fields[3].isdecimal():
        rooms.append(DiskSpace(int(fields[3]) << 10, "free"))
    return min(rooms, default=None)


def _free_bytes(row: list[str]) -> int | None:
    """Return the bytes up to the hard limit; None if no limit is set or it cannot be read."""
    used, limit = (re.fullmatch(r"\d+", row[place].strip(_MARKS)) for place in (1, 3))
    if used is None or limit is None or not int(limit[0]):
        return None
    return max(0, int(limit[0]) - int(used[0])) << 10
