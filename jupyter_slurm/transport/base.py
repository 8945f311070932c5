"""Interface of a transport: the same operations on this computer and on a remote host behind SSH."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeGuard

__all__ = [
    "Completed",
    "Context",
    "DetachedRun",
    "DirectoryLock",
    "FileStat",
    "FileStream",
    "Route",
    "Sent",
    "Sink",
    "Stream",
    "Transport",
    "has_files",
]

Sent = Callable[[int, int], None]
"""Callback with the number of bytes that have arrived, and the total."""

Sink = Callable[[int, bytes], None]
"""Receiver of live output, called in a thread with 1 (standard output) or 2 (standard error) and bytes.

It blocks as long as its reader is slow, which makes the command wait. An exception ends the command.
"""


@dataclass(frozen=True)
class Completed:
    """Result of a finished command.

    ``exit_code`` is negative for a signal, as in :mod:`subprocess`. The streams are bytes, because Slurm prints
    arbitrary names of users.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True)
class Context:
    """Context in which a command runs.

    Attributes
    ----------
    cwd : str or None
        Working directory; None is the transport's own default.
    env : mapping or None
        The whole environment (local) or the named additions to it (SSH); None is the transport's own.
    umask : int or None
        File mode creation mask.
    limits : mapping
        Soft limits by the letter that ``ulimit`` of the POSIX shell has for them, values as ``ulimit`` takes them.
    """

    cwd: str | None = None
    env: Mapping[str, str] | None = None
    umask: int | None = None
    limits: Mapping[str, str] | None = None


@dataclass(frozen=True)
class FileStat:
    """Size in bytes, and modification time in seconds since the epoch (by the clock of that host).

    ``owner`` (a user ID) and ``mode`` are set for local files, None for remote ones.
    """

    size: int
    mtime: float
    owner: int | None = None
    mode: int | None = None


class Stream(Protocol):
    """Bidirectional byte stream with blocking calls: one thread receives, one other thread sends and ends the stream.

    A broken stream raises OSError, and never looks like a regular end.
    """

    def recv(self, size: int, /) -> bytes:
        """Wait for bytes and return up to ``size`` of them; empty: the peer has ended the stream."""
        ...

    def sendall(self, data: bytes, /) -> None:
        """Send all bytes, as fast as the peer reads them."""
        ...

    def shutdown_write(self) -> None:
        """End the outgoing direction; the peer may still send."""
        ...

    def close(self) -> None:
        """Close the stream, from any thread, any number of times. A waiting :meth:`recv` returns."""
        ...


class FileStream(Stream, Protocol):
    """Stream over sockets of this computer, which another process and the kernel can use."""

    def duplicates(self) -> tuple[socket.socket, socket.socket]:
        """Return sockets for output and input, valid until :meth:`close`.

        Raises
        ------
        ConnectionResetError
            The stream broke.
        """
        ...


def has_files(stream: Stream) -> TypeGuard[FileStream]:
    """Return whether a stream has such sockets."""
    return bool(getattr(stream, "has_files", False))


class Route(Protocol):
    """A route to the ports of one host. Its methods block, and may be called from any thread."""

    @property
    def is_alive(self) -> bool:
        """Return whether the route has not been seen to be broken. A broken route is replaced."""
        ...

    @property
    def proof_lasts(self) -> bool:
        """Return whether a listener needs no further check of its owner, because each :meth:`dial` makes one."""
        ...

    def find(self, port: int) -> str:
        """Return the address on the host under which the user's own program listens.

        Raises
        ------
        TunnelUnproven
            The listener belongs to another user, or its owner is unknown.
        TunnelError
            Nothing listens on the port.
        """
        ...

    def dial(self, address: str, port: int, timeout: float) -> Stream:
        """Connect; see :meth:`Transport.dial`."""
        ...

    def close(self) -> None:
        """Close the route."""
        ...


class DirectoryLock(Protocol):
    """A lock on a file. It ends with :meth:`release`, with its transport, or with the process that holds it."""

    @property
    def is_lost(self) -> bool:
        """Return whether the lock was lost, as with a broken connection; another process may hold it since."""
        ...

    def release(self) -> None:
        """Release the file. Never waits, and may be called again."""
        ...


class DetachedRun(Protocol):
    """A command started in detached mode: see :meth:`Transport.start_detached`."""

    @property
    def lock(self) -> DirectoryLock | None:
        """Return the lock of the new directory's first file; None if no directory was requested."""
        ...

    async def result(self, timeout: float | None) -> Completed | None:
        """Return the command's result; None if it still runs after ``timeout`` (seconds). It continues to run."""
        ...


