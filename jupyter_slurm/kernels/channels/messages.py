"""Format of Jupyter's messages on the sockets of a connection file, and their signatures.

Source: https://jupyter-client.readthedocs.io/en/stable/messaging.html, "The Wire Protocol".
"""

from __future__ import annotations

import datetime
import hmac
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_slurm.client.jupyter_types import MessagePart

__all__ = ["Frames", "Message", "MessageFraming"]

Frames = list[bytes]
"""Header, parent header, metadata and content (JSON), then the buffers: a message without its recipient."""

_DELIMITER = b"<IDS|MSG>"
_SIGNED_PARTS = 4  # signed parts: header, parent header, metadata, content
_VERSION = "5.3"


@dataclass
class Message:
    """A message from or to a client.

    Attributes
    ----------
    frames : Frames
        Parts of the message.
    idents : list of bytes
        Identities of the sender.
    """

    frames: Frames
    idents: list[bytes] = field(default_factory=list)

    @cached_property
    def header(self) -> MessagePart:
        """Return the header: sender, time and type."""
        return _object(self.frames[0])

    @cached_property
    def parent(self) -> MessagePart:
        """Return the header of the message's request or cause."""
        return _object(self.frames[1])

    @cached_property
    def content(self) -> MessagePart:
        """Return the content."""
        return _object(self.frames[3])

    @property
    def kind(self) -> str:
        """Return the ``msg_type``."""
        return str(self.header.get("msg_type", ""))

    @property
    def id(self) -> str:
        """Return the ``msg_id``."""
        return str(self.header.get("msg_id", ""))

    @property
    def parent_id(self) -> str:
        """Return the ``msg_id`` of the message's request or cause."""
        return str(self.parent.get("msg_id", ""))


class MessageFraming:
    """Signs and reads messages with the key of a connection file.

    Parameters
    ----------
    key : bytes
        Empty: messages are not signed.
    scheme : str
        ``hmac-`` and the name of a hash.

    Raises
    ------
    ValueError
        The scheme is unknown.
    """

    def __init__(self, key: bytes, scheme: str = "hmac-sha256") -> None:
        kind, _, self._hash = scheme.partition("-")
        if kind != "hmac":
            raise ValueError(f"{scheme} is not a signature scheme")
        self._key = key
        self._signer = hmac.new(key, digestmod=self._hash) if key else None
        self._session = uuid.uuid4().hex
        self._number = 0

    def read(self, parts: Sequence[bytes]) -> Message | None:
        """Return a received message; None if it is malformed, or not signed with the key."""
        try:
            at = list(parts).index(_DELIMITER)
        except ValueError:
            return None
        signature, frames = parts[at + 1 : at + 2], list(parts[at + 2 :])
        if len(frames) < _SIGNED_PARTS or not signature or not hmac.compare_digest(signature[0], self._sign(frames)):
            return None
        message = Message(frames, list(parts[:at]))
        try:
            known = message.header["msg_type"], message.header["msg_id"]
        except (ValueError, KeyError):
            return None
        return message if all(isinstance(text, str) for text in known) else None

    def parts(self, frames: Frames, idents: Sequence[bytes]) -> list[bytes]:
        """Return the parts to send for a message: signed, with its recipient."""
        return [*idents, _DELIMITER, self._sign(frames), *frames]

    def create_message(self, kind: str, content: MessagePart, parent: MessagePart | None = None) -> Frames:
        """Create a message."""
        self._number += 1
        header = {
            "msg_id": f"{self._session}_{self._number}",
            "msg_type": kind,
            "username": "jupyter_slurm",
            "session": self._session,
            "date": datetime.datetime.now(datetime.UTC).isoformat(),
            "version": _VERSION,
        }
        return [_json(header), _json(parent or {}), b"{}", _json(content)]

    def _sign(self, frames: Sequence[bytes]) -> bytes:
        if self._signer is None:
            return b""
        signer = self._signer.copy()
        for frame in frames[:_SIGNED_PARTS]:
            signer.update(frame)
        return signer.hexdigest().encode("ascii")


def _json(value: MessagePart) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace")


def _object(frame: bytes) -> MessagePart:
    """Parse a JSON object; ValueError for another value."""
    try:
        value = json.loads(frame)
    except RecursionError as error:
        raise ValueError("too deep") from error
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value
