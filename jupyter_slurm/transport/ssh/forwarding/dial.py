"""Streams over a link to a port or a command, for threads that may wait until the link is up again."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as NotInTime
from typing import Any, Protocol, TypeVar

import paramiko

from jupyter_slurm.errors import TransportError, TunnelError
from jupyter_slurm.transport.base import Context, Stream
from jupyter_slurm.transport.ssh.link.persistent import PersistentLink
from jupyter_slurm.transport.ssh.prompts import printable
from jupyter_slurm.transport.ssh.protocols import LinkLost, Session
from jupyter_slurm.transport.ssh.shell.calls import context_words, shell_line
from jupyter_slurm.transport.ssh.shell.session_budget import SessionClaim
from jupyter_slurm.transport.ssh.shell.shell import Shell

__all__ = ["ChannelLimit", "CommandStream", "dial", "open_command", "refused", "wait_for"]

T = TypeVar("T")

_FORBIDDEN_CODE = 1  # SSH_OPEN_ADMINISTRATIVELY_PROHIBITED
_MAX_STDERR_BYTES = 4096  # bytes to keep of a command's standard error
_STDERR_TIMEOUT_S = 1.0  # seconds until the last of it has arrived
_RETRY_INTERVAL_S = 0.05  # seconds
_SESSION_CLOSE_S = 2.0  # seconds until a closed session makes room
_GRACE_PERIOD_S = 5.0  # seconds for the loop to give up by itself


def dial(link: PersistentLink, host: str, port: int, timeout: float) -> Stream:
    """Return a stream from the host at the end of a link to a port; see :meth:`Transport.dial`."""
    deadline = time.monotonic() + timeout
    while True:
        _wait(link, deadline)
        try:
            return link.dial(host, port, max(1.0, deadline - time.monotonic()))
        except LinkLost:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_RETRY_INTERVAL_S)
        except paramiko.ChannelException as error:
            raise refused(link.name, host, port, error) from None


def refused(name: str, host: str, port: int, error: paramiko.ChannelException) -> TunnelError:
    """Return a plain explanation why a server did not open a stream."""
    if error.code == _FORBIDDEN_CODE:
        return TunnelError(
            f"{name} does not forward connections (AllowTcpForwarding or PermitOpen of its sshd).",
            hint=f"Ask the administrators of {name} to set `AllowTcpForwarding local`. Tunnels through a job "
            "step do not need it.",
            why="forbidden",
        )
    said = printable(error.text or "", 200)
    return TunnelError(
        f"No program answers on port {port} of {host}, as seen from {name}: {said}",
        hint="Check that your program has started, and that it listens on this port.",
        why="refused",
    )


def wait_for(link: PersistentLink, timeout: float) -> None:
    """Wait in a thread until the link is up, at most this many seconds."""
    _wait(link, time.monotonic() + timeout)


def _wait(link: PersistentLink, deadline: float) -> None:
    if not link.is_alive:
        _in_loop(link, link.wait_ready(max(0.1, deadline - time.monotonic())), deadline)


def _in_loop(link: PersistentLink, work: Coroutine[Any, Any, T], deadline: float) -> T:
    """Wait in a thread for a coroutine that only the link's loop can run."""
    lost = LinkLost(f"There is no connection to {link.name} yet.", host=link.name)
    if link.loop is None:
        work.close()
        raise lost
    try:
        working = asyncio.run_coroutine_threadsafe(work, link.loop)
    except RuntimeError:  # the loop is closed
        work.close()
        raise lost from None
    try:
        return working.result(max(0.1, deadline - time.monotonic()) + _GRACE_PERIOD_S)
    except (NotInTime, CancelledError):
        working.cancel()
        raise lost from None