class Transport(Protocol):
    """Executor of commands on a host. All paths are absolute; text is UTF-8 with surrogateescape.

    Raises
    ------
    CommandMissing, CommandTimeout, TransportError
        From every method. A missing file raises FileNotFoundError, as usual.
    """

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        context: Context | None = None,
        timeout: float | None = 60.0,
    ) -> Completed:
        """Run a command to its end; ``timeout`` in seconds. A time-out ends its whole process group."""
        ...

    async def run_live(
        self,
        argv: Sequence[str],
        text: bytes,
        sink: Sink,
        *,
        time_limit: float,
        context: Context | None = None,
        ahead: Sequence[str] | None = None,
    ) -> int:
        """Run a command, pass its output on as it arrives, and return its exit code (128 and the number of a signal).

        The last argument of the command is a private file with ``text``, which is removed at the end. Its standard
        input is empty. The command leads a session of its own. All processes of its group end with it, after
        ``time_limit`` (seconds), when this call is cancelled, when this process ends, and when the connection breaks.

        ``ahead`` is a command that does the same, but first waits until it can open the file with ``.go`` after its
        name, and does not need the text before that. The transport may start it for the next call with the same
        arguments, and end it unused.
        """
        ...

    async def start_detached(
        self,
        prefix: str,
        argv: Sequence[str],
        *,
        files: Mapping[str, bytes] | None = None,
        context: Context | None = None,
        sent: Sent | None = None,
    ) -> DetachedRun:
        """Start a command that must run at most once, and that must outlive this process.

        With ``files``, the directory of ``prefix`` is created first, with mode 0700 and these files with mode 0600. The
        first file is locked (flock) for the caller. The directory becomes visible complete and locked. FileExistsError:
        the directory exists already. If the command cannot be started, the directory is removed: then nothing has
        happened.

        ``PREFIX.out`` is created exclusively, which grants the right to run: a second caller gets FileExistsError. The
        file stays locked while the command lives, so that other processes can tell a running command from a dead one.
        The command's streams are written to ``PREFIX.out`` and ``PREFIX.err``. The command has its own session, so that
        the end of this process does not reach it.

        If large files must be sent first, ``sent`` is called with their progress. A cancellation before all are sent
        leaves nothing behind.

        Raises
        ------
        TransportError
            The command was not started; or, with ``details["may_run"]``, it is unknown whether it runs.
        """
        ...

    async def read(self, path: str, offset: int = 0, limit: int | None = None) -> bytes:
        """Read up to ``limit`` bytes from ``offset``."""
        ...

    async def read_owned(self, path: str, offset: int = 0, limit: int | None = None) -> bytes:
        """Read as :meth:`read` does, but only a file that no other user can have written.

        The owner is checked by the same action that reads the bytes, on the file that it has opened: see
        :mod:`jupyter_slurm.transport.owned_files`.

        Raises
        ------
        UntrustedFile
            Another user can have written the file, or put it there.
        """
        ...

    async def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        """Write a file atomically: readers see the old content or the new content, never a part."""
        ...

    async def stat(self, path: str) -> FileStat:
        """Return size and times of a file."""
        ...

    async def stat_all(self, paths: Sequence[str]) -> dict[str, FileStat]:
        """Return the status of many files with one query. Missing and unreadable files are left out."""
        ...

    async def make_dir(self, path: str) -> None:
        """Create a directory with mode 0700, and its missing parents."""
        ...

    async def list_dir(self, path: str) -> list[str]:
        """Return the names in a directory, unsorted."""
        ...

    async def remove(self, path: str) -> None:
        """Remove a file or a tree. A missing path is not an error; links are not followed."""
        ...

    async def acquire_lock(self, path: str) -> DirectoryLock | None:
        """Acquire the lock (``flock``) of a file; None if another process holds it.

        On a file system without locks, every caller gets the lock. Actions that must not happen twice are also guarded
        by exclusive creation (:meth:`start_detached`).
        """
        ...

    @property
    def generation(self) -> int:
        """Return a number that changes with each new connection. A login node's name may then lead to another host."""
        ...

    def dial(self, host: str, port: int, timeout: float) -> Stream:
        """Connect from the host to a TCP port. Blocks, and may be called from any thread but the event loop's.

        Raises
        ------
        TunnelError
            Nothing answers on the port, or forwarding is not allowed.
        TransportError
            No connection to the host within ``timeout`` (seconds).
        """
        ...

    def hops(self) -> Mapping[str, Callable[[], Route]]:
        """Return the jump hosts by name, each with a factory of a route to its own ports."""
        ...

    def pipe(self, argv: Sequence[str], timeout: float, *, env: Mapping[str, str] | None = None) -> Stream:
        """Start a command and return its standard input and output. Blocks as :meth:`dial` does.

        The command ends when the stream is closed. Its standard error is in the OSError of a broken stream.
        """
        ...

    def when_full(self, give_up: Callable[[], None]) -> None:
        """Register a function that closes a stream which is not in use.

        It is called in the event loop when the host allows no further session for :meth:`pipe`.
        """
        ...

    def close(self) -> None:
        """Release the resources of the transport. Running commands are not waited for."""
        ...
