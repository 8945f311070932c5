"""Stream of a tunnel over a channel, which distinguishes a break from a regular end."""

from __future__ import annotations

import contextlib
import errno

import paramiko

__all__ = ["ChannelStream"]

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
            raise ConnectionResetError(errno.ECONNRESET, "the connection to the far side broke")
        return data

    def sendall(self, data: bytes | memoryview) -> None:
        """Send all bytes."""
        left = memoryview(data)
        while left:
            sent = self._channel.send(left[:_CHUNK_BYTES])
            if not sent:
                raise ConnectionResetError(errno.ECONNRESET, "the far side has ended the connection")
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
