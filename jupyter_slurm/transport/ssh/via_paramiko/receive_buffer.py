"""Receive buffer of a channel that keeps data in the pieces in which it arrived.

paramiko copies data into an array and out of it: nearly half of the cost of a tunnel.
"""

from __future__ import annotations

import array
from collections import deque
from typing import NamedTuple

import paramiko

__all__ = ["ReceiveBuffer", "use_piecewise_buffer"]

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
    pipe = channel.in_buffer
    if isinstance(getattr(pipe, "_buffer", None), array.array) and hasattr(pipe, "_lock"):
        with pipe._lock:  # data may have arrived already
            pieces = ReceiveBuffer()
            pieces.frombytes(pipe._buffer.tobytes())
            pipe._buffer = pieces
    return channel
