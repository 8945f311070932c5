"""Interface of the two sides of a transfer: this computer, or a cluster."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from jupyter_slurm.domain.storage.transfer_rules import Entry
from jupyter_slurm.errors import UsageError

__all__ = ["Destination", "Group", "Item", "Moved", "Side", "check_names", "group_items"]

Moved = Callable[[int], None]
"""Callback with the number of bytes that were sent; called in a thread."""


@dataclass(frozen=True)
class Item:
    """A named source: its directory and its name there, without links, and its name at the destination."""

    folder: str
    name: str
    final: str


@dataclass(frozen=True)
class Group:
    """Sources of one directory, which are received in a directory of their own."""

    folder: str
    names: Mapping[str, str]
    received: str


@dataclass(frozen=True)
class Destination:
    """Directory that a transfer fills, the directory in it for received files, and the last name of the request.

    ``rename`` is the new name of the only source; None: the sources keep their names. ``is_resumed``: an earlier run
    has received files.
    """

    folder: str
    partial: str
    rename: str | None
    is_resumed: bool


class Side(Protocol):
    """One side of a transfer. Paths are absolute."""

    async def resolve(self, sources: Sequence[str]) -> list[Item]:
        """Return the sources. A source that is a link is followed.

        Raises
        ------
        UsageError
            A source does not exist, or cannot be read.
        """
        ...

    async def prepare(self, dest: str, count: int, partial: str) -> Destination:
        """Make the destination for a number of sources. The directory ``partial`` in it is made by :meth:`make`.

        Raises
        ------
        CommandError
            It is not a directory, or its parent does not exist.
        """
        ...

    async def list_files(self, folder: str, names: Sequence[str]) -> dict[str, Entry]:
        """Return everything below these names of a directory, by path; links are not followed.

        The name ``""`` means the directory itself.
        """
        ...

    async def make(self, dest: Destination, groups: Sequence[Group]) -> None:
        """Make the directories that receive files. Until then, a refused transfer leaves nothing.

        Raises
        ------
        CommandError
            The destination cannot be written.
        """
        ...

    async def drop(self, folder: str, paths: Sequence[str]) -> None:
        """Remove entries of a directory of received files; paths are those of :meth:`list_files`.

        Raises
        ------
        CommandError
            An entry cannot be removed.
        """
        ...

    async def finish(self, dest: Destination, groups: Sequence[Group], *, overwrite: bool) -> list[str]:
        """Move received files to the destination; return those in whose place a file has appeared meanwhile."""
        ...

    async def check_room(self, dest: Destination, needed: int) -> None:
        """Refuse a transfer that the disk has no room for, where that is known."""
        ...

    async def discard(self, dest: Destination) -> None:
        """Remove what was received."""
        ...


def check_names(items: Sequence[Item]) -> None:
    """Check that the sources have different names.

    Raises
    ------
    UsageError
        Two sources have the same name.
    """
    if len({item.final for item in items}) < len(items):
        raise UsageError("Two sources have the same name.", hint="Copy them in two steps.")


def group_items(items: Sequence[Item], dest: Destination) -> list[Group]:
    """Return the sources by directory."""
    finals = [dest.rename or item.final for item in items]
    groups = list[tuple[str, dict[str, str]]]()
    latest = dict[str, tuple[dict[str, str], set[str]]]()  # names of a directory's last group: there, and final ones
    for item, final in zip(items, finals, strict=True):
        names, taken = latest.get(item.folder) or ({}, set())
        # Links may lead from any name to any: to one source twice, or to one that has the name of another link.
        is_met = item.name in names or (item.name != final and (final in names or item.name in taken))
        if is_met or not names:
            names, taken = latest[item.folder] = ({}, set())
            groups.append((item.folder, names))
        names[item.name] = final
        taken.add(final)
    numbered = enumerate(groups)
    return [Group(folder, names, posixpath.join(dest.partial, str(number))) for number, (folder, names) in numbered]
