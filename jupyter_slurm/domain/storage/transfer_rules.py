"""Choice of the files that a transfer copies, from listings of both sides."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from jupyter_slurm.domain.staging_rules import is_inside, leads_out

__all__ = ["DIRECTORY", "FILE", "LINK", "Entry", "TransferChoice", "choose", "is_copied", "parse_entries"]

DIRECTORY: Final = "d"
FILE: Final = "f"
LINK: Final = "l"
_ENTRY: Final = re.compile(r"(\S) (\d{1,19}) (-?\d{1,19})(?:\.\d+)? (.*)", re.ASCII | re.DOTALL)


class Entry(NamedTuple):
    """A file, directory or link: its kind as ``find -printf %y`` has it, size, time in whole seconds, and target."""

    kind: str
    size: int = 0
    mtime: int = 0
    target: str = ""


@dataclass
class TransferChoice:
    """Paths of the source by what happens to them.

    Attributes
    ----------
    copied : list of str
        New or changed.
    changed : list of str
        Those of them that replace a file of the destination.
    blocked : list of str
        The destination has a directory in place of a file, or the reverse.
    skipped : list of str
        Devices, sockets and pipes, and links that lead out of the directory of the source.
    total : int
        Bytes of the files to copy.
    """

    copied: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    blocked: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    total: int = 0


def is_copied(path: str, entry: Entry, *, is_within: bool = False) -> bool:
    """Return whether an entry is of a kind that transfers copy, with a name and a target that stay inside.

    On one file system (``is_within``) a link may lead anywhere: it leads there from its copy, too.
    """
    if not is_inside(path):
        return False
    return entry.kind in (DIRECTORY, FILE) or (entry.kind == LINK and (is_within or not leads_out(path, entry.target)))


def choose(source: Mapping[str, Entry], dest: Mapping[str, Entry], *, is_within: bool = False) -> TransferChoice:
    """Choose the entries to copy; paths are relative to the two directories, ``is_within`` one cluster."""
    choice = TransferChoice()
    for path, entry in source.items():
        other = dest.get(path)
        if not is_copied(path, entry, is_within=is_within):
            choice.skipped.append(path)
        elif other is None or not _is_same(entry, other):
            choice.copied.append(path)
            choice.total += entry.size if entry.kind == FILE else 0
            if other is not None:
                is_blocked = DIRECTORY in (entry.kind, other.kind)
                (choice.blocked if is_blocked else choice.changed).append(path)
    return choice


def _is_same(entry: Entry, other: Entry) -> bool:
    if entry.kind != other.kind:
        return False
    if entry.kind == LINK:
        return entry.target == other.target
    return entry.kind == DIRECTORY or (entry.size, entry.mtime) == (other.size, other.mtime)


def parse_entries(raw: bytes) -> dict[str, Entry]:
    r"""Parse the output of ``find -printf '%y %s %T@ %p\0%l\0'`` for names that begin with ``./``.

    Raises
    ------
    ValueError
        It is the output of something else.
    """
    parts = raw.decode("utf-8", "surrogateescape").split("\0")
    found = {}
    for about, target in zip(parts[::2], parts[1::2], strict=False):
        match = _ENTRY.fullmatch(about)
        if match is None:
            raise ValueError(about)
        found[match[4].removeprefix("./")] = Entry(match[1], int(match[2]), int(match[3]), target)
    return found
