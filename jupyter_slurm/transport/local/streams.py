"""Local streams: TCP connections, and the standard streams of a command."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import Final

from jupyter_slurm.errors import TunnelError
from jupyter_slurm.transport.base import Context
from jupyter_slurm.transport.local.processes import kill_group, start

__all__ = ["CommandStream", "SocketStream", "dial_local"]

_MAX_STDERR_BYTES = 4096  # bytes to keep of a command's standard error
_END_TIMEOUT_S = 5.0  # seconds for a command to end after its input has ended


class SocketStream:
    """See :class:`jupyter_slurm.transport.base.Stream`."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def recv(self, size: int) -> bytes:
        """Wait for bytes."""
        return self._sock.recv(size)

    def sendall(self, data: bytes | memoryview) -> None:
        """Send all bytes."""
        self._sock.sendall(data)

    def settimeout(self, timeout: float | None) -> None:
        """Set the longest wait of each call, in seconds."""
        self._sock.settimeout(timeout)

    def shutdown_write(self) -> None:
        """End the outgoing direction."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)  # close alone does not wake a waiting thread
        self._sock.close()


def dial_local(host: str, port: int, timeout: float) -> SocketStream:
    """Connect from this computer; see :meth:`jupyter_slurm.transport.base.Transport.dial`."""
    try:
        sock = socket.create_connection((host, port), timeout)
    except OSError as error:
        raise TunnelError(
            f"No program answers on port {port} of {host}: {error.strerror or error}.",
            hint="Check that your program has started, and that it listens on this port.",
            why="refused",
        ) from None
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return SocketStream(sock)


class CommandStream(SocketStream):
    """Standard input and output of a command; its standard error is in the error at its end."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str] | None) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = start(
                    argv, Context(env=env), stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, bufsize=0
                )
            except BaseException:
                ours.close()
                raise
        super().__init__(ours)
        self._stderr = bytearray()
        self._listening = threading.Thread(target=self._listen, name="jupyter-slurm-errors", daemon=True)
        self._listening.start()
        self._closed = threading.Lock()  # acquired by the first caller of close, never released

    has_files: Final = True

    def duplicates(self) -> tuple[socket.socket, socket.socket]:
        """Return sockets for output and input that another process may use until :meth:`close`."""
        return self._sock.dup(), self._sock.dup()

    def recv(self, size: int) -> bytes:
        """Wait for output; the end of the command breaks the stream."""
        with contextlib.suppress(ConnectionResetError):  # it ended with unread input
            if data := self._sock.recv(size):
                return data
        self._listening.join(1.0)
        said = bytes(self._stderr).decode("utf-8", "replace").strip()
        raise ConnectionResetError(said or "the command ended")

    def close(self) -> None:
        """Close the stream: the command's input ends, and some seconds later the command at the latest."""
        super().close()
        if self._closed.acquire(blocking=False):
            threading.Thread(target=self._end, name="jupyter-slurm-farewell", daemon=True).start()

    def _end(self) -> None:
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            kill_group(self._process)
            self._process.wait()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as errors:
            while data := errors.read(_MAX_STDERR_BYTES):
                self._stderr += data
                del self._stderr[:-_MAX_STDERR_BYTES]
