"""Results of a job on this computer: received in a private directory, checked, and moved into the staged folder.

A cluster may send something else than it has listed, and only the listing was checked by the choice. So each chosen
file is moved by its name, if it is what was listed; everything else is removed. No link is followed on the way.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from typing import Final

from jupyter_slurm.domain.staging_rules import (
    PARTIAL_FOLDER_NAME,
    TEMPORARY_FOLDER,
    FileSignature,
    FolderChange,
    ResultChoice,
)
from jupyter_slurm.errors import CommandError
from jupyter_slurm.services.staging.local_folder import FolderTree, sign_status

__all__ = ["ReceivedResults"]

_DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_COPY_BYTES: Final = 1 << 20


class ReceivedResults:
    """Directory in a staged folder, on its file system, that receives results.

    Parameters
    ----------
    folder : str
        The staged folder.
    owner, dest : str
        Name of the cluster's transfers, and the copy of the folder on the cluster: two clusters may send at once.
    """

    def __init__(self, folder: str, owner: str, dest: str) -> None:
        named = "\0".join((owner, dest)).encode("utf-8", "surrogateescape")
        self._folder, self._outer = folder, os.path.join(folder, PARTIAL_FOLDER_NAME)
        self._begun = self._free = 0
        self.path = os.path.join(self._outer, f"received-{hashlib.sha256(named).hexdigest()[:16]}")

    def make(self, choice: ResultChoice) -> None:
        """Make the directory. An earlier run may have left the beginnings of chosen files, which are kept.

        Raises
        ------
        CommandError
            The folder cannot be written.
        """
        try:
            for tries_left in reversed(range(20)):  # another copy of the folder may remove the outer one
                try:
                    _make_own(self._outer, self._folder)
                    _make_own(self.path, self._folder)
                    break
                except (FileNotFoundError, FileExistsError):
                    if not tries_left:
                        raise
            self._drop_others({change.path: change for change in choice.copied})
            for name in (PARTIAL_FOLDER_NAME, TEMPORARY_FOLDER):
                _make_own(os.path.join(self.path, name), self._folder)
            self._begun, self._free = self._size(), shutil.disk_usage(self.path).free
        except OSError as error:
            raise self._failure(error) from error

    def accept(self, choice: ResultChoice, base: Mapping[str, FileSignature]) -> ResultChoice:
        """Move what was received and is as it was listed; return what is in its place now, and what is not.

        A file that has changed in the folder since ``base`` stays as it is.

        Raises
        ------
        CommandError
            The folder cannot be written. Everything else was moved.
        """
        done, failed = ResultChoice(), list[OSError]()
        tree = FolderTree(self._folder)
        try:
            with _Pair(self.path, self._folder) as pair:
                for change in sorted(choice.copied, key=lambda change: change.path):
                    try:
                        if _accept(pair, change, base.get(change.path)) or _is_equal(tree, change):
                            done.copied.append(change)
                    except _Unlisted:
                        done.refused.append(change.path)
                    except _Changed:
                        done.omitted.append(change.path)
                    except OSError as error:
                        failed.append(error)
        except OSError as error:
            failed.append(error)
        if failed:
            raise self._failure(failed[0]) from failed[0]
        return done

    def has_outgrown(self, limit: int) -> bool:
        """Return whether the directory has grown by more than this since it was made."""
        try:
            if self._free - shutil.disk_usage(self.path).free <= limit:
                return False  # the files need not be counted
        except OSError:
            return False  # the folder is gone
        return self._size() - self._begun > limit

    def _size(self) -> int:
        count, pending = 0, [self.path]
        while pending:
            with contextlib.suppress(OSError), os.scandir(pending.pop()) as items:
                for item in items:
                    if item.is_dir(follow_symlinks=False):
                        pending.append(item.path)
                    else:
                        with contextlib.suppress(FileNotFoundError):
                            count += item.stat(follow_symlinks=False).st_size
        return count

    def remove(self) -> None:
        """Remove the directory, with all that is in it."""
        if _is_own(self._outer, self._folder) and _is_own(self.path, self._folder):
            _remove(self.path)
        with contextlib.suppress(OSError):  # other directories may be in it
            os.rmdir(self._outer)

    def _drop_others(self, chosen: Mapping[str, FolderChange]) -> None:
        """Remove all but directories and files that may belong to chosen ones, and that are not larger."""
        for path, found in list(_walk(self.path)):
            folder, name = os.path.split(path)
            above, inner = os.path.split(folder)
            change = chosen.get(os.path.join(above, name) if inner == PARTIAL_FOLDER_NAME else path)
            is_file = change is not None and not change.is_folder and change.sign.mtime != -1
            if stat.S_ISDIR(found.st_mode):
                if is_file or path == TEMPORARY_FOLDER:
                    _remove(os.path.join(self.path, path))
            elif change is None or not is_file or not stat.S_ISREG(found.st_mode) or found.st_size > change.sign.size:
                with contextlib.suppress(FileNotFoundError):  # went with its directory
                    os.unlink(os.path.join(self.path, path))

    def _failure(self, error: OSError) -> CommandError:
        return CommandError(
            f"Cannot write to {self._folder}: {error.strerror}.",
            hint="Check its permissions and the free space. The results are in the directory on the cluster.",
        )


class _Unlisted(Exception):
    """The cluster has sent something else than it has listed."""


class _Changed(Exception):
    """The staged folder has something else than when the file was chosen."""


class _Pair:
    """The same directory of two trees, open. A missing one of the second is made, with the mode of the first.

    The last directory stays open: paths come sorted.
    """

    def __init__(self, source: str, dest: str) -> None:
        self._last: tuple[str, list[int]] = ("", [])
        self._made: list[tuple[str, int]] = []
        self._tops = [os.open(source, _DIRECTORY_FLAGS)]
        try:
            self._tops.append(os.open(dest, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        except OSError:
            os.close(self._tops[0])
            raise

    def __enter__(self) -> _Pair:
        return self

    def __exit__(self, *_: object) -> None:
        for path, mode in reversed(self._made):
            with contextlib.suppress(OSError, _Unlisted, _Changed):
                os.fchmod(self.at(path)[1], mode)
        for file in (*self._last[1], *self._tops):
            os.close(file)

    def at(self, folder: str) -> list[int]:
        """Return both directories.

        Raises
        ------
        FileNotFoundError
            The first tree has no such directory.
        _Unlisted, _Changed
            The first tree or the second has something else in its place.
        """
        if not folder:
            return self._tops
        if self._last[0] != folder:
            for file in self._last[1]:
                os.close(file)
            self._last = ("", [])
            self._last = (folder, self._opened(folder))
        return self._last[1]

    def _opened(self, folder: str) -> list[int]:
        pair, path = [os.dup(file) for file in self._tops], ""
        for name in folder.split("/"):
            path = os.path.join(path, name)
            before = pair
            try:
                pair = self._step(before, name, path)
            finally:
                for file in before:
                    os.close(file)
        return pair

    def _step(self, pair: list[int], name: str, path: str) -> list[int]:
        found = os.lstat(name, dir_fd=pair[0])
        if not stat.S_ISDIR(found.st_mode):
            raise _Unlisted
        mode = stat.S_IMODE(found.st_mode)
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(name, mode | stat.S_IRWXU, dir_fd=pair[0])
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, mode | stat.S_IRWXU, dir_fd=pair[1])
            if mode & stat.S_IRWXU != stat.S_IRWXU:
                self._made.append((path, mode))
        if not stat.S_ISDIR(os.lstat(name, dir_fd=pair[1]).st_mode):
            raise _Changed
        outer = os.open(name, _DIRECTORY_FLAGS, dir_fd=pair[1])
        try:
            there = os.fstat(outer)
            before = stat.S_IMODE(there.st_mode)
            if before & stat.S_IRWXU != stat.S_IRWXU and there.st_uid == os.geteuid():
                os.fchmod(outer, before | stat.S_IRWXU)  # rsync would, too
                self._made.append((path, before))
            return [os.open(name, _DIRECTORY_FLAGS, dir_fd=pair[0]), outer]
        except OSError:
            os.close(outer)
            raise


def _is_equal(tree: FolderTree, change: FolderChange) -> bool:
    """Return whether a file that was not received is the same in the folder already."""
    with contextlib.suppress(OSError):
        return not change.is_folder and tree.file_signature(change.path) == change.sign
    return False


def _accept(pair: _Pair, change: FolderChange, recorded: FileSignature | None) -> bool:
    """Move one entry to its place; return False if it was not received."""
    folder, name = os.path.split(change.path)
    try:
        if change.is_folder:
            pair.at(change.path)
            return True
        inner, outer = pair.at(folder)
        found = os.lstat(name, dir_fd=inner)
    except FileNotFoundError:
        return False
    if not _is_listed(change, found, name, inner):
        raise _Unlisted
    try:
        there = os.lstat(name, dir_fd=outer)
    except FileNotFoundError:
        there = None
    if there is not None and not _is_same(there, recorded):
        raise _Changed
    if there is not None and stat.S_ISREG(there.st_mode) and stat.S_ISREG(found.st_mode):
        os.chmod(name, _merged_mode(found.st_mode, there.st_mode), dir_fd=inner)
    try:
        os.rename(name, name, src_dir_fd=inner, dst_dir_fd=outer)
    except OSError as error:
        if error.errno != errno.EXDEV:  # a directory may be on another file system
            raise
        _copy(name, inner, outer)
    return True


def _is_same(found: os.stat_result, recorded: FileSignature | None) -> bool:
    with contextlib.suppress(OSError):
        return sign_status(found) == recorded
    return False


def _is_listed(change: FolderChange, found: os.stat_result, name: str, at: int) -> bool:
    if change.target is not None:
        return stat.S_ISLNK(found.st_mode) and os.readlink(name, dir_fd=at) == change.target
    return change.sign.mtime != -1 and stat.S_ISREG(found.st_mode)


def _merged_mode(received: int, replaced: int) -> int:
    """Return the mode of a replaced file, executable if the received one is, as ``rsync --executability`` does it."""
    mode = stat.S_IMODE(replaced)
    if not received & 0o111:
        return mode & ~0o111
    return mode if mode & 0o111 else mode | (mode & 0o444) >> 2


def _copy(name: str, inner: int, outer: int) -> None:
    """Move an entry to another file system."""
    draft = f".{secrets.token_hex(8)}"
    found = os.lstat(name, dir_fd=inner)
    try:
        if stat.S_ISLNK(found.st_mode):
            os.symlink(os.readlink(name, dir_fd=inner), draft, dir_fd=outer)
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with (
                os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=inner), "rb") as source,
                os.fdopen(os.open(draft, flags, 0o600, dir_fd=outer), "wb") as dest,
            ):
                shutil.copyfileobj(source, dest, _COPY_BYTES)
                dest.flush()
                os.fchmod(dest.fileno(), stat.S_IMODE(found.st_mode))
                os.utime(dest.fileno(), ns=(found.st_atime_ns, found.st_mtime_ns))
        os.rename(draft, name, src_dir_fd=outer, dst_dir_fd=outer)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=outer)
        raise
    os.unlink(name, dir_fd=inner)


def _is_own(path: str, folder: str) -> bool:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    # A file system may show one owner for everything; then that is the owner of the folder, too.
    return stat.S_ISDIR(found.st_mode) and found.st_uid in (os.geteuid(), os.lstat(folder + "/.").st_uid)


def _make_own(path: str, folder: str) -> None:
    if not _is_own(path, folder):
        os.mkdir(path, 0o700)


def _walk(top: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield everything below a directory, which becomes writable."""
    pending = [""]
    while pending:
        below = pending.pop()
        folder = os.path.join(top, below)
        mode = stat.S_IMODE(os.lstat(folder).st_mode)
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(folder, mode | stat.S_IRWXU)
        with os.scandir(folder) as items:
            names = [item.name for item in items]
        for path in (os.path.join(below, name) for name in names):
            found = os.lstat(os.path.join(top, path))
            if stat.S_ISDIR(found.st_mode):
                pending.append(path)
            yield path, found


def _remove(path: str) -> None:
    shutil.rmtree(path, ignore_errors=True)
    if os.path.lexists(path):  # some directories are read-only
        for _ in _walk(path):
            pass
        shutil.rmtree(path, ignore_errors=True)
