"""Choice of the files that a transfer copies, from listings of both sides."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from jupyter_slurm.domain import untrusted_files
from jupyter_slurm.domain.staging_rules import PARTIAL_FOLDER_NAME, FileSignature, is_inside, leads_out

__all__ = [
    *("DIRECTORY", "FILE", "LEFT_OUT", "LINK", "UNREADABLE", "Entry", "TransferChoice", "TreeOfCluster"),
    *("choose", "is_copied", "parse_entries", "stale_entries"),
]

DIRECTORY: Final = "d"
FILE: Final = "f"
LINK: Final = "l"
UNREADABLE: Final = "!"
"""A directory whose entries the user may not list or reach."""
LEFT_OUT: Final = "-"
"""An entry that staging leaves out."""
_ENTRY: Final = re.compile(r"(\S) (\d{1,19}) (-?\d{1,19})(?:\.\d+)? (.*)", re.ASCII | re.DOTALL)


class Entry(NamedTuple):
    """A file, directory or link: its kind as ``find -printf %y`` has it, size, time in whole seconds, and target."""

    kind: str
    size: int = 0
    mtime: int = 0
    target: str = ""

    @property
    def sign(self) -> FileSignature:
        """Return the signature of a file or link, as staging records it."""
        return FileSignature(self.size, -1 if self.kind == LINK else self.mtime)


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
    unreadable : list of str
        Directories that the user may not read.
    left_out : list of str
        Entries that staging leaves out.
    total : int
        Bytes of the files to copy.
    """

    copied: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    blocked: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    total: int = 0


class TreeOfCluster:
    """A folder of a cluster that is staged within the cluster: everything below it, and what staging leaves out.

    Parameters
    ----------
    found : mapping
        Entries of the directory of the folder, by path.
    name : str
        Name of the folder, the first name of these paths.

    Attributes
    ----------
    environments, unreadable : set of str
        Virtual environments, and directories that the user may not read; paths are those below the folder.
    filtered : list of str
        What a filter of the folder leaves out, without the entries of such directories.
    """

    def __init__(self, found: Mapping[str, Entry], name: str) -> None:
        prefix = f"{name}/"
        self._found, self._below = found, {path.removeprefix(prefix): path for path in found if path.startswith(prefix)}
        marked = untrusted_files.environment_folders(f"x/{path}" for path in self._below)  # x is the folder itself
        inner = {path.removeprefix("x/") for path in marked - {"x"}}
        if "x" in marked:
            tops = {path.split("/", 1)[0] for path in self._below}
            inner |= {top for top in tops if top.lower() in untrusted_files.ENVIRONMENT_PARTS}
        self.environments = {
            path
            for path in inner
            if not untrusted_files.is_never_copied(path)
            and untrusted_files.environment_of(posixpath.dirname(path), inner) is None
        }
        self.unreadable = {below for below, path in self._below.items() if found[path].kind == UNREADABLE}
        self.filtered = list[str]()

    @property
    def has_filter(self) -> bool:
        """Return whether the folder has filters."""
        return any(posixpath.basename(path) == untrusted_files.FILTER_NAME for path in self._below)

    @property
    def signs(self) -> dict[str, FileSignature]:
        """Return the signatures of all files and links."""
        entries = {below: self._found[path] for below, path in self._below.items()}
        return {below: entry.sign for below, entry in entries.items() if entry.kind in (FILE, LINK)}

    def entries(self, passed: Collection[str] | None = None) -> dict[str, Entry]:
        """Return all entries, those that staging leaves out as such.

        ``passed`` are the paths below the folder that its filters let pass; None: it has no filters.
        """
        left_out = {
            path
            for path in self._below
            if untrusted_files.is_never_copied(path) or untrusted_files.environment_of(path, self.environments)
        }
        if passed is not None:
            copied = {below for below, path in self._below.items() if is_copied(path, self._found[path])}
            filtered = copied - left_out - set(passed)
            self.filtered = sorted(path for path in filtered if posixpath.dirname(path) not in filtered)
            left_out |= filtered
        marks = {self._below[path]: Entry(LEFT_OUT) for path in left_out}
        return {**self._found, **marks}

    def leaves_out(self, path: str) -> bool:
        """Return whether a path below the folder lies in a directory that is not copied, or not read."""
        excluded = self.environments | self.unreadable | set(self.filtered)
        return untrusted_files.is_never_copied(path) or untrusted_files.environment_of(path, excluded) is not None


def is_copied(path: str, entry: Entry, *, is_within: bool = False) -> bool:
    """Return whether an entry is of a kind that transfers copy, with a name and a target that stay inside.

    The first name of the path is the copied file or directory: links of a directory stay below it. On one file system
    (``is_within``) a link may lead anywhere: its copy leads to the same place.
    """
    if not is_inside(path):
        return False
    below = path.partition("/")[2] or path
    return entry.kind in (DIRECTORY, FILE) or (entry.kind == LINK and (is_within or not leads_out(below, entry.target)))


def choose(source: Mapping[str, Entry], dest: Mapping[str, Entry], *, is_within: bool = False) -> TransferChoice:
    """Choose the entries to copy; paths are relative to the two directories, ``is_within`` one cluster."""
    choice = TransferChoice()
    for path, entry in source.items():
        other = dest.get(path)
        if not is_copied(path, entry, is_within=is_within):
            other_lists = {UNREADABLE: choice.unreadable, LEFT_OUT: choice.left_out}
            other_lists.get(entry.kind, choice.skipped).append(path)
        elif other is None or not _is_same(entry, other):
            choice.copied.append(path)
            choice.total += entry.size if entry.kind == FILE else 0
            if other is not None:
                is_blocked = DIRECTORY in (entry.kind, other.kind)
                (choice.blocked if is_blocked else choice.changed).append(path)
    return choice


def stale_entries(
    received: Mapping[str, Entry], wanted: Mapping[str, Entry], needed: Collection[str] = ()
) -> list[str]:
    """Return received paths that are not wanted, or not as this kind.

    The beginnings of files that rsync keeps below are wanted if the files are ``needed``. Those at the top are no
    concern: they are never moved.
    """
    kept = set[str]()
    for path, entry in received.items():
        other = wanted.get(path)
        folder, name = posixpath.split(path)
        if other is not None and other.kind == entry.kind:
            kept.add(path)
        elif posixpath.basename(folder) == PARTIAL_FOLDER_NAME and entry.kind == FILE:
            whole = posixpath.join(posixpath.dirname(folder), name)
            if whole in needed and wanted[whole].kind == FILE:
                kept |= {path, folder}
    inside = (path for path in received if is_inside(path) and path.split("/", 1)[0] != PARTIAL_FOLDER_NAME)
    return [path for path in inside if path not in kept]


def _is_same(entry: Entry, other: Entry) -> bool:
    if entry.kind == DIRECTORY and other.kind == UNREADABLE:
        return True
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
