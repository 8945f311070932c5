"""The client's side of ZMTP 3.0 with the NULL mechanism (https://rfc.zeromq.org/spec/23), as far as a kernel needs it.

So no pyzmq has to be on the node. Nothing here reads or writes: bytes that came are fed in, bytes to send come out.
Every libzmq since 4.0 speaks it, newer ones as version 3.0 where the other side does.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import struct
from typing import cast

_GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)
_VERSION, _MECHANISM = 10, slice(12, 32)  # where they stand in it
_MORE, _LONG, _COMMAND = 1, 2, 4
_SIZE = struct.Struct(">Q")
_MAX_FRAME_BYTES = 1 << 31  # bytes of a frame
_LARGE = 64 << 10  # one that is put together by itself
_EVERYTHING = b"\0\x01\x01"  # a message of one byte: subscribe to all that begins with nothing


class ProtocolError(Exception):
    """The other side does not speak ZMTP 3."""


def _command(name: bytes, properties: dict[bytes, bytes]) -> bytes:
    body = bytes([len(name)]) + name
    for key, value in properties.items():
        body += bytes([len(key)]) + key + struct.pack(">I", len(value)) + value
    return bytes([_COMMAND, len(body)]) + body


def pack(frames: list[bytes]) -> bytes:
    """Return a message of several frames as it travels."""
    parts: list[bytes] = []
    for number, frame in enumerate(frames, 1):
        flags = _MORE if number < len(frames) else 0
        size = len(frame)
        parts += (bytes((flags, size)) if size < 256 else bytes([flags | _LONG]) + _SIZE.pack(size), frame)
    return b"".join(parts)


class Peer:
    """One connection, from its first byte.

    Parameters
    ----------
    kind : {"DEALER", "SUB"}
    identity : bytes, optional
        By which a ROUTER knows us; two sockets of a client with the same one belong together.
    """

    def __init__(self, kind: str, identity: bytes = b"") -> None:
        self._kind, self._identity = kind, identity
        self._incoming = bytearray()
        self._frames: list[bytes] = []  # of a message that has not come as a whole
        self._body, self._flags, self._lacks = bytearray(), 0, 0  # a large frame, and how many bytes of it are to come
        self._is_greeted = False
        self.is_ready = False  # messages can be sent
        self.first = _GREETING

    def feed(self, data: bytes) -> tuple[bytes, list[list[bytes]]]:
        """Take what came in; return what to send for it, and the messages that are whole. ProtocolError."""
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
                    if length > _MAX_FRAME_BYTES:
                        raise ProtocolError(f"a frame of {length} bytes")
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
        """Add to a large frame, which is not copied once more when it is whole; return what is behind it."""
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
        if not flags & _MORE:
            messages.append(self._frames)
            self._frames = []

    @property
    def subscription(self) -> bytes:
        """What a SUB sends, once it may send, to get everything."""
        return _EVERYTHING if self._kind == "SUB" else b""
