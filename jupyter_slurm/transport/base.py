"""What a transport is: the same few verbs for this machine and for one behind SSH."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Completed", "Context", "DetachedRun", "DirectoryLock", "FileStat", "Route", "Sent", "Stream", "Transport"]

Sent = Callable[[int, int], None]
"""Is told how many bytes of how many have arrived on the other side."""


@dataclass(frozen=True)
class Completed:
    """What a command left behind.

    ``exit_code`` is negative for a signal, as in :mod:`subprocess`; the streams are bytes, because Slurm prints
    whatever people put into names.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True)
class Context:
    """The circumstances in which a command runs.

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
    """Size in bytes, modification time in seconds since the epoch (the clock of that machine).

    ``owner`` (a user id) and ``mode`` are those of files of this machine; None elsewhere.
    """

    size: int
    mtime: float
    owner: int | None = None
    mode: int | None = None


class Stream(Protocol):
    """Bytes in both directions, for blocking calls: one thread receives, one other sends and ends it.

    Whoever is cut off gets an OSError, never an end that looks like a proper one.
    """

    def recv(self, size: int, /) -> bytes:
        """Wait for bytes and return up to ``size`` of them; none: the other side has said all."""
        ...

    def sendall(self, data: bytes, /) -> None:
        """Send, as fast as the other side takes it."""
        ...

    def shutdown_write(self) -> None:
        """Say that nothing more will be sent; the other side may go on."""
        ...

    def close(self) -> None:
        """Let it go, from any thread, and again; who waits in :meth:`recv` is woken."""
        ...


class Route(Protocol):
    """A way to the ports of one machine. Its methods block, and may be called from any thread."""

    @property
    def is_alive(self) -> bool:
        """Whether it was not seen to be broken; a broken one is made anew."""
        ...

    @property
    def proof_lasts(self) -> bool:
        """Whether it need not be asked again who listens: :meth:`dial` looks at it each time, at the far end."""
        ...

    def find(self, port: int) -> str:
        """Return the address there under which the person's own program is reached.

        Raises
        ------
        TunnelUnproven
            Somebody else listens there, or it cannot be said who does.
        TunnelError
            Nothing listens there.
        """
        ...

    def dial(self, address: str, port: int, timeout: float) -> Stream:
        """Connect; see :meth:`Transport.dial`."""
        ...

    def close(self) -> None:
        """Let it go."""
        ...


class DirectoryLock(Protocol):
    """A lock on a file. It ends with :meth:`release`, with its transport or with the process that has it."""

    @property
    def is_lost(self) -> bool:
        """Whether it has ended by itself, as with a connection that broke: others may have the file since."""
        ...

    def release(self) -> None:
        """Let others have the file; never waits, and may be called again."""
        ...


class DetachedRun(Protocol):
    """A command that was started for good: see :meth:`Transport.start_once`."""

    @property
    def hold(self) -> DirectoryLock | None:
        """The lock of the new folder's first file; None where no folder was asked for."""
        ...

    async def result(self, timeout: float | None) -> Completed | None:
        """Return what it left; None: it still runs when ``timeout`` (seconds) is over, and goes on."""
        ...


class Transport(Protocol):
    """Where commands run. All paths are absolute; text is UTF-8 with surrogateescape.

    Raises
    ------
    CommandMissing, CommandTimeout, TransportError
        From every method; a file that is not there raises FileNotFoundError, as usual.
    """

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        context: Context | None = None,
        timeout: float | None = 60.0,
    ) -> Completed:
        """Run a command to its end; ``timeout`` in seconds. Its whole process group ends with a time-out."""
        ...

    async def start_once(
        self,
        prefix: str,
        argv: Sequence[str],
        *,
        files: Mapping[str, bytes] | None = None,
        context: Context | None = None,
        sent: Sent | None = None,
    ) -> DetachedRun:
        """Start a command that must run once and must not die with us.

        With ``files``, the directory of ``prefix`` is made first, 0700 and with these files 0600 in it, and the first
        of them is locked (flock) for us. Whoever sees the directory sees it whole and held. FileExistsError: there is
        one already. It goes again when the command cannot be started: then nothing has happened.

        ``PREFIX.out`` is made exclusively, which is the right to run: who comes second gets FileExistsError. It stays
        locked while the command lives, so that others can tell "still running" from "died". The command's streams go
        into ``PREFIX.out`` and ``PREFIX.err``. Its session is its own; the end of ours does not reach it.

        Where large files have a way to go before it starts, ``sent`` is told how far they are. Who is cancelled before
        that is all leaves nothing behind.

        Raises
        ------
        TransportError
            It was not started; or, with ``details["may_run"]``, nobody knows.
        """
        ...

    async def read(self, path: str, offset: int = 0, limit: int | None = None) -> bytes:
        """Read up to ``limit`` bytes from ``offset``."""
        ...

    async def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        """Write a file in one step: the old content or the new one, never half."""
        ...

    async def stat(self, path: str) -> FileStat:
        """Look at a file."""
        ...

    async def stat_all(self, paths: Sequence[str]) -> dict[str, FileStat]:
        """Look at many files with one question; those that are not there, or not ours to look at, are left out."""
        ...

    async def make_dir(self, path: str) -> None:
        """Make a directory 0700 and its parents, where they are not there yet."""
        ...

    async def list_dir(self, path: str) -> list[str]:
        """Return the names in a directory, unsorted."""
        ...

    async def remove(self, path: str) -> None:
        """Remove a file or a tree; what is not there is fine; links are not followed."""
        ...

    async def hold(self, path: str) -> DirectoryLock | None:
        """Have the lock (``flock``) of a file; None while another process has it.

        Where the file system knows no locks everybody gets it: what must not happen twice is made exclusive by other
        means too (:meth:`start_once`).
        """
        ...

    @property
    def generation(self) -> int:
        """Changes with each new connection: a login node's name may lead to another machine then."""
        ...

    def dial(self, host: str, port: int, timeout: float) -> Stream:
        """Connect from that machine to a TCP port; blocks, and may be called from any thread but the event loop's.

        Raises
        ------
        TunnelError
            Nothing answers there, or connections are not passed on.
        TransportError
            There is no connection to that machine within ``timeout`` (seconds).
        """
        ...

    def hops(self) -> Mapping[str, Callable[[], Route]]:
        """Return the hosts on the way to that machine by name, each with what makes a way to its own ports."""
        ...

    def pipe(self, argv: Sequence[str], timeout: float, *, env: Mapping[str, str] | None = None) -> Stream:
        """Start a command and return its standard input and output; blocks as :meth:`dial` does.

        It ends when the stream is closed. What it prints on standard error is in the OSError of a stream that broke.
        """
        ...

    def close(self) -> None:
        """Let go of what the transport holds; commands under way are not waited for."""
        ...
