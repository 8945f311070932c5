"""Synchronisation of a local folder with its copy on a cluster: differences, transfers, and the last common state."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from jupyter_slurm.domain import staging_rules
from jupyter_slurm.domain.staging_rules import FileSignature, LocalSide, ResultChoice
from jupyter_slurm.domain.storage.disk_space import DISK_SPACE_SCRIPT, parse_room
from jupyter_slurm.domain.untrusted_files import NEVER_COPIED, is_never_copied
from jupyter_slurm.errors import CommandError, TransportError, UsageError
from jupyter_slurm.services.jobdir.job_json_model import FolderRecord
from jupyter_slurm.services.jobdir.untrusted_json import parse_json
from jupyter_slurm.services.large_answers import call_off_loop
from jupyter_slurm.services.slurm.client import decode_output, printable
from jupyter_slurm.services.staging.local_folder import FolderTree
from jupyter_slurm.transport.base import Completed, Sent, Transport
from jupyter_slurm.transport.rsync import Rsync

if TYPE_CHECKING:
    from jupyter_slurm.services.staging.received_results import ReceivedResults

__all__ = ["FolderSync"]

_MAX_LISTING_BYTES = 256 << 20  # bytes of the notes about a folder, and of a listing of rsync
_GROWTH_BYTES = 1 << 30  # bytes by which the files may have grown since they were listed, and of their names
_WATCH_INTERVAL_S = 0.5
_VANISHED_EXIT_CODE = 24
_MAX_OLD_FILES = 1000
_OLD = f'cd -- "$1" && find . -type f -mmin "+$2" -print | head -n {_MAX_OLD_FILES}'
_ENTRIES = 'cd -- "$1" || exit; find . ! -type d -printf "%y %s %T@ %P\\0" 2>/dev/null; :'
_TARGETS = 'cd -- "$1" || exit; find . -type l -printf "%P\\0%l\\0" 2>/dev/null; :'
_FILES = 'cd -- "$1" && shift && find . "$@" -prune -o -type f -printf "%y %s %T@ %P\\0"'
_MAKE_TEMPORARY = f'cd -- "$1" && mkdir -p -m 700 -- {staging_rules.TEMPORARY_FOLDER}'
_REMOVE_TEMPORARY = (
    f'cd -- "$1" && rm -rf -- {staging_rules.TEMPORARY_FOLDER} && '
    f"{{ rmdir -- {staging_rules.PARTIAL_FOLDER_NAME} 2>/dev/null || :; }}"
)
_REMOVE_SCRIPT = 'cd -- "$1" && xargs -0 rm -f --'
_ERASE_WARNING_SHARE = 1 / 8  # of the time after which files are erased


class FolderSync:
    """Local folder with its copy on the cluster.

    Parameters
    ----------
    transport : Transport
        Transport to the cluster.
    folder : FolderRecord
        Its inode number distinguishes the local folder from a new folder of the same name.
    owner : str
        Name unique to this machine: only this machine ends transfers under the name.
    """

    def __init__(self, transport: Transport, folder: FolderRecord, owner: str) -> None:
        self._transport, self._owner = transport, owner
        self.source, self.dest, self._inode = folder.source, folder.dest, folder.inode

    @functools.cached_property
    def _received(self) -> ReceivedResults:
        from jupyter_slurm.services.staging.received_results import ReceivedResults

        return ReceivedResults(self.source, self._owner, self.dest)

    async def check_both_sides(self) -> None:
        """Refuse a pair of which one folder is gone, because waiting would not help.

        Raises
        ------
        CommandError
            One of the folders is gone.
        """
        if not await asyncio.to_thread(os.path.isdir, self.source):
            raise CommandError(
                f"The folder {self.source} no longer exists on this computer.",
                hint="Restore it, or run the cell again with another folder in stage=.",
                is_gone=True,
            )
        try:
            await self._transport.stat(self.dest)
        except FileNotFoundError:
            raise CommandError(
                f"The directory {self.dest} no longer exists on the cluster.",
                hint="Submit the cell again to copy the folder.",
                is_gone=True,
            ) from None

    async def end_remains(self) -> None:
        """End the remains of a transfer whose connection broke, so that the next one can continue it."""
        await self._rsync().end_remains()

    def _rsync(
        self,
        moved: Callable[[int], None] | None = None,
        *,
        limit: int | None = None,
        local_path: str | None = None,
    ) -> Rsync:
        near = local_path or self.source
        return Rsync(self._transport, near, self.dest, owner=self._owner, moved=moved, limit=limit)

    async def choose(
        self,
        base: Mapping[str, FileSignature],
        tree: FolderTree,
        *,
        is_pull: bool,
        by_content: bool = False,
        accepted: frozenset[str] = frozenset(),
    ) -> tuple[ResultChoice, set[str], set[str]]:
        """List the differences; return those to transfer, all of them, and the files that are equal on both sides.

        ``accepted`` are files to copy back although they run by themselves.
        """
        options = [*staging_rules.difference_options(tree.excluded), *(["--checksum"] if by_content else [])]
        done = self._checked(await self._rsync(limit=_MAX_LISTING_BYTES).run(options, is_pull=is_pull), is_pull=is_pull)
        changes, local = (
            staging_rules.parse_listing(done.stdout),
            LocalSide(tree.excluded, tree.is_safe_link, accepted),
        )
        choice = await asyncio.to_thread(
            staging_rules.chosen, changes, base, tree.file_signature, is_pull=is_pull, local=local
        )
        if is_pull:
            choice.refused.extend(await self._links_leading_out(tree))
        return choice, {change.path for change in changes}, staging_rules.parse_equal(done.stdout)

    async def _links_leading_out(self, tree: FolderTree) -> list[str]:
        """Return the links of the copy that lead out of it and are not links of the user; rsync leaves them out."""
        found = (await self._run_rsync("read", _TARGETS)).stdout.decode("utf-8", "surrogateescape").split("\0")
        pairs = zip(found[::2], found[1::2], strict=False)
        leading_out = sorted(path for path, target in pairs if staging_rules.leads_out(path, target))
        return [path for path in leading_out if path not in tree.leading_out and not is_never_copied(path)]

    async def send(self, choice: ResultChoice, sent: Sent, *, by_content: bool = False) -> None:
        """Send the chosen files; ``sent`` receives the progress. Compare content even if size and time agree."""
        options = ["--ignore-times"] if by_content else []
        await self._run_rsync("write to", _MAKE_TEMPORARY)
        self._checked(await self._transfer(choice, sent, options), is_pull=False)
        await self._run_rsync("write to", _REMOVE_TEMPORARY)
        sent(max(choice.total, 1), max(choice.total, 1))

    async def receive(self, choice: ResultChoice, base: Mapping[str, FileSignature], sent: Sent) -> ResultChoice:
        """Receive the chosen files, and move them into the folder, if they are as they were listed.

        Return what is in the folder now, and what of the choice is not.
        """
        await asyncio.to_thread(self._received.make, choice)
        try:
            done = await self._transfer(choice, sent, [f"--compare-dest={self.source}"], local_path=self._received.path)
        except CommandError:  # the cluster has sent too much
            with contextlib.suppress(CommandError):
                await asyncio.to_thread(self._received.accept, choice, base)
            await self.discard_received()
            raise
        except (TransportError, asyncio.CancelledError):
            with contextlib.suppress(CommandError):
                await asyncio.to_thread(self._received.accept, choice, base)  # the next run receives the others
            raise
        accepted = await asyncio.to_thread(self._received.accept, choice, base)
        self._checked(done, is_pull=True)
        await self.discard_received()
        sent(max(choice.total, 1), max(choice.total, 1))
        return accepted

    async def discard_received(self) -> None:
        """Remove what was received, also by an earlier run, and not moved into the folder."""
        await asyncio.to_thread(self._received.remove)

    async def _transfer(
        self, choice: ResultChoice, sent: Sent, options: Sequence[str], *, local_path: str | None = None
    ) -> Completed:
        """Transfer the chosen files between the copy and a local directory: the folder, or one that receives files."""
        total, limit = max(choice.total, 1), _GROWTH_BYTES + choice.total
        names = "".join(f"./{change.path}\0" for change in choice.copied).encode("utf-8", "surrogateescape")
        loop = asyncio.get_running_loop()

        def moved(done: int) -> None:
            loop.call_soon_threadsafe(sent, min(done, total - 1), total)

        sent(0, total)
        rsync = self._rsync(moved, limit=limit, local_path=local_path)
        running = rsync.run([*staging_rules.TRANSFER_OPTIONS, *options], is_pull=local_path is not None, stdin=names)
        if local_path is None:
            return await running
        watching = asyncio.create_task(self._watch(rsync, limit))
        try:
            return await running
        finally:
            watching.cancel()

    async def _watch(self, rsync: Rsync, limit: int) -> None:
        """End a transfer that fills the disk: a few bytes make rsync repeat a part of the file that it replaces."""
        while True:
            await asyncio.sleep(_WATCH_INTERVAL_S)
            if await asyncio.to_thread(self._received.has_outgrown, limit):
                rsync.refuse()
                return

    async def base(self) -> dict[str, FileSignature]:
        """Return the last common state of both sides; empty if it was of another local folder."""
        path = posixpath.join(self.dest, staging_rules.STAGE_FOLDER_NAME)
        try:
            noted = await call_off_loop(parse_json, await self._transport.read(path, 0, _MAX_LISTING_BYTES))
            if (noted["source"], noted["inode"]) != (self.source, self._inode):
                return {}
            return {str(path): FileSignature(int(sign[0]), int(sign[1])) for path, sign in noted["files"].items()}
        except (FileNotFoundError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            return {}

    async def has_more(self) -> bool:
        """Return whether some files on the cluster differ from the local ones.

        Reasons are a filter, or changes on both sides.
        """
        named = [word for name in NEVER_COPIED for word in ("-o", "-name", name)][1:]
        found = await self._run_rsync("read", _FILES, "(", *named, ")")
        signs = await call_off_loop(_signatures, found.stdout)
        return not signs.items() <= (await self.base()).items()

    async def note(self, files: Mapping[str, FileSignature]) -> None:
        """Record that these files agree on both sides."""
        noted = {"format": 1, "source": self.source, "inode": self._inode, "files": files}
        await self._transport.write(
            posixpath.join(self.dest, staging_rules.STAGE_FOLDER_NAME), json.dumps(noted).encode()
        )

    async def check_room(self, needed: int) -> None:
        """Refuse a transfer that would fill the remote disk or exceed the user's quota."""
        room = parse_room(decode_output((await self._run_rsync("read", DISK_SPACE_SCRIPT)).stdout), self.dest)
        if room is not None and needed > room.free:
            raise UsageError(
                f"{_size(needed)} would be copied to {self.dest}, but {_size(room.free)} are "
                f"{room.description}. Nothing was submitted.",
                hint="Free some space, choose another destination (stage=DIR:DEST), or exclude files: write a "
                "line `- NAME` for each into .rsync-filter of the folder.",
            )

    async def remove_deleted(self, deleted: Mapping[str, FileSignature]) -> list[str]:
        """Remove remote files that are gone locally; nothing behind a link.

        ``deleted`` has their signatures when both sides agreed. Return the files that have changed since: a job has
        written them, so they are kept.
        """
        if not deleted:
            return []
        remote = await call_off_loop(_signatures, (await self._run_rsync("read", _ENTRIES)).stdout)
        found = [path for path in sorted(deleted) if path in remote and staging_rules.is_inside(path)]
        removed = "".join(f"./{path}\0" for path in found if remote[path] == deleted[path])
        await self._run_rsync("remove", _REMOVE_SCRIPT, stdin=removed.encode("utf-8", "surrogateescape"))
        return [path for path in found if remote[path] != deleted[path]]

    async def expiring(self, expires: str, name: str) -> list[str]:
        """Return the files that the cluster of this name is about to erase, unchanged for the site's limit."""
        minutes = int(staging_rules.parse_age(expires) * (1 - _ERASE_WARNING_SHARE) / 60)
        found = decode_output((await self._run_rsync("read", _OLD, f"{minutes}")).stdout).splitlines()
        if not found:
            return []
        many = f"{len(found)}{' or more' if len(found) == _MAX_OLD_FILES else ''} file{'' if len(found) == 1 else 's'}"
        return [
            (
                f"{many} in {self.dest} are about to expire: {name} deletes files that were not changed "
                f"for {expires}, for example {printable(found[0].removeprefix('./'))}. Use `touch` on a "
                "file on this computer to copy it again."
            )
        ]

    async def _run_rsync(self, subject: str, script: str, *args: str, stdin: bytes = b"") -> Completed:
        done = await self._transport.run(["/bin/sh", "-c", script, "sh", self.dest, *args], stdin=stdin, timeout=None)
        if done.exit_code:
            raise CommandError(
                f"Cannot {subject} {self.dest}: {printable(decode_output(done.stderr))[:500]}",
                hint="Check the permissions of the directory on the cluster, or choose another destination "
                "(stage=DIR:DEST).",
            )
        return done

    def _checked(self, done: Completed, *, is_pull: bool) -> Completed:
        if done.exit_code in (0, _VANISHED_EXIT_CODE):
            return done
        said = [line for line in printable(decode_output(done.stderr)).splitlines() if line.strip()]
        shown = "\n".join(line for line in said if not line.startswith("rsync error: some")) or f"{done.exit_code}"
        ends = (self.dest, self.source) if is_pull else (self.source, self.dest)
        hint = (
            "The results are in the directory on the cluster."
            if is_pull
            else ("Nothing was submitted. Exclude files with a line `- NAME` in .rsync-filter of the folder.")
        )
        raise CommandError(f"rsync from {ends[0]} to {ends[1]} failed: {shown[:1000]}", hint=hint)


def _signatures(listing: bytes) -> dict[str, FileSignature]:
    """Return the files and links of a listing of ``find`` by path."""
    found = (line.split(" ", 3) for line in listing.decode("utf-8", "surrogateescape").split("\0") if line)
    return {
        path: FileSignature(int(size), -1 if kind == "l" else int(time.partition(".")[0]))
        for kind, size, time, path in found
    }


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
