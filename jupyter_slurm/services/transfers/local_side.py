"""The side of a transfer on this computer. What was received from a cluster is checked before it is moved."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import stat
from collections.abc import Iterator, Sequence
from typing import Final

from jupyter_slurm.domain.staging_rules import PARTIAL_FOLDER_NAME
from jupyter_slurm.domain.staging_rules import names as first_names
from jupyter_slurm.domain.storage.transfer_rules import DIRECTORY, FILE, LINK, UNREADABLE, Entry, is_copied
from jupyter_slurm.errors import CommandError, UsageError
from jupyter_slurm.services.staging.local_folder import check_free_space
from jupyter_slurm.services.transfers.sides import Destination, Group, Item

__all__ = ["LocalSide", "open_directory"]

_DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class LocalSide:
    """Files of this computer."""

    async def resolve(self, sources: Sequence[str]) -> list[Item]:
        """Return the sources; see :class:`Side`."""
        return await asyncio.to_thread(lambda: [_resolve(source) for source in sources])

    async def prepare(self, dest: str, count: int, partial: str) -> Destination:
        """Make the destination; see :class:`Side`."""
        try:
            return await asyncio.to_thread(_prepare, dest, count > 1 or dest.endswith("/"), partial)
        except OSError as error:
            raise _failure("write to", error.filename or dest, error) from error

    async def list_files(self, folder: str, names: Sequence[str]) -> dict[str, Entry]:
        """Return everything below these names; see :class:`Side`."""
        try:
            return await asyncio.to_thread(lambda: dict(_walk(folder, list(names))))
        except OSError as error:
            raise _failure("read", error.filename or folder, error) from error

    async def make(self, dest: Destination, groups: Sequence[Group]) -> None:
        """Make the directories that receive files."""
        for path in (dest.partial, *(group.received for group in groups)):
            try:
                if not _is_own_directory(path):
                    os.mkdir(path, 0o700)
            except OSError as error:
                raise _failure("write to", os.path.dirname(path), error) from error

    async def drop(self, folder: str, paths: Sequence[str]) -> None:
        """Remove received entries; see :class:`Side`."""
        try:
            await asyncio.to_thread(_drop, folder, paths)
        except OSError as error:
            raise _failure("write to", error.filename or folder, error) from error

    async def finish(self, dest: Destination, groups: Sequence[Group], *, overwrite: bool) -> list[str]:
        """Check received files, and move them to the destination; see :class:`Side`.

        Raises
        ------
        CommandError
            The cluster has sent something else than was asked for. Nothing was moved.
        """
        try:
            return await asyncio.to_thread(_finish, dest, groups, overwrite)
        except OSError as error:
            raise _failure("write to", dest.folder, error) from error

    async def check_room(self, dest: Destination, needed: int) -> None:
        """Refuse a transfer that the disk has no room for."""
        check_free_space(dest.folder, needed)

    async def discard(self, dest: Destination) -> None:
        """Remove what was received."""
        await self.remove(dest.partial)

    async def remove(self, path: str) -> None:
        """Remove a directory."""
        await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)


@contextlib.contextmanager
def open_directory(path: str, at: int | None = None) -> Iterator[int]:
    """Open a directory that is not a link."""
    file = os.open(path, _DIRECTORY_FLAGS, dir_fd=at)
    try:
        yield file
    finally:
        os.close(file)


def _failure(verb: str, path: str, error: OSError) -> CommandError:
    return CommandError(
        f"Cannot {verb} {path}: {error.strerror}.", hint=f"Check its permissions and the free space: `df {path}`."
    )


def _resolve(source: str) -> Item:
    path = os.path.normpath(source)
    real = os.path.realpath(path)
    folder, name = os.path.split(real)
    if not os.path.lexists(real) or not os.access(real, os.R_OK) or not name:
        raise UsageError(f"{path} does not exist, or you may not read it.", hint="Check the name and its permissions.")
    return Item(folder, name, os.path.basename(path) or name)


def _prepare(dest: str, is_folder: bool, partial: str) -> Destination:
    path = os.path.normpath(dest)
    if is_folder:
        os.makedirs(path, exist_ok=True)
    keeps = os.path.isdir(path)
    folder, rename = (path, None) if keeps else os.path.split(path)
    if not os.path.isdir(folder):
        raise CommandError(
            f"Cannot write to {path}: the directory {folder} does not exist on this computer.",
            hint=f"Make it first, or check the name: `ls -ld {shlex.quote(folder)}`.",
        )
    joined = os.path.join(folder, partial)
    return Destination(folder, joined, rename, is_resumed=_is_own_directory(joined))


def _is_own_directory(path: str) -> bool:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _walk(folder: str, names: list[str]) -> Iterator[tuple[str, Entry]]:
    for name in names:
        try:
            found = os.lstat(os.path.join(folder, name))
        except FileNotFoundError:
            continue
        yield name, _entry(os.path.join(folder, name), found)
        pending = [name] if stat.S_ISDIR(found.st_mode) else []
        while pending:
            below = pending.pop()
            try:
                for path, item in [(os.path.join(below, i.name), i) for i in os.scandir(os.path.join(folder, below))]:
                    yield path, _entry(item.path, item.stat(follow_symlinks=False))
                    if item.is_dir(follow_symlinks=False):
                        pending.append(path)
            except PermissionError:
                yield below, Entry(UNREADABLE, 0, 0)


def _entry(path: str, found: os.stat_result) -> Entry:
    if stat.S_ISLNK(found.st_mode):
        return Entry(LINK, found.st_size, int(found.st_mtime), os.readlink(path))
    kind = DIRECTORY if stat.S_ISDIR(found.st_mode) else FILE if stat.S_ISREG(found.st_mode) else "?"
    return Entry(kind, found.st_size, int(found.st_mtime))


def _drop(folder: str, paths: Sequence[str]) -> None:
    for path, entry in _walk(folder, [""]):  # it reads a directory later
        if entry.kind == DIRECTORY:
            _make_writable(os.path.join(folder, path))
    for path in paths:
        joined = os.path.join(folder, path)
        if os.path.isdir(joined) and not os.path.islink(joined):
            shutil.rmtree(joined)
        else:
            with contextlib.suppress(FileNotFoundError):  # went with its directory
                os.unlink(joined)


def _make_writable(name: str, at: int | None = None) -> bool:
    """Let the owner write a received directory, so that it can be moved; return whether its mode has changed."""
    mode = stat.S_IMODE(os.lstat(name, dir_fd=at).st_mode)
    if mode & stat.S_IRWXU == stat.S_IRWXU:
        return False
    os.chmod(name, mode | stat.S_IRWXU, dir_fd=at)
    return True


def _finish(dest: Destination, groups: Sequence[Group], overwrite: bool) -> list[str]:
    met = list[str]()
    with contextlib.ExitStack() as opened:
        base = os.open(dest.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        opened.callback(os.close, base)
        for group in groups:
            _check_received(group)
        for group in groups:
            with open_directory(group.received) as received:
                for name, final in group.names.items():
                    met += _merge(name, received, final, base, overwrite)
    shutil.rmtree(dest.partial, ignore_errors=True)
    return met


def _check_received(group: Group) -> None:
    """Refuse names that were not asked for, and everything but files, directories and links that stay inside."""
    there = os.listdir(group.received)
    bad = [name for name in there if name not in group.names and name != PARTIAL_FOLDER_NAME]
    for path, entry in _walk(group.received, [name for name in there if name in group.names]):
        if not is_copied(path, entry):
            bad.append(path)
    if bad:
        raise CommandError(
            f"The cluster sent files that were not asked for: {first_names(bad)}. Nothing was moved to its place.",
            hint=f"Look at them, and remove the directory: {os.path.dirname(group.received)}.",
        )


def _merge(name: str, received: int, final: str, base: int, overwrite: bool, path: str = "") -> list[str]:
    """Move an entry from one directory to another; return the paths in whose place something else is."""
    path = os.path.join(path, final)
    try:
        found = os.lstat(name, dir_fd=received)
    except FileNotFoundError:
        return []
    there = _lstat(final, base)
    if stat.S_ISDIR(found.st_mode):
        changed = _make_writable(name, received)
        if there is None:
            with open_directory(name, received) as moved:
                os.rename(name, final, src_dir_fd=received, dst_dir_fd=base)
                if changed:
                    os.fchmod(moved, stat.S_IMODE(found.st_mode))
            return []
        if not stat.S_ISDIR(there.st_mode):
            return [path]
        met = list[str]()
        with open_directory(name, received) as inner, open_directory(final, base) as outer:
            for each in os.listdir(inner):
                if each != PARTIAL_FOLDER_NAME:
                    met += _merge(each, inner, each, outer, overwrite, path)
        return met
    if there is not None and (not overwrite or stat.S_ISDIR(there.st_mode)):
        return [path]
    if there is None and stat.S_ISREG(found.st_mode):
        return _link(name, received, final, base, path)
    os.rename(name, final, src_dir_fd=received, dst_dir_fd=base)
    return []


def _link(name: str, received: int, final: str, base: int, path: str) -> list[str]:
    """Move a file without replacing one that has appeared meanwhile, where the file system can do that."""
    try:
        os.link(name, final, src_dir_fd=received, dst_dir_fd=base, follow_symlinks=False)
    except FileExistsError:
        return [path]
    except OSError:  # no hard links
        os.rename(name, final, src_dir_fd=received, dst_dir_fd=base)
        return []
    os.unlink(name, dir_fd=received)
    return []


def _lstat(name: str, at: int) -> os.stat_result | None:
    try:
        return os.lstat(name, dir_fd=at)
    except FileNotFoundError:
        return None
