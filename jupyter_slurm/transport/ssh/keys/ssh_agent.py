"""The user's ssh-agent: its keys, and signatures by them. The agent is never forwarded.

Source: draft-miller-ssh-agent, sections 3.5 and 3.6.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Final

from paramiko import Message

__all__ = ["AgentRefusal", "SshAgent"]

_LIST, _LISTED, _SIGN, _SIGNED = 11, 12, 13, 14
_FLAGS: Final = {"rsa-sha2-256": 2, "rsa-sha2-512": 4}
_LIST_TIMEOUT_S: Final = 10.0  # seconds for a list
_SIGN_TIMEOUT_S: Final = 120.0  # seconds for a signature: the user may have to touch a token or confirm a dialog
_MAX_MESSAGE_BYTES: Final = 1 << 20
_MAX_KEYS: Final = 2048


class AgentRefusal(Exception):
    """The agent is missing, sent an invalid answer, or refused."""


class SshAgent:
    """An ssh-agent, by the path of its socket; each request has its own connection."""

    def __init__(self, path: str) -> None:
        self.path = path

    def keys(self) -> list[tuple[bytes, str]]:
        """Return the public keys and certificates with their comments, in the agent's order.

        Raises
        ------
        AgentRefusal
        """
        answer = self._request(bytes([_LIST]), _LISTED, _LIST_TIMEOUT_S)
        count = answer.get_int()
        if count > _MAX_KEYS:
            raise AgentRefusal(f"it holds {count} keys")
        return [(answer.get_binary(), answer.get_binary().decode("utf-8", "replace")) for _ in range(count)]

    def sign(self, blob: bytes, data: bytes, algorithm: str) -> bytes:
        """Return a signature in wire format; the user may have to confirm it.

        Raises
        ------
        AgentRefusal
        """
        question = Message()
        question.add_byte(bytes([_SIGN]))
        question.add_string(blob)
        question.add_string(data)
        question.add_int(_FLAGS.get(algorithm, 0))
        return bytes(self._request(question.asbytes(), _SIGNED, _SIGN_TIMEOUT_S).get_binary())

    def _request(self, question: bytes, expected: int, timeout: float) -> Message:
        try:
            with self._connected(timeout) as sock:
                sock.sendall(struct.pack(">I", len(question)) + question)
                (size,) = struct.unpack(">I", _read(sock, 4))
                if not 0 < size <= _MAX_MESSAGE_BYTES:
                    raise AgentRefusal("its answer cannot be understood")
                answer = Message(_read(sock, size))
        except OSError as error:
            raise AgentRefusal(error.strerror or str(error) or "no answer") from None
        if answer.get_byte() != bytes([expected]):
            raise AgentRefusal("it refused")
        return answer

    @contextlib.contextmanager
    def _connected(self, timeout: float) -> Iterator[socket.socket]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(timeout)
            sock.connect(self.path)
            yield sock


def _read(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            raise AgentRefusal("it hung up")
        data += part
    return data
