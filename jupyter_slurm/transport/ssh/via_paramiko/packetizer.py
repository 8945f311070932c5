"""Packets of an SSH connection: many read at once, none sent after the end of their channel or in a key exchange.

paramiko lets two threads race: one sends data or the end of data, the other answers the server's CLOSE. A message sent
after CLOSE makes OpenSSH's server drop the whole connection ("packet referred to nonexistent channel"). This class
decides the order at the point where all messages are serialised. Source: RFC 4254, 5.3.

During a key exchange, paramiko's thread that reads would wait for the end of that exchange before it answers a CLOSE,
and the connection would end after 30 seconds. Its answers are held back instead. Source: RFC 4253, 7.1.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Any

import paramiko
from paramiko.packet import NeedRekeyException, Packetizer

__all__ = ["OrderlyPacketizer", "OrderlyTransport", "packetizer_class"]

_READ_BYTES = 128 << 10  # bytes read from the socket at once: several packets
_MAX_LINE_BYTES = 64 << 10
_MAX_PACKET_BYTES = 257 << 10  # bytes of a packet with its MAC; OpenSSH refuses packets of more than 256 KiB, too
_KEY_EXCHANGE, _NEW_KEYS = 20, 21  # SSH_MSG_KEXINIT, SSH_MSG_NEWKEYS (RFC 4253, 7)
_FIRST_OF_CONNECTION = 80  # lower numbers are of the transport and of the login (RFC 4250, 4.1.1)
_KEY_EXCHANGE_COOKIE_BYTES = 16
_KEY_EXCHANGE_LISTS = ("KexAlgorithms", "HostKeyAlgorithms", "Ciphers", "", "MACs")  # of both directions, one is kept
_OPENED = 91  # SSH_MSG_CHANNEL_OPEN_CONFIRMATION
_CLOSE = 97
_IN_CHANNEL = frozenset({93, 94, 95, 96, _CLOSE, 98})  # WINDOW_ADJUST, DATA, EXTENDED_DATA, EOF, CLOSE, REQUEST


class OrderlyPacketizer(Packetizer):  # type: ignore[misc]
    """Packetizer that sends nothing to a channel after its CLOSE or in a key exchange, and reads many packets at once.

    Parameters
    ----------
    source : socket or Channel
        With a time-out, as :class:`paramiko.Transport` sets it.
    """

    def __init__(self, source: Any) -> None:
        super().__init__(source)
        self._source = source
        self._ahead, self._at = b"", 0
        self._order = threading.Lock()
        self._ended: set[int] = set()
        self._is_exchanging = False
        self._held: list[paramiko.Message] = []  # messages to send after the key exchange
        self.server_algorithms: dict[str, tuple[str, ...]] = {}  # offered by the server, by keyword of ssh_config(5)

    def close(self) -> None:
        """Close the packetizer. The source may be a channel of a broken connection, to which nothing can be sent."""
        with contextlib.suppress(EOFError, OSError, paramiko.SSHException):
            super().close()

    def send_message(self, data: paramiko.Message) -> None:
        """Send a message, unless its channel has ended; hold it back during a key exchange."""
        message = data.asbytes()
        kind, channel = message[0], int.from_bytes(message[1:5], "big")
        if kind < _FIRST_OF_CONNECTION:
            self._is_exchanging = (self._is_exchanging or kind == _KEY_EXCHANGE) and kind != _NEW_KEYS
            super().send_message(data)
            return
        with self._order:
            if kind in _IN_CHANNEL and channel in self._ended:
                return
            if kind == _CLOSE:
                self._ended.add(channel)
            if self._is_exchanging:
                self._held.append(data)
            else:
                super().send_message(data)

    def _send_held(self) -> None:
        """Send what was held back by the only thread that reads; the new keys are set when it reads again."""
        if self._held and not self._is_exchanging:
            with self._order:
                held, self._held = self._held, []
                for data in held:
                    super().send_message(data)

    def read_message(self) -> tuple[int, paramiko.Message]:
        """Return the next message. A number that the server reuses is a new channel."""
        self._send_held()
        kind, message = super().read_message()
        if kind == _OPENED:
            self._ended.discard(int.from_bytes(message.asbytes()[4:8], "big"))
        elif kind == _KEY_EXCHANGE:
            self._note_algorithms(message.asbytes()[_KEY_EXCHANGE_COOKIE_BYTES:])
        return kind, message

    def _note_algorithms(self, lists: bytes) -> None:
        for keyword in _KEY_EXCHANGE_LISTS:
            size = int.from_bytes(lists[:4], "big")
            names, lists = lists[4 : 4 + size].decode("ascii", "replace"), lists[4 + size :]
            if keyword:
                self.server_algorithms[keyword] = tuple(filter(None, names.split(",")))

    def read_all(self, n: int, check_rekey: bool = False) -> bytes:
        """Return exactly this many bytes.

        Raises
        ------
        EOFError
            The connection ends earlier.
        SSHException
            The server announces a packet that is too large or has no valid size.
        NeedRekeyException
            No data arrives, and new keys are due.
        """
        if not 0 <= n <= _MAX_PACKET_BYTES:
            raise paramiko.SSHException(f"a packet of {n} bytes")
        while (have := len(self._ahead) - self._at) < n:
            more = self._receive(may_rekey=check_rekey and not have)
            self._ahead, self._at = self._ahead[self._at :] + more, 0
        taken = self._ahead[self._at : self._at + n]
        self._at += n
        return taken

    def readline(self, timeout: float) -> str:
        """Return a line of the greeting, within the given seconds."""
        deadline = time.monotonic() + timeout
        while (end := self._ahead.find(b"\n", self._at)) < 0:
            if len(self._ahead) - self._at > _MAX_LINE_BYTES:
                raise paramiko.SSHException("a line of the greeting has no end")
            try:
                more = self._source.recv(_READ_BYTES)
            except socket.timeout:  # noqa: UP041 - paramiko's name for it
                if self.closed:
                    raise EOFError from None
                if time.monotonic() >= deadline:
                    raise
                continue
            if not more:
                raise EOFError
            self._ahead, self._at = self._ahead[self._at :] + more, 0
        line, self._at = self._ahead[self._at : end], end + 1
        return line.removesuffix(b"\r").decode()

    def _receive(self, *, may_rekey: bool) -> bytes:
        while True:
            if self.handshake_timed_out():
                raise EOFError
            try:
                more: bytes = self._source.recv(_READ_BYTES)
            except (socket.timeout, BlockingIOError):  # noqa: UP041
                if self.closed:
                    raise EOFError from None
                if may_rekey and self.need_rekey():
                    raise NeedRekeyException from None
                self._check_keepalive()
            except OSError:
                if self.closed:
                    raise EOFError from None
                raise
            else:
                if not more:
                    raise EOFError
                return more


class OrderlyTransport(paramiko.Transport):  # type: ignore[misc]
    """Transport whose thread does not wait for itself during a key exchange."""

    def _send_user_message(self, data: paramiko.Message) -> None:
        if threading.current_thread() is self and isinstance(self.packetizer, OrderlyPacketizer):
            self._send_message(data)
        else:
            super()._send_user_message(data)


def packetizer_class() -> type | None:
    """Return the class for a transport; None (paramiko's own) if paramiko's internals have changed."""
    known = ("read_all", "readline", "handshake_timed_out", "need_rekey", "closed", "_check_keepalive", "send_message")
    return OrderlyPacketizer if all(hasattr(Packetizer, name) for name in known) else None
