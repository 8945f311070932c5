"""Parsers of df and of the tools that show quotas. Each ignores what has another form, because a site may wrap a tool.

Sources: df(1) of POSIX; quota(1) of Linux quota-tools; lfs-quota(1) of Lustre; xfs_quota(8) and its ``quota.c`` in
xfsprogs; ``beegfs-ctl --getquota --help`` and ``ModeGetQuotaInfo.cpp`` of BeeGFS 7; the ``mmlsquota`` command in the
Command and Programming Reference of IBM Storage Scale.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote

__all__ = ["Quota", "parse_beegfs", "parse_df", "parse_gpfs", "parse_lustre", "parse_quota", "parse_xfs"]

_MAX_QUOTAS: Final = 100  # of one answer
_MAX_LINE: Final = 2000  # characters
_MARKS: Final = "*[]"  # of lfs and of quota: over the quota, or not exactly known
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_DF: Final = re.compile(r"\s([0-9]{1,18})\s+([0-9]{1,18}|-)\s+([0-9]{1,18}|-)\s+(?:[0-9]{1,4}%|-)\s+(/.*)$")
_OWNER: Final = re.compile(r"Disk quotas for (user|group|project) (.{1,200}) \([a-z]+ [0-9]+\):")
_GRACE: Final = re.compile(r"\[[^\[\]]{0,30}\]")  # of xfs_quota: [--------], [6 days]
_GPFS_OWNERS: Final = {"USR": "user", "GRP": "group", "FILESET": "fileset"}


class Quota(NamedTuple):
    """Space in a file system: of a quota, or of the disk. Sizes are in bytes; None is unknown, or no limit.

    Attributes
    ----------
    file_system : str
        As the tool names it: a device, ``SERVER:/EXPORT``, a mount point; empty if it names none.
    owner : str
        ``user ana``, ``group lab``, ``project 1001``, ``user ana in fileset home``; empty: the disk, shared by all.
    used, limit, free : int or None
        Of a quota, the limit is the hard one if there is one: the soft one may be exceeded for a while.
    files, files_limit : int or None
        Number of files (inodes).
    """

    file_system: str
    owner: str
    used: int | None
    limit: int | None
    free: int | None
    files: int | None = None
    files_limit: int | None = None


def parse_df(blocks: str, inodes: str = "") -> Quota | None:
    """Return the disk of a directory, from ``df -Pk`` and ``df -Pi``; None if df does not show it."""
    if (found := _df_row(blocks)) is None:
        return None
    name, total, used, free = found
    counted = _df_row(inodes)
    files = (counted[2], counted[1] or None) if counted is not None and counted[0] == name and counted[1] else ()
    return Quota(name, "", _bytes(used), _bytes(total), _bytes(free), *files)


def _df_row(text: str) -> tuple[str, int | None, int | None, int | None] | None:
    lines = _lines(text)
    found = _DF.search(lines[-1]) if lines else None
    if found is None:
        return None
    total, used, free = (_number(found[place]) for place in (1, 2, 3))
    return lines[-1][: found.start()].strip(), total, used, free


def parse_quota(text: str) -> list[Quota]:
    """Return the quotas that ``quota -wp`` shows: a header for each owner, a line for each file system."""
    found: list[Quota] = []
    owner = "user"
    for line in _lines(text):
        if (heading := _OWNER.match(line)) is not None:
            owner = f"{heading[1]} {heading[2]}"
        elif len(words := line.rsplit(None, 8)) == 9 and (made := _from_columns(words[0].strip(), owner, words[1:])):
            found.append(made)
    return found[:_MAX_QUOTAS]


def parse_lustre(text: str, owner: str) -> list[Quota]:
    """Return the quota that ``lfs quota -q`` shows; a long name stands on its own line, remarks follow the numbers."""
    words = text[:_MAX_LINE].split()
    made = _from_columns(words[0], owner, words[1:9]) if len(words) >= 9 else None
    return [] if made is None else [made]


def _from_columns(name: str, owner: str, columns: Sequence[str]) -> Quota | None:
    """Return a quota from used, soft limit, hard limit and grace of blocks (KiB), and the same of files."""
    used, soft, hard = (_number(word) for word in columns[:3])
    if used is None:
        return None
    files, files_soft, files_hard = (_number(word) for word in columns[4:7])
    return _quota(name, owner, used << 10, _bytes(hard or soft), files, files_hard or files_soft)


def parse_xfs(text: str, owner: str) -> list[Quota]:
    """Return the quota that ``xfs_quota -c 'quota -N -v -b -i' MOUNT`` shows: KiB, and numbers of files."""
    words = _GRACE.sub("-", text[:_MAX_LINE]).split()
    if len(words) < 11:
        return []
    used, soft, hard, files, files_soft, files_hard = (_number(words[place]) for place in (1, 2, 3, 6, 7, 8))
    if used is None:
        return []
    return [_quota(words[0], owner, used << 10, _bytes(hard or soft), files, files_hard or files_soft)]


def parse_beegfs(text: str) -> list[Quota]:
    """Return the quota of a user that ``beegfs-ctl --getquota --csv`` shows: bytes (``… Byte``), ``unlimited``."""
    lines = _lines(text)
    if "name,id,size,hard,files,hard" not in lines:
        return []
    found = []
    for line in lines[lines.index("name,id,size,hard,files,hard") + 1 :]:
        fields = line.split(",")
        if len(fields) == 6 and (used := _first_number(fields[2])) is not None:
            limit, files, files_limit = (_first_number(field) for field in fields[3:])
            found.append(_quota("", f"user {fields[0]}", used, limit, files, files_limit))
    return found[:_MAX_QUOTAS]


def parse_gpfs(text: str) -> list[Quota]:
    """Return the quotas that ``mmlsquota -Y`` shows: KiB, in columns that a HEADER line names."""
    found = []
    names: list[str] = []
    for line in _lines(text):
        fields = line.split(":")
        if fields[0] != "mmlsquota" or len(fields) < 5:
            continue
        if fields[2] == "HEADER":
            names = [name.lower() for name in fields]
            continue
        row = {name: unquote(field) for name, field in zip(names, fields, strict=False)}
        used, kind = _number(row.get("blockusage", "")), _GPFS_OWNERS.get(row.get("quotatype", ""))
        if used is None or kind is None:
            continue
        soft, hard, files, files_soft, files_hard = (
            _number(row.get(name, ""))
            for name in ("blockquota", "blocklimit", "filesusage", "filesquota", "fileslimit")
        )
        owner, fileset = f"{kind} {row.get('name', '')}".strip(), row.get("filesetname", "")
        owner += f" in fileset {fileset}" if fileset not in ("", "root") and kind != "fileset" else ""
        limit = _bytes(hard or soft)
        found.append(_quota(row.get("filesystemname", ""), owner, used << 10, limit, files, files_hard or files_soft))
    return found[:_MAX_QUOTAS]


def _quota(name: str, owner: str, used: int, limit: int | None, files: int | None, files_limit: int | None) -> Quota:
    """Return a quota; a limit of 0 is none."""
    free = max(0, limit - used) if limit else None
    return Quota(name, owner, used, limit or None, free, files, files_limit or None)


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip() and len(line) <= _MAX_LINE]


def _number(word: str) -> int | None:
    return int(word) if _NUMBER.fullmatch(word := word.strip(_MARKS)) else None


def _first_number(word: str) -> int | None:
    return int(found[0]) if (found := _NUMBER.match(word.strip())) else None


def _bytes(kibibytes: int | None) -> int | None:
    return None if kibibytes is None else kibibytes << 10
