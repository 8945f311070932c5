"""One connection of a tunnel: bytes in both directions, in two threads, until both directions have ended.

One thread alone writes to the stream, data as well as its end. The other thread can only break the stream.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import threading
from collections.abc import Callable

from jupyter_slurm.runner.refusals import RefusalCount
from jupyter_slurm.transport.base import Stream
from jupyter_slurm.transport.listening_ports import is_listening
from jupyter_slurm.transport.tunnel.host_check import FOREIGN_HOST_ANSWER, ForeignHost, HostCheck

__all__ = ["CHUNK_BYTES", "reset", "splice"]

log = logging.getLogger(__name__)

CHUNK_BYTES = 256 << 10  # bytes read at once
_CHECK_INTERVAL_S = 0.5  # seconds between two checks whether the remote end is gone, after it has ended its direction

_REFUSAL_TIMEOUT_S, _MAX_REFUSED_CHUNKS = 2.0, 16  # for the rest of a refused request
_refused = RefusalCount()


def reset(sock: socket.socket) -> None:
    """Close a connection so that its peer sees a break (RST if supported)."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RD)  # wakes a thread that waits in recv; close alone does not
    sock.close()


def splice(
    sock: socket.socket,
    stream: Stream,
    run: Callable[[Callable[[], None]], None],
    on_remote_end: Callable[[], None] = lambda: None,
) -> None:
    """Carry bytes between a local connection and a stream, and close both at the end. Blocks until then.

    ``run`` runs a function in another thread, at once. ``left`` is called if the remote end closes first, before the
    local peer notices.
    """
    connection = _Splice(sock, stream, on_remote_end)
    try:
        run(connection.receive)
        connection.send()
        connection.received.wait()
    finally:
        connection.close()


class _Splice:
    def __init__(self, sock: socket.socket, stream: Stream, on_remote_end: Callable[[], None]) -> None:
        self._sock, self._stream, self._on_remote_end = sock, stream, on_remote_end
        self._sent, self.received = threading.Event(), threading.Event()
        self._is_broken = self._has_ended = self._is_refused = False
        # A browser reaches no Unix socket.
        is_private = sock.family == socket.AF_UNIX
        self._host_check = None if is_private else HostCheck(sock.getsockname()[1], is_listening)

    def send(self) -> None:
        """Carry the local peer's data; the only writer of the stream."""
        try:
            while data := self._receive():
                self._pass_on(data)
            if self._host_check is not None:
                self._stream.sendall(self._host_check.rest())
            self._stream.shutdown_write()
        except ForeignHost as error:
            self._refuse(str(error))
        except (OSError, EOFError):
            self._is_broken = True
            self._stream.close()  # wakes the other thread
        finally:
            self._sent.set()

    def _pass_on(self, data: bytes) -> None:
        if self._host_check is not None:
            data = self._host_check.feed(data)
            self._host_check = None if self._host_check.is_done else self._host_check
        if data:
            self._stream.sendall(data)

    def _refuse(self, host: str) -> None:
        """Answer a request of a page of another site, and end the connection."""
        if told := _refused.add():
            log.warning("A request to a tunnel was refused: it names the host %r, not 127.0.0.1%s", host, told)
        self._is_refused = True
        with contextlib.suppress(OSError):
            self._sock.settimeout(_REFUSAL_TIMEOUT_S)
            self._sock.sendall(FOREIGN_HOST_ANSWER)
            self._sock.shutdown(socket.SHUT_WR)
            for _ in range(_MAX_REFUSED_CHUNKS):  # unread data would reset the connection before the answer is read
                if not self._sock.recv(CHUNK_BYTES):
                    break
        self._stream.close()

    def _receive(self) -> bytes:
        data = b""
        try:
            data = self._sock.recv(CHUNK_BYTES)
        finally:
            self._has_ended = not data  # before the remote end can answer
        return data

    def receive(self) -> None:
        """Carry the remote end's data."""
        try:
            while data := self._stream.recv(CHUNK_BYTES):
                self._sock.sendall(data)
            self._note_end()
            self._sock.shutdown(socket.SHUT_WR)
        except (OSError, EOFError):
            self._is_broken = True
            self._note_end()
            self._stream.close()  # the sending thread may wait for the remote end to read
        else:
            # The local peer may continue to send, unless the remote end is gone.
            while not self._sent.wait(_CHECK_INTERVAL_S) and not getattr(self._stream, "closed", False):
                pass
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RD)  # wakes the other thread
        self.received.set()

    def _note_end(self) -> None:
        if not self._has_ended:
            self._on_remote_end()

    def close(self) -> None:
        """Close both ends, as broken if one was."""
        self._stream.close()
        if self._is_broken and not self._is_refused:
            reset(self._sock)
        else:
            self._sock.close()
