"""Carriers of a transfer: rsync where both sides have it, else tar; and ``cp`` within a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from jupyter_slurm.domain.staging_rules import PARTIAL_FOLDER_NAME
from jupyter_slurm.domain.storage.transfer_rules import DIRECTORY, FILE, Entry
from jupyter_slurm.errors import CommandError, CommandMissing
from jupyter_slurm.services.slurm.client import decode_output, printable
from jupyter_slurm.services.transfers.sides import Group, Moved
from jupyter_slurm.transport.archive import Archive
from jupyter_slurm.transport.base import Transport
from jupyter_slurm.transport.rsync import Rsync, check_rsync

__all__ = ["ArchiveCarrier", "Carrier", "RsyncCarrier", "WithinCluster", "Work", "has_rsync", "split_names"]

# Devices are not copied. Links stay links, and those that lead out are left out. Names stand on standard input. With
# --omit-dir-times, incremental recursion takes twice as long for 10,000 files (measured with 3.5.0), and --temp-dir
# makes each file take a third longer: the next run removes what a cut rsync leaves, which the source does not have.
_OPTIONS: Final = [
    *("--links", "--times", "--omit-dir-times", "--executability", "--safe-links", "--no-devices", "--no-specials"),
    *(f"--partial-dir={PARTIAL_FOLDER_NAME}", "--files-from=-", "--from0"),
]
_GROWTH_BYTES: Final = 1 << 30
"""Bytes by which the files may have grown since they were listed, and of their names."""
_VANISHED_EXIT_CODE: Final = 24
_MAKE: Final = r"""
mkdir -p -- "$2" && cd -- "$2" || exit
exec xargs -0 -r sh -c '
from=$1; shift
for dir do
  mkdir -p -- "$dir" && chmod --reference="$from/$dir" -- "$dir" && chmod u+rwx -- "$dir" || exit
done' sh "$1"
"""
# With -f, a read-only file of an earlier run is replaced. Links in the place of files were removed before.
_COPY: Final = r"""
cd -- "$1" && mkdir -p -- "$2" || exit
exec xargs -0 -r sh -c 'dest=$1; shift; exec cp -dRf --preserve=timestamps --parents -- "$@" "$dest"' sh "$2"
"""


class Work(NamedTuple):
    """Work of a carrier in one directory.

    Attributes
    ----------
    group : Group
        The directories.
    entries : mapping
        Entries to copy, by path.
    whole : list of str
        Names of which everything is to be copied.
    total : int
        Bytes of the directory, with those that an earlier run has copied.
    """

    group: Group
    entries: Mapping[str, Entry]
    whole: Sequence[str]
    total: int


class Carrier(Protocol):
    """Copies entries of directories to the directories that receive them."""

    async def end_remains(self, group: Group) -> None:
        """End the remains of an earlier run, whose connection broke."""
        ...

    async def copy(self, works: Sequence[Work], moved: Moved) -> None:
        """Copy entries, and call ``moved`` with the number of bytes."""
        ...


class _EachDirectory:
    """Carrier that copies one directory after the other."""

    async def copy(self, works: Sequence[Work], moved: Moved) -> None:
        """Copy entries; see :class:`Carrier`."""
        before = 0
        for work in works:
            if work.entries:
                await self._copy(work.group, work.entries, work.whole, _counting_from(before, moved))
            before += work.total

    async def _copy(self, group: Group, entries: Mapping[str, Entry], whole: Sequence[str], moved: Moved) -> None:
        raise NotImplementedError


def _counting_from(before: int, moved: Moved) -> Moved:
    return lambda count: moved(before + count)


class RsyncCarrier(_EachDirectory):
    """rsync over the connection of a transport. ``is_pull``: from the cluster to this computer."""

    def __init__(self, transport: Transport, owner: str, *, is_pull: bool) -> None:
        self._transport, self._owner, self._is_pull = transport, owner, is_pull

    async def end_remains(self, group: Group) -> None:
        """End the remains of an earlier run."""
        await self._rsync(group).end_remains()

    async def _copy(self, group: Group, entries: Mapping[str, Entry], whole: Sequence[str], moved: Moved) -> None:
        parts = [path for names in split_names(entries, whole) for path in names]
        for names, options in ((whole, ["--recursive", "--no-inc-recursive"]), (parts, ["--no-recursive"])):
            if not names:
                continue
            raw = "".join(f"./{name}\0" for name in names).encode("utf-8", "surrogateescape")
            limit = _GROWTH_BYTES + sum(entry.size for entry in entries.values() if entry.kind == FILE)
            done = await self._rsync(group, moved, limit).run([*_OPTIONS, *options], is_pull=self._is_pull, stdin=raw)
            if done.exit_code not in (0, _VANISHED_EXIT_CODE):
                said = [line for line in printable(decode_output(done.stderr)).splitlines() if line.strip()]
                raise CommandError(
                    f"rsync failed: {' '.join(said)[:700] or done.exit_code}",
                    hint="Check the permissions and the free space of both sides. Run the same command again to "
                    "continue: what has arrived is kept.",
                )

    def _rsync(self, group: Group, moved: Moved | None = None, limit: int | None = None) -> Rsync:
        near, far = (group.received, group.folder) if self._is_pull else (group.folder, group.received)
        return Rsync(self._transport, near, far, owner=self._owner, moved=moved, limit=limit)


class ArchiveCarrier(_EachDirectory):
    """tar over the connection of a transport. ``is_pull``: from the cluster to this computer."""

    def __init__(self, transport: Transport, *, is_pull: bool) -> None:
        self._transport, self._is_pull = transport, is_pull

    async def end_remains(self, group: Group) -> None:
        """Do nothing: tar ends with its stream."""

    async def _copy(self, group: Group, entries: Mapping[str, Entry], whole: Sequence[str], moved: Moved) -> None:
        near, far = (group.received, group.folder) if self._is_pull else (group.folder, group.received)
        await Archive(self._transport, near, far, moved).run(entries, is_pull=self._is_pull)


class WithinCluster(_EachDirectory):
    """``cp`` on a host of a cluster."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def end_remains(self, group: Group) -> None:
        """Do nothing: ``cp`` ends with its connection."""

    async def _copy(self, group: Group, entries: Mapping[str, Entry], whole: Sequence[str], moved: Moved) -> None:
        directories, files = split_names(entries, whole)
        await self._run(_MAKE, group.folder, group.received, names=directories)
        await self._run(_COPY, group.folder, group.received, names=[*whole, *files])

    async def _run(self, script: str, *args: str, names: Sequence[str]) -> None:
        if not names:
            return
        raw = "".join(f"./{name}\0" for name in names).encode("utf-8", "surrogateescape")
        done = await self._transport.run(["/bin/sh", "-c", script, "sh", *args], stdin=raw, timeout=None)
        if done.exit_code:
            said = printable(decode_output(done.stderr)).strip()[:500]
            raise CommandError(
                f"The copy on the cluster failed: {said}", hint="Check the permissions and your quota: `%slurm room`."
            )


def split_names(entries: Mapping[str, Entry], whole: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the directories and the other entries below names that are not copied as a whole."""
    names: tuple[list[str], list[str]] = ([], [])
    covered = frozenset(whole)  # of tens of thousands, perhaps
    for path, entry in entries.items():
        if path.split("/", 1)[0] not in covered:
            names[entry.kind != DIRECTORY].append(path)
    return names


async def has_rsync(transport: Transport, name: str) -> bool:
    """Return whether both sides have an rsync that is new enough."""
    try:
        await check_rsync(transport, name)
    except CommandMissing:
        return False
    return True
