"""How much a person may still write to a folder, as df, quota and lfs tell it.

Sources: df(1), quota(1), lfs-quota(1).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["ROOM", "DiskSpace", "parse_room"]

_PATIENCE: Final = 10  # seconds: quota(1) asks each file server, and one may not answer

ROOM: Final = (
    "LC_ALL=C; export LC_ALL; { "
    'df -Pk -- "$1"; printf "\\0"; '
    f'timeout {_PATIENCE} quota -wp; printf "\\0"; '
    f'timeout {_PATIENCE} lfs quota -q -u "$(id -un)" "$1"; '
    "} 2>/dev/null; :"
)
"""Shell text that prints what :func:`parse_room` reads, of the folder that is its argument."""

_FIELDS: Final = 9  # file system; used, quota, limit, grace of blocks, and of files
_MARKS: Final = "*[]"  # of lfs, and of quota: over the quota, and not quite known


class DiskSpace(NamedTuple):
    """How many bytes may still be written; ``words`` say of what that is the rest."""

    free: int
    words: str


def parse_room(text: str) -> DiskSpace | None:
    """Return the room in a folder: of its disk, or what a quota leaves of it; None where nobody tells.

    Of a quota the hard limit counts: beyond the other one may go for a while.
    """
    disk, quota, lustre = [*text.split("\0"), "", ""][:3]
    fields = disk.splitlines()[-1].split() if disk.strip() else []
    if len(fields) <= 5:
        return None
    rows = [row for line in quota.splitlines() if len(row := line.split()) == _FIELDS and row[0] == fields[0]]
    if len(row := lustre.split()) == _FIELDS:  # a long name stands on a line of its own
        rows.append(row)
    rooms = [DiskSpace(left, "left of your quota there") for row in rows if (left := _left(row)) is not None]
    if fields[3].isdecimal():
        rooms.append(DiskSpace(int(fields[3]) << 10, "free there"))
    return min(rooms, default=None)


def _left(row: list[str]) -> int | None:
    """Return the bytes up to the hard limit; None: there is none, or it is not understood."""
    used, limit = (re.fullmatch(r"\d+", row[place].strip(_MARKS)) for place in (1, 3))
    if used is None or limit is None or not int(limit[0]):
        return None
    return max(0, int(limit[0]) - int(used[0])) << 10
