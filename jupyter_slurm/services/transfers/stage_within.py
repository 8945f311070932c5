"""Staging of a folder that lies on a cluster, by a copy within the cluster.

The rules are those of a folder of this computer. A file is copied if it is missing in the copy, or has changed since it
was copied. What a job has changed in the copy stays, unless the source has changed, too. The last state that was copied
stands in the same file as for other staged folders.
"""

from __future__ import annotations

import asyncio
import hashlib
import posixpath
from collections.abc import Mapping, Sequence
from typing import Final

from jupyter_slurm.domain import staging_rules
from jupyter_slurm.domain.staging_rules import FileSignature
from jupyter_slurm.domain.staging_rules import names as first_names
from jupyter_slurm.domain.storage.transfer_rules import DIRECTORY, FILE, UNREADABLE, Entry, TreeOfCluster
from jupyter_slurm.errors import CommandError, CommandMissing, ParseError, UsageError
from jupyter_slurm.services.jobdir.job_json_model import FolderRecord
from jupyter_slurm.services.large_answers import call_off_loop
from jupyter_slurm.services.slurm.client import decode_output, printable
from jupyter_slurm.services.staging.cluster_paths import copy_directory
from jupyter_slurm.services.staging.folder_sync import FolderSync
from jupyter_slurm.services.transfers.carriers import Carrier
from jupyter_slurm.services.transfers.cluster_side import ClusterSide
from jupyter_slurm.services.transfers.sides import Destination, Group
from jupyter_slurm.services.transfers.transfer import Transfer, copy_files

__all__ = ["FolderWithin"]

_VANISHED_EXIT_CODE: Final = 24
_REAL_PATHS: Final = r"""
if [ -L "$2" ]; then echo "$2 is a link" >&2; exit 1; fi
if [ -e "$2" ] && [ ! -d "$2" ]; then echo "$2 is not a directory" >&2; exit 1; fi
exec readlink -mz -- "$@"
"""
_MAKE_WRITABLE: Final = r"""
[ ! -d "$1" ] || exec find "$1" -type d -user "$(id -u)" ! -perm -700 -exec chmod u+rwx -- {} \;
"""
# What an interrupted run has received is beside the copy, or in it if it exists already.
_PREPARE: Final = r"""
parent=$1 name=$2 partial=$3
mkdir -p -- "$parent" || exit
at=$parent
[ -d "$parent/$partial" ] || [ ! -d "$parent/$name" ] || { at=$parent/$name; echo inside; }
if [ -d "$at/$partial" ] && [ ! -L "$at/$partial" ] && [ -O "$at/$partial" ]; then echo resumed; fi
"""


class FolderWithin:
    """A folder of a cluster with its copy on the same cluster.

    Parameters
    ----------
    side : ClusterSide
        Files of the cluster, and the host that copies.
    """

    def __init__(self, side: ClusterSide) -> None:
        self._side, self._source = side, _Source(side.transport, side.host, side.login, side.location)

    async def find(self, source: str, asked: str | None) -> FolderRecord:
        """Return the folder, without links in its path, and the directory of its copy.

        Raises
        ------
        UsageError
            The folder does not exist, or cannot be staged there.
        """
        (item,) = await self._source.resolve([source])
        path = posixpath.join(item.folder, item.name)
        digest = hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:8]
        dest = await copy_directory(path, digest, asked, self._side.location, self._side.login)
        home, real = await self._source.real_paths(self._side.location.home, dest)
        if posixpath.commonpath([home, path]) == path:
            raise UsageError(
                f"{printable(path)} on {self._side.host} has all of your files.",
                hint="Name the directory of the project.",
            )
        if posixpath.commonpath([real, path]) in (real, path):
            raise UsageError(
                f"{printable(path)} and {printable(dest)} contain one another, so the one cannot be copied to the "
                "other.",
                hint="Choose another destination, or run jobs in the directory if the nodes see it.",
            )
        return FolderRecord(source=f":{path}", dest=dest, inode=0)  # no path of this computer begins with a colon

    async def copy(
        self, transfer: Transfer, folder: FolderRecord, carrier: Carrier, partial: str, *, delete: bool
    ) -> None:
        """Copy what is missing in the copy, or has changed since it was copied; see :func:`copy_files`.

        With ``delete``, files of the copy are removed that were copied before, and are not in the folder any more.
        """
        sync, source = FolderSync(self._side.transport, folder, ""), self._source
        base, warnings = await sync.base(), list[str]()
        if delete:
            signs = (await source.read(folder.source.removeprefix(":"))).signs
            gone = {path for path in base if path not in signs and not source.tree.leaves_out(path)}
            kept = await sync.remove_deleted({path: base[path] for path in gone})
            base = {path: sign for path, sign in base.items() if path not in gone or path in kept}
            warnings += _kept("deleted", folder.dest, kept)
        side = self._side
        dest = _Copy(side.transport, side.host, side.login, side.location)
        dest.place, dest.base = folder.dest, base
        await copy_files(transfer, source, dest, carrier, partial)
        signs = source.tree.signs
        await sync.note({**base, **{path: sign for path, sign in signs.items() if not source.tree.leaves_out(path)}})
        warnings += _kept("replaced", folder.dest, [path for path in dest.changed if base[path] == signs.get(path)])
        transfer.warnings = [*transfer.warnings, *source.warnings(), *warnings]
        if expires := self._side.location.storage.get("expires"):
            transfer.warnings += await sync.expiring(expires, self._side.location.id)


