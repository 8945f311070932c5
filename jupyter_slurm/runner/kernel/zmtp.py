"""Client side of ZMTP 3.0 with the NULL mechanism (https://rfc.zeromq.org/spec/23), as far as a kernel needs it.

With this module, a node needs no pyzmq. The module reads and writes no sockets: received bytes are passed in, bytes to
send are returned. Every libzmq since 4.0 supports the protocol; newer ones use version 3.0 if the peer does.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import struct
from typing import cast

_GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)
_VERSION, _MECHANISM = 10, slice(12, 32)  # positions in the greeting
_MORE, _LONG, _COMMAND = 1, 2, 4
_SIZE = struct.Struct(">Q")
_MAX_MESSAGE_BYTES = 1 << 31  # bytes of the frames of a message
_MAX_FRAMES = 10_000  # frames of a message
_LARGE = 64 << 10  # bytes of a frame that is assembled separately
_EVERYTHING = b"\0\x01\x01"  # message of one byte: subscription to everything (empty prefix)


class ProtocolError(Exception):
    """The peer does not speak ZMTP 3."""


def _command(name: bytes, properties: dict[bytes, bytes]) -> bytes:
    body = bytes([len(name)]) + name
    for key, value in properties.items():
        body += bytes([len(key)]) + key + struct.pack(">I", len(value)) + value
    return bytes([_COMMAND, len(body)]) + body


def pack(frames: list[bytes]) -> bytes:
    """Return a message of several frames in wire format."""
    parts: list[bytes] = []
    for number, frame in enumerate(frames, 1):
        flags = _MORE if number < len(frames) else 0
        size = len(frame)
        parts += (bytes((flags, size)) if size < 256 else bytes([flags | _LONG]) + _SIZE.pack(size), frame)
    return b"".join(parts)


class Peer:
    """Connection from its first byte.

    Parameters
    ----------
    kind : {"DEALER", "SUB"}
    identity : bytes, optional
        Identity for a ROUTER; two sockets of a client with the same identity belong together.
    """

    def __init__(self, kind: str, identity: bytes = b"") -> None:
        self._kind, self._identity = kind, identity
        self._incoming = bytearray()
        self._frames: list[bytes] = []  # of an incomplete message
        self._size = 0  # bytes of these
        self._body, self._flags, self._lacks = bytearray(), 0, 0  # a large frame, and the number of its missing bytes
        self._is_greeted = False
        self.is_ready = False  # messages can be sent
        self.first = _GREETING

    def feed(self, data: bytes) -> tuple[bytes, list[list[bytes]]]:
        """Process received bytes; return the bytes to send and the complete messages. May raise ProtocolError."""
        messages: list[list[bytes]] = []
        if self._lacks:
            data = self._fill(data, messages)
        self._incoming += data
        answer = b""
        if not self._is_greeted:
            if len(self._incoming) < len(_GREETING):
                return b"", []
            answer = self._greet()
        view, at, size = memoryview(self._incoming), 0, len(self._incoming)
        try:
            while size - at >= 2:
                flags, start, length = view[at], at + 2, view[at + 1]
                if flags & _LONG:
                    start += 7
                    if size < start:
                        break
                    (length,) = _SIZE.unpack_from(view, at + 1)
                    if length + self._size > _MAX_MESSAGE_BYTES:
                        raise ProtocolError(f"a message of more than {_MAX_MESSAGE_BYTES} bytes")
                if size - start < length:
                    if length > _LARGE:
                        self._body, self._flags, self._lacks = bytearray(view[start:]), flags, length - (size - start)
                        at = size
                    break
                at = start + length
                self._take(flags, bytes(view[start:at]), messages)
        finally:
            view.release()
            del self._incoming[:at]
        return answer, messages

    def _fill(self, data: bytes, messages: list[list[bytes]]) -> bytes:
        """Append to a large frame, which avoids another copy when complete; return the bytes after it."""
        part = memoryview(data)[: self._lacks]
        self._body += part
        self._lacks -= len(part)
        if not self._lacks:
            body, self._body = self._body, bytearray()
            self._take(self._flags, body, messages)
        return data[len(part) :]

    def _greet(self) -> bytes:
        theirs = bytes(self._incoming[: len(_GREETING)])
        del self._incoming[: len(_GREETING)]
        if theirs[0] != 0xFF or theirs[9] != 0x7F or theirs[_VERSION] < 3:
            raise ProtocolError("the kernel's sockets speak another version of ZMTP")
        if theirs[_MECHANISM].rstrip(b"\0") != b"NULL":
            raise ProtocolError("the kernel's sockets want another mechanism than NULL")
        self._is_greeted = True
        properties = {b"Socket-Type": self._kind.encode("ascii")}
        if self._kind == "DEALER":
            properties[b"Identity"] = self._identity
        return _command(b"READY", properties)

    def _take(self, flags: int, body: bytes | bytearray, messages: list[list[bytes]]) -> None:
        if flags & _COMMAND:
            if body[1:6] == b"ERROR":
                raise ProtocolError(f"the kernel's socket refuses us: {body[7:].decode('utf-8', 'replace')}")
            self.is_ready = self.is_ready or body[1:6] == b"READY"
            return
        self._frames.append(cast(bytes, body))
        self._size += len(body)
        if len(self._frames) > _MAX_FRAMES:
            raise ProtocolError(f"a message of more than {_MAX_FRAMES} frames")
        if not flags & _MORE:
            messages.append(self._frames)
            self._frames, self._size = [], 0

    @property
    def subscription(self) -> bytes:
        """Message of a SUB that subscribes to everything, once sending is possible."""
        return _EVERYTHING if self._kind == "SUB" else b""
