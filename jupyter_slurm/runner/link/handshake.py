"""Handshake between proxy and keeper on each connection of their link (``resumable_link.py``).

A handshake has three texts of fixed length. Both ends prove that they know the secret, by an HMAC over all previous
texts and the role of the sender. They also exchange the number of the last received record. Frames follow. ::

    proxy   MAGIC VERSION who[8] nonce[16]
    keeper  MAGIC VERSION told[1] nonce[16] received[8] proof[32]      told: 1 if a newer proxy exists
    proxy   received[8] proof[32]

The module reads and writes no sockets: received bytes are passed in, bytes to send are returned. Both ends use it: the
keeper, and the proxy, which imports it from the package. Python 3.8+, standard library only.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
from typing import Callable

GREETING_TIMEOUT_S = 10.0  # seconds for a greeting
_MAGIC, _VERSION = b"jslk", 1
_ASKS, _ANSWERS, _PROVES = struct.Struct(">4sB8s16s"), struct.Struct(">4sBB16sQ"), struct.Struct(">Q")
_PROOF = 32


class PeerRejected(Exception):
    """The peer does not know the secret, or uses another protocol."""


class PeerReplaced(Exception):
    """A newer proxy has connected: this one must end."""


class Handshake:
    """One end of a handshake."""

    def __init__(self, secret: bytes) -> None:
        self._secret, self._transcript = secret, b""
        self._incoming = bytearray()
        self.is_done = False
        self.received = 0  # number of the last record that the peer has received

    @property
    def rest(self) -> bytes:
        """Bytes received after the handshake."""
        return bytes(self._incoming)

    def _take(self, size: int) -> bytes:
        """Return the next text; empty: it is incomplete."""
        if len(self._incoming) < size:
            return b""
        text = bytes(self._incoming[:size])
        del self._incoming[:size]
        return text

    def _proof(self, role: bytes) -> bytes:
        return hmac.new(self._secret, role + b"\n" + self._transcript, hashlib.sha256).digest()

    def _prove(self, role: bytes, text: bytes) -> bytes:
        """Return a text of this end with its proof."""
        self._transcript += text
        return text + self._proof(role)

    def _believe(self, role: bytes, text: bytes) -> bytes:
        """Return a text of the peer without its verified proof."""
        text, proof = text[:-_PROOF], text[-_PROOF:]
        self._transcript += text
        if not hmac.compare_digest(proof, self._proof(role)):
            raise PeerRejected("the other end does not know the secret of this kernel")
        return text


def _know(magic: bytes, version: int) -> None:
    if magic != _MAGIC:
        raise PeerRejected("the other end speaks otherwise")
    if version != _VERSION:
        raise PeerRejected(f"the other end speaks version {version} of the link, this one {_VERSION}")


class ProxyHandshake(Handshake):
    """Handshake of a proxy.

    Parameters
    ----------
    secret : bytes
    who : bytes
        8 bytes that identify this proxy.
    received : int
        Number of the last record that the proxy has received.
    """

    def __init__(self, secret: bytes, who: bytes, received: int) -> None:
        super().__init__(secret)
        self._own = received
        self._transcript = self.first = _ASKS.pack(_MAGIC, _VERSION, who, os.urandom(16))

    def feed(self, data: bytes) -> bytes:
        """Process received bytes, return bytes to send; may raise PeerRejected, PeerReplaced."""
        self._incoming += data
        if not self.is_done and (text := self._take(_ANSWERS.size + _PROOF)):
            _know(*_ANSWERS.unpack_from(text)[:2])
            told, _, self.received = _ANSWERS.unpack(self._believe(b"keeper", text))[2:]
            if told:
                raise PeerReplaced("another front has taken this kernel over")
            self.is_done = True
            return self._prove(b"front", _PROVES.pack(self._own))
        return b""


class KeeperHandshake(Handshake):
    """Handshake of a keeper.

    Parameters
    ----------
    secret : bytes
    received_of : callable
        Takes the 8 bytes of a proxy, and returns the number of the last record from it; None: a newer proxy exists.
    """

    def __init__(self, secret: bytes, received_of: Callable[[bytes], int | None]) -> None:
        super().__init__(secret)
        self._received_of = received_of
        self.who = b""

    def feed(self, data: bytes) -> bytes:
        """Process received bytes, return bytes to send; may raise PeerRejected."""
        self._incoming += data
        answer = b""
        if not self.who and (text := self._take(_ASKS.size)):
            magic, version, self.who, _ = _ASKS.unpack(text)
            _know(magic, version)
            self._transcript, received = text, self._received_of(self.who)
            told = _ANSWERS.pack(_MAGIC, _VERSION, received is None, os.urandom(16), received or 0)
            answer = self._prove(b"keeper", told)
        if self.who and not self.is_done and (text := self._take(_PROVES.size + _PROOF)):
            (self.received,) = _PROVES.unpack(self._believe(b"front", text))
            self.is_done = True
        return answer