def _kept(verb: str, dest: str, paths: Sequence[str]) -> list[str]:
    told = printable(first_names(sorted(paths)))
    return [f"Files in {printable(dest)} that a job has changed were not {verb}: {told}."] if paths else []


class _Source(ClusterSide):
    """Folder to stage: the entries that staging leaves out are listed as such."""

    async def real_paths(self, home: str, dest: str) -> list[str]:
        """Return the home and the destination without links in them; a destination that exists must be a directory."""
        done = await self._run("write to", _REAL_PATHS, home, dest)
        found = decode_output(done.stdout).split("\0")[:-1]
        if len(found) != 2 or not all(posixpath.isabs(path) for path in found):
            raise ParseError(f"The answer of {self.host} about the directories could not be read.")
        return found

    async def read(self, path: str) -> TreeOfCluster:
        """Read the folder."""
        folder, name = posixpath.split(path)
        await self.list_files(folder, [name])
        return self.tree

    async def list_files(self, folder: str, names: Sequence[str]) -> dict[str, Entry]:
        """Return everything of the folder, its only name; see :class:`Side`."""
        (name,) = names
        path, found = posixpath.join(folder, name), await super().list_files(folder, names)
        kind = found.get(name, Entry("")).kind
        if kind != DIRECTORY:
            why = "cannot be read" if kind == UNREADABLE else "is not a directory"
            raise UsageError(f"{printable(path)} on {self.host} {why}.", hint="Name a directory that you may read.")
        self.tree = await asyncio.to_thread(TreeOfCluster, found, name)
        passed = await self._passed(path) if self.tree.has_filter else None
        return await asyncio.to_thread(self.tree.entries, passed)

    async def _passed(self, path: str) -> set[str]:
        """Return the paths below the folder that its filters let pass, from rsync's list for a copy of all files."""
        nowhere = posixpath.join(path, staging_rules.PARTIAL_FOLDER_NAME, "none", "")
        options = staging_rules.difference_options(self.tree.environments | self.tree.unreadable)
        try:
            done = await self.transport.run(["rsync", *options, "--", posixpath.join(path, ""), nowhere], timeout=None)
        except CommandMissing:
            raise CommandMissing(
                f"{self.host} has no rsync, which a file .rsync-filter in {printable(path)} needs.",
                hint="Remove the file, or ask the administrators to install rsync.",
            ) from None
        if done.exit_code not in (0, _VANISHED_EXIT_CODE):
            raise CommandError(
                f"rsync could not list {printable(path)}: {printable(decode_output(done.stderr)).strip()[:500]}",
                hint="Check the files .rsync-filter of the directory, and its permissions.",
            )
        return {change.path for change in await call_off_loop(staging_rules.parse_listing, done.stdout)}

    def warnings(self) -> list[str]:
        """Return what of the folder is not copied, for the user."""
        said = (
            ("Virtual environments were not copied: ", self.tree.environments),
            ("Left out by .rsync-filter: ", self.tree.filtered),
        )
        return [f"{begin}{printable(first_names(sorted(paths)))}." for begin, paths in said if paths]


class _Copy(ClusterSide):
    """Copy of the folder. Files that a job has changed are listed as they were when they were copied.

    Attributes
    ----------
    place : str
        Its directory.
    base : mapping
        Signatures of the files when they were copied.
    changed : list of str
        Files that have changed since.
    """

    place: str
    base: Mapping[str, FileSignature]

    async def prepare(self, dest: str, count: int, partial: str) -> Destination:
        """Find the place of received files; see :class:`Side`."""
        folder, name = posixpath.split(self.place)
        await self._run("write to", _MAKE_WRITABLE, self.place)  # an earlier run may have been stopped before its end
        done = await self._run("write to", _PREPARE, folder, name, partial)
        said = decode_output(done.stdout).split()
        joined = posixpath.join(self.place if "inside" in said else folder, partial)
        return Destination(folder, joined, name, is_resumed="resumed" in said)

    async def finish(self, dest: Destination, groups: Sequence[Group], *, overwrite: bool) -> list[str]:
        """Move received files to their place, whose directories a job may write; see :class:`Side`."""
        met = await super().finish(dest, groups, overwrite=overwrite)
        await self._run("write to", _MAKE_WRITABLE, self.place)
        return met

    async def list_files(self, folder: str, names: Sequence[str]) -> dict[str, Entry]:
        """Return everything below these names; see :class:`Side`."""
        found = await super().list_files(folder, names)
        if posixpath.join(folder, *names) != self.place:
            return found  # received files
        self.changed = list[str]()
        prefix = f"{posixpath.basename(self.place)}/"
        for path, entry in found.items():
            below = path.removeprefix(prefix)
            sign = self.base.get(below, entry.sign)
            if entry.kind == FILE and sign != entry.sign and sign.mtime != -1:
                self.changed.append(below)
                found[path] = Entry(FILE, *sign)
        return found
