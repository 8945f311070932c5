"""How a front and a keeper greet each other on each connection of their link (``link.py``).

Three texts of a fixed length, in which both ends prove that they know the secret, by an HMAC over all that was said and
whose text it is; they also say how far each has come. Frames follow. ::

    front   MAGIC VERSION who[8] nonce[16]
    keeper  MAGIC VERSION told[1] nonce[16] received[8] proof[32]      told: 1, there is a newer front than you
    front   received[8] proof[32]

Nothing here reads or writes: bytes that came are fed in, bytes to send come out. Both ends use it: the keeper, and the
front, which imports it from the package. Python 3.8+, standard library only.
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
    """Who is at the other end does not know the secret, or speaks otherwise."""


class PeerReplaced(Exception):
    """A newer front has come: this one is to leave."""


class Handshake:
    """One end of a greeting."""

    def __init__(self, secret: bytes) -> None:
        self._secret, self._transcript = secret, b""
        self._incoming = bytearray()
        self.is_done = False
        self.received = 0  # the last record that the other end has

    @property
    def rest(self) -> bytes:
        """What came behind the greeting."""
        return bytes(self._incoming)

    def _take(self, size: int) -> bytes:
        """Return the next text; nothing: it has not come as a whole."""
        if len(self._incoming) < size:
            return b""
        text = bytes(self._incoming[:size])
        del self._incoming[:size]
        return text

    def _proof(self, role: bytes) -> bytes:
        return hmac.new(self._secret, role + b"\n" + self._transcript, hashlib.sha256).digest()

    def _prove(self, role: bytes, text: bytes) -> bytes:
        """Return a text of ours with its proof."""
        self._transcript += text
        return text + self._proof(role)

    def _believe(self, role: bytes, text: bytes) -> bytes:
        """Return a text of theirs without its proof."""
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
    """The greeting of a front.

    Parameters
    ----------
    secret : bytes
    who : bytes
        8 of them, which tell this front from others.
    received : int
        The last record that it has.
    """

    def __init__(self, secret: bytes, who: bytes, received: int) -> None:
        super().__init__(secret)
        self._own = received
        self._transcript = self.first = _ASKS.pack(_MAGIC, _VERSION, who, os.urandom(16))

    def feed(self, data: bytes) -> bytes:
        """Take what came in, return what to send; PeerRejected, PeerReplaced."""
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
    """The greeting of a keeper.

    Parameters
    ----------
    secret : bytes
    received_of : callable
        Takes the 8 bytes of a front, and returns the last record that came from it; None: there is a newer one.
    """

    def __init__(self, secret: bytes, received_of: Callable[[bytes], int | None]) -> None:
        super().__init__(secret)
        self._received_of = received_of
        self.who = b""

    def feed(self, data: bytes) -> bytes:
        """Take what came in, return what to send; PeerRejected."""
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