class CommandStream:
    """Standard input and output of a command over a session; its standard error is in the error at its end."""

    def __init__(self, session: Session, ended: Callable[[], None]) -> None:
        self._session, self._ended = session, ended
        self._stderr = bytearray()
        session.settimeout(None)
        # Also while nothing is read: a command that cannot write an error message waits.
        self._listening = threading.Thread(target=self._listen, name="jupyter-slurm-errors", daemon=True)
        self._listening.start()

    @property
    def has_files(self) -> bool:
        """Return whether :meth:`duplicates` is possible: not over paramiko, which encrypts in this process."""
        return hasattr(self._session, "duplicates")

    def duplicates(self) -> tuple[socket.socket, socket.socket]:
        """Return sockets for output and input that another process may use until :meth:`close`."""
        try:
            made: tuple[socket.socket, socket.socket] = self._session.duplicates()  # type: ignore[attr-defined]
        except EOFError as error:
            raise ConnectionResetError("the connection broke") from error
        return made

    def recv(self, size: int) -> bytes:
        """Wait for output. A command that ended with an error message has broken the stream."""
        try:
            data = self._session.recv(size)
        except (paramiko.SSHException, EOFError) as error:
            raise ConnectionResetError("the connection broke") from error
        if not data:
            self._listening.join(_STDERR_TIMEOUT_S)
            raise ConnectionResetError(printable(bytes(self._stderr), 1000).strip() or "the command ended")
        return data

    def _listen(self) -> None:
        with contextlib.suppress(paramiko.SSHException, OSError, EOFError):
            while said := self._session.recv_stderr(_MAX_STDERR_BYTES):
                self._stderr += said
                del self._stderr[:-_MAX_STDERR_BYTES]

    def sendall(self, data: bytes) -> None:
        """Send input to the command."""
        try:
            self._session.sendall(data)
        except (paramiko.SSHException, EOFError) as error:
            raise ConnectionResetError("the connection broke") from error

    def shutdown_write(self) -> None:
        """End the command's input."""
        with contextlib.suppress(paramiko.SSHException, OSError, EOFError):
            self._session.shutdown_write()

    def close(self) -> None:
        """Close the stream: the command's input ends, and its output is lost."""
        with contextlib.suppress(paramiko.SSHException, OSError, EOFError):
            self._session.close()
        ended, self._ended = self._ended, lambda: None
        ended()


class ChannelLimit(Protocol):
    """Means to free a session at the server's limit: :class:`jupyter_slurm.transport.ssh.shell.pool.ShellPool`."""

    async def keep_shell(self, timeout: float) -> None:
        """Open a shell if none is open."""

    async def close_idle_streams(self) -> None:
        """Have the streams closed that are not in use."""

    async def free_session(self, timeout: float) -> SessionClaim | None:
        """Close an unneeded session; None if there is none."""

    def release_room(self, claim: SessionClaim) -> None:
        """Record that the freed session is no longer needed."""


def open_command(
    link: PersistentLink,
    new_shell: Callable[[Session], Shell],
    argv: Sequence[str],
    timeout: float,
    env: Mapping[str, str] | None,
    room: ChannelLimit,
) -> Stream:
    """Turn a fresh shell into a command, and return its streams; see :meth:`Transport.pipe`."""
    deadline, made, first = time.monotonic() + timeout, -math.inf, math.inf
    claim: SessionClaim | None = None

    def give_back() -> None:
        if claim is not None and link.loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                link.loop.call_soon_threadsafe(link.loop.call_later, _SESSION_CLOSE_S, room.release_room, claim)

    try:
        while True:
            _wait(link, deadline)
            _in_loop(link, room.keep_shell(_remaining_time(deadline)), deadline)
            try:
                return CommandStream(_start_command(link, new_shell, argv, env, deadline), give_back)
            except paramiko.ChannelException as error:
                if first == math.inf:
                    _in_loop(link, room.close_idle_streams(), deadline)
                if time.monotonic() > made + _SESSION_CLOSE_S:  # no session was freed yet, or another caller took it
                    earlier, claim = claim, _in_loop(link, room.free_session(_remaining_time(deadline)), deadline)
                    made = time.monotonic()
                    if earlier is not None:
                        _in_loop(link, _release(room, earlier), deadline)
                first = min(first, time.monotonic())
                if claim is None and time.monotonic() > first + _SESSION_CLOSE_S:  # no other command is ending, either
                    raise TransportError(
                        f"{link.name} allows no more sessions: {printable(error.text or '', 200)}",
                        hint="Files, terminals, kernels and some tunnels take a session each, beside that of commands. "
                        f"End some, or ask the administrators of {link.name} for a larger MaxSessions in sshd_config.",
                        why="no-session",
                    ) from None
                time.sleep(_RETRY_INTERVAL_S)  # a closed session takes a moment to end on the server
    except BaseException:
        give_back()
        raise


async def _release(room: ChannelLimit, claim: SessionClaim) -> None:
    room.release_room(claim)


def _remaining_time(deadline: float) -> float:
    return max(0.1, deadline - time.monotonic())


def _start_command(
    link: PersistentLink,
    new_shell: Callable[[Session], Shell],
    argv: Sequence[str],
    env: Mapping[str, str] | None,
    deadline: float,
) -> Session:
    """Begin a command in its own session; ChannelException: no more sessions are allowed."""
    shell: Shell | None = None
    try:
        session = _in_loop(link, link.open_session(_remaining_time(deadline)), deadline)
        shell = new_shell(session)
        shell.start()
        session.sendall(shell_line(["js_here", *context_words(Context(env=env)), *argv]))
    except BaseException as error:
        if shell is not None:
            shell.close()
        is_broken = isinstance(error, paramiko.SSHException | OSError | EOFError)
        if is_broken and not isinstance(error, paramiko.ChannelException):
            raise LinkLost(f"The connection to {link.name} broke.", host=link.name) from error
        raise
    return session
