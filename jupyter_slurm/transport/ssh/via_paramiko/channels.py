"""Channels of paramiko: as byte streams, and with a bounded receive buffer."""

from __future__ import annotations

import array
import contextlib
import errno
from collections import deque
from typing import NamedTuple

import paramiko

__all__ = ["ChannelStream", "ReceiveBuffer", "use_piecewise_buffer"]

_MAX_UNREAD_BYTES = 16 << 20  # bytes; more than any window, which the server may ignore
_SMALL_PIECE_BYTES = 1 << 10  # bytes; smaller pieces are joined: a server may send millions of them


class _ReceivedSlice(NamedTuple):
    data: bytes

    def tobytes(self) -> bytes:
        return self.data


class ReceiveBuffer:
    """First-in, first-out byte buffer with the part of ``array.array("B")`` that paramiko's pipe uses."""

    def __init__(self) -> None:
        self._pieces: deque[bytes | bytearray] = deque()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def frombytes(self, data: bytes) -> None:
        """Append bytes."""
        self._size += len(data)
        if self._size > _MAX_UNREAD_BYTES:
            raise paramiko.SSHException("the server ignores the window of a channel")
        if len(data) >= _SMALL_PIECE_BYTES:
            self._pieces.append(data)
        elif self._pieces and isinstance(last := self._pieces[-1], bytearray) and len(last) < _SMALL_PIECE_BYTES:
            last += data
        elif data:
            self._pieces.append(bytearray(data))

    def __getitem__(self, first: slice) -> _ReceivedSlice:
        if first.stop is None or first.stop >= self._size:
            only = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            return _ReceivedSlice(bytes(only))  # no copy if it is bytes already
        found, left = [], first.stop
        for piece in self._pieces:
            found.append(piece[:left])
            left -= len(found[-1])
            if not left:
                break
        return _ReceivedSlice(b"".join(found))

    def __delitem__(self, first: slice) -> None:
        left = self._size if first.stop is None else min(first.stop, self._size)
        self._size -= left
        while left:
            piece = self._pieces.popleft()
            if len(piece) > left:
                self._pieces.appendleft(piece[left:])
            left -= min(left, len(piece))


def use_piecewise_buffer(channel: paramiko.Channel) -> paramiko.Channel:
    """Make a channel keep received data in pieces. A paramiko with changed internals is left unchanged."""
    for pipe in (channel.in_buffer, channel.in_stderr_buffer):
        if isinstance(getattr(pipe, "_buffer", None), array.array) and hasattr(pipe, "_lock"):
            with pipe._lock:  # data may have arrived already
                pieces = ReceiveBuffer()
                pieces.frombytes(pipe._buffer.tobytes())
                pipe._buffer = pieces
    return channel


_CHUNK_BYTES = 31 << 10  # bytes: one packet, also within a packet of an outer SSH connection


class ChannelStream:
    """See :class:`jupyter_slurm.transport.base.Stream`."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel
        channel.settimeout(None)

    @property
    def closed(self) -> bool:
        """Return whether the stream has ended in both directions."""
        return bool(self._channel.closed)

    def recv(self, size: int) -> bytes:
        """Wait for bytes."""
        data: bytes = self._channel.recv(size)
        if not data and not self._channel.eof_received:
            raise ConnectionResetError(errno.ECONNRESET, "the connection to the remote host broke")
        return data

    def sendall(self, data: bytes | memoryview) -> None:
        """Send all bytes."""
        left = memoryview(data)
        while left:
            sent = self._channel.send(left[:_CHUNK_BYTES])
            if not sent:
                raise ConnectionResetError(errno.ECONNRESET, "the remote host has ended the connection")
            left = left[sent:]

    def shutdown_write(self) -> None:
        """End the outgoing direction."""
        with contextlib.suppress(paramiko.SSHException, EOFError):
            self._channel.shutdown_write()

    def settimeout(self, timeout: float | None) -> None:
        """Set the longest wait of each call in seconds; then a call raises ``TimeoutError``."""
        self._channel.settimeout(timeout)

    def send(self, data: bytes | memoryview) -> int:
        """Send some of the bytes, and return their number."""
        return int(self._channel.send(data))

    def close(self) -> None:
        """Close the stream."""
        with contextlib.suppress(paramiko.SSHException, OSError, EOFError):
            self._channel.close()
