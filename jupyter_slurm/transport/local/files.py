"""Creation and locking of files for the local transport."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterator

from jupyter_slurm.errors import TransportError

__all__ = [
    "EXHAUSTED_HINT",
    "LocalDirectoryLock",
    "content",
    "lock",
    "make_private",
    "mapped_errors",
    "new_file",
    "write_all",
]

EXHAUSTED_HINT = (
    "Close tunnels that you do not need, or raise the limit (`ulimit -n`) and start a new agent: `jupyter slurm agent "
    "stop`."
)
_HINTS = {
    errno.EMFILE: EXHAUSTED_HINT,
    errno.ENFILE: EXHAUSTED_HINT,
    errno.ENOSPC: "The disk is full. Free some space: `jupyter slurm clean` removes old job directories.",
    errno.EDQUOT: "Your quota is used up. Free some space: `jupyter slurm clean` removes old job directories.",
    errno.EROFS: (
        "Set job_root (in the settings or the profile) to a writable directory: the file system is read-only."
    ),
    errno.EACCES: ("Set job_root (in the settings or the profile) to a directory of yours that the compute nodes see."),
}

# Lustre mounted without flock, NFS without its lock daemon.
_NO_LOCKS = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK})


@contextlib.contextmanager
def mapped_errors(action: str, path: str) -> Iterator[None]:
    """Map errors of the operating system; FileNotFoundError and FileExistsError are kept."""
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError as error:
        hint = _HINTS.get(error.errno or 0, "")
        raise TransportError(
            f"Cannot {action} {path}: {error.strerror or str(error).rstrip('.')}.", hint=hint, path=path
        ) from error


class LocalDirectoryLock:
    """See :class:`jupyter_slurm.transport.base.DirectoryLock`.

    Parameters
    ----------
    file : int
        The open file.
    held : set of int
        The files that a transport holds. This file is among them until it is closed, so that it is closed with the
        transport.
    run_later : callable
        Runs a function in another thread, or never; RuntimeError if no thread is left.
    """

    def __init__(self, file: int, held: set[int], run_later: Callable[[Callable[[], None]], object]) -> None:
        self._file, self._held, self._run_later = file, held, run_later
        self._is_released = False
        held.add(file)

    @property
    def is_lost(self) -> bool:
        """Return False: a local lock does not end by itself."""
        return False

    def release(self) -> None:
        """Release the file."""
        if self._is_released:
            return
        self._is_released = True
        try:
            self._run_later(self._close)  # may be slow on a network file system
        except RuntimeError:
            self._close()

    def _close(self) -> None:
        try:
            self._held.remove(self._file)
        except KeyError:  # the transport, and with it this file, was closed meanwhile
            return
        os.close(self._file)


def content(path: str) -> bytes:
    """Return the content of a file."""
    with open(path, "rb", buffering=0) as file:
        return file.readall()


def new_file(path: str, mode: int = 0o600) -> int:
    """Create a new file, and open it for writing."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)


def write_all(file: int, data: bytes) -> None:
    """Write all bytes to an open file."""
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def make_private(path: str) -> None:
    """Create a directory and its parents with mode 0700 (``os.makedirs`` applies the mode only to the last)."""
    parent = os.path.dirname(path)
    if parent and not os.path.isdir(parent):
        make_private(parent)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def lock(file: int, operation: int = 0) -> None:
    """Lock an open file, if its file system has locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | operation)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
