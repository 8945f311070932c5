"""Relay of connections from a node's own loopback over this process's standard input and output.

The relay runs as a step of a job, on nodes without SSH. Python 3.8 or later, standard library only. The client first
sends this text, then frames: type (1 byte), channel (4), length (4), data; numbers are big-endian. Each side sends only
as many bytes of a channel as it has credit for, so that slow readers need little memory.

Between srun and a step, a small message after an unacknowledged one waits up to 40 ms (Nagle's algorithm, RFC 896). A
message in the other direction acknowledges it. So credit is given for many bytes at once, and only after an answer,
which it would delay. A side that has a partial frame, or waits for more, sends an empty message.

A connection is made only to listeners of the same user.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import selectors
import socket
import struct
import time

# fmt: off
HELLO, OPEN, OPENED, FAILED, DATA, END, CLOSE, CREDIT, PROVE, PROVED, PING, PONG = range(12)
# fmt: on
HEADER = struct.Struct(">BII")
WINDOW = 1 << 20  # unacknowledged bytes of a channel
PIECE = 64 << 10  # bytes of a frame, at most
NUDGE = HEADER.pack(CREDIT, 0, 0)
SILENCE_TIMEOUT_S = 90.0  # seconds of silence after which the client counts as gone
_CONNECT_TIMEOUT_S = 10.0
_ANSWER_DELAY_S = 0.003  # seconds for an answer of a service; then its input is acknowledged without one
_LISTEN = "0A"
# sock_diag(7), netlink(7): NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, bit of the state.
_DIAG, _BY_FAMILY, _ALL, _LISTENING = 4, 20, 0x301, 1 << 10
_ERROR, _DONE, _INTERRUPTED = 2, 3, 0x10
_HEAD, _SOCKET = struct.Struct("=IHHII"), struct.Struct("=B3x2s2x16s40xII")


def query_kernel(port: int) -> list[tuple[str, int, str]]:
    """Return the listeners of a port: (address, user id, inode), from the system, which examines only listeners.

    Reading all of /proc/net/tcp takes milliseconds. OSError: no answer.
    """
    found = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _DIAG) as link:
        link.settimeout(1.0)
        for family in (socket.AF_INET, socket.AF_INET6):
            asked = struct.pack("=BBxxI", family, socket.IPPROTO_TCP, _LISTENING) + struct.pack(">H", port)
            asked = asked.ljust(48, b"\0") + b"\xff" * 8  # no cookie
            link.send(_HEAD.pack(_HEAD.size + len(asked), _BY_FAMILY, _ALL, 0, 0) + asked)
            found += _answers(link, family, struct.pack(">H", port))
    return found


def _answers(link: socket.socket, family: int, port: bytes) -> list[tuple[str, int, str]]:
    found: list[tuple[str, int, str]] = []
    while True:
        data = link.recv(WINDOW)
        while len(data) >= _HEAD.size:
            length, kind, flags, _, _ = _HEAD.unpack_from(data)
            if kind == _DONE:
                return found
            if kind == _ERROR or flags & _INTERRUPTED or length < _HEAD.size + _SOCKET.size:
                raise OSError("the kernel does not tell who listens")
            there, number, address, uid, inode = _SOCKET.unpack_from(data, _HEAD.size)
            if (there, number) == (family, port):
                name = socket.inet_ntop(family, address[: 4 if family == socket.AF_INET else 16])
                found.append((_plain(name), uid, str(inode)))
            data = data[(length + 3) & ~3 :]


def listeners(table4: str, table6: str, port: int) -> list[tuple[str, int]]:
    """Return the listeners of a port, (address, user id) each, from the texts of /proc/net/tcp and tcp6 (proc(5))."""
    found = []
    for table, family in ((table4, socket.AF_INET), (table6, socket.AF_INET6)):
        for line in table.splitlines()[1:]:
            row = line.split()
            if len(row) < 10 or row[3] != _LISTEN:
                continue
            address, _, number = row[1].partition(":")
            if int(number, 16) == port:
                found.append((_address(address, family), int(row[7])))
    return found


def _address(text: str, family: int) -> str:
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    return _plain(socket.inet_ntop(family, struct.pack(f"={len(words)}I", *words)))


def _plain(name: str) -> str:
    return name[7:] if name.startswith("::ffff:") and "." in name else name


def route_to(found: list[tuple[str, int]], user: int, v6_only: bool = False) -> tuple[str | None, list[int]]:
    """Return the address that reaches a listener of this user, and the user ids of others on that port.

    The address is None if a connection would reach nobody or another user. The system prefers a listener on the exact
    address to one on all addresses. ``v6_only``: listeners on all IPv6 addresses do not get IPv4.
    """

    def owners(address: str) -> set[int]:
        levels = [address, "0.0.0.0", *([] if v6_only else ["::"])]  # noqa: S104
        for level in [address, "::"] if ":" in address else levels:
            uids = {uid for listener, uid in found if listener == level}
            if uids:
                return uids
        return set()

    own = [address for address, uid in found if uid == user and address not in ("0.0.0.0", "::")]  # noqa: S104
    for address in ["127.0.0.1", "::1", *own]:
        if owners(address) == {user}:
            return address, []
    return None, sorted({uid for _, uid in found if uid != user})


def tables() -> tuple[str, str]:
    """Return the texts of /proc/net/tcp and /proc/net/tcp6."""
    texts = []
    for name in ("tcp", "tcp6"):
        try:
            with open("/proc/net/" + name, encoding="ascii") as file:
                texts.append(file.read())
        except OSError:
            texts.append("")
    return texts[0], texts[1]


def reached(port: int) -> tuple[str | None, list[int]]:
    """Return :func:`route_to` a port of this node, for this user."""
    try:
        found = [(address, user) for address, user, _ in query_kernel(port)]
    except OSError:
        found = listeners(*tables(), port)
    return route_to(found, os.getuid(), any(address == "::" for address, _ in found) and _is_free(port))


def _is_free(port: int) -> bool:
    """Return whether a port is free for IPv4: /proc does not show whether a listener on ``::`` includes it."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class Channel:
    """Connection through the relay."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.sock: socket.socket | None = None
        self.deadline = 0.0
        self.credit = WINDOW  # bytes that the client accepts
        self.out = bytearray()  # bytes for the service
        self.taken = 0  # bytes without credit yet
        self.ended_by_peer = False
        self.ended_by_service = False
        self.mask = 0


class Relay:
    """Relay of frames from one file descriptor to another."""

    def __init__(self, source: int, sink: int) -> None:
        self.source, self.sink = source, sink
        self.channels: dict[int, Channel] = {}
        self.silent: set[Channel] = set()  # channels whose service has not answered its input
        self.ready = selectors.DefaultSelector()
        self.incoming = bytearray()
        self.received_at = time.monotonic()

    def run(self) -> None:
        """Serve until the client is gone."""
        self.send(HELLO, 0)
        self.ready.register(self.source, selectors.EVENT_READ)
        while True:
            ready = self.ready.select(_ANSWER_DELAY_S if self.silent else 1.0)
            if not ready:
                self.send_credit()
            for key, mask in ready:
                if key.data is None:
                    if not self.receive():
                        return
                elif key.data.number in self.channels:
                    self.serve(key.data, mask)
            now = time.monotonic()
            if now - self.received_at > SILENCE_TIMEOUT_S:
                return
            for channel in list(self.channels.values()):
                if channel.deadline and now > channel.deadline:
                    self.fail(channel, "silent", "it does not answer")

    def send(self, kind: int, number: int, data: bytes = b"") -> None:
        """Send a frame. The client reads frames at all times."""
        self.write_all(HEADER.pack(kind, number, len(data)) + data)

    def write_all(self, data: bytes) -> None:
        """Write all data."""
        view = memoryview(data)
        while view:
            view = view[os.write(self.sink, view) :]

    def receive(self) -> bool:
        """Read available data; False at the end."""
        data = os.read(self.source, 4 * PIECE)
        if not data:
            return False
        self.received_at = time.monotonic()
        self.incoming += data
        at = 0
        while len(self.incoming) - at >= HEADER.size:
            kind, number, length = HEADER.unpack_from(self.incoming, at)
            if length > PIECE:
                raise ValueError(f"a frame of {length} bytes")
            if len(self.incoming) - at - HEADER.size < length:
                break
            at += HEADER.size
            self.handle(kind, number, bytes(self.incoming[at : at + length]))
            at += length
        del self.incoming[:at]
        if self.incoming:
            self.write_all(NUDGE)
        return True

    def handle(self, kind: int, number: int, data: bytes) -> None:
        """Process a frame. A frame for an ended connection is ignored."""
        channel = self.channels.get(number)
        if kind == OPEN:
            self.open(number, int(data))
        elif kind == PROVE:
            address, others = reached(int(data))
            self.send(PROVED, number, json.dumps({"address": address, "others": others}).encode())
        elif kind == PING:
            self.send(PONG, number, data)
        elif channel is None:
            return
        elif kind == DATA:
            channel.out += data
            self.write(channel)
        elif kind == END:
            channel.ended_by_peer = True
            self.write(channel)
        elif kind == CREDIT:
            channel.credit += struct.unpack(">I", data)[0]
            self.watch(channel)
        elif kind == CLOSE:
            self.drop(channel)

    def open(self, number: int, port: int) -> None:
        """Open a connection after a check of the listener."""
        channel = self.channels[number] = Channel(number)
        address, others = reached(port)
        if others:
            self.fail(channel, "stranger", ", ".join(map(str, others)))
        elif address is None:
            self.fail(channel, "refused", "nothing listens there")
        else:
            channel.sock = sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
            sock.setblocking(False)
            channel.deadline = time.monotonic() + _CONNECT_TIMEOUT_S
            code = sock.connect_ex((address, port))
            if code not in (0, errno.EINPROGRESS):
                self.fail(channel, "refused", os.strerror(code))
            else:
                self.watch(channel)

    def connected(self, channel: Channel, sock: socket.socket) -> None:
        """Handle the result of connecting. Check again that this user listens: another user may have taken the port."""
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self.fail(channel, "refused", os.strerror(code))
            return
        peer, port = sock.getpeername()[:2]
        address, others = reached(port)
        if others:
            self.fail(channel, "stranger", ", ".join(map(str, others)))
            return
        if address != peer:
            self.fail(channel, "refused", "nothing listens there any more")
            return
        channel.deadline = 0.0
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.send(OPENED, channel.number)
        self.watch(channel)

    def serve(self, channel: Channel, mask: int) -> None:
        """Process a ready connection."""
        assert channel.sock is not None
        if channel.deadline:
            self.connected(channel, channel.sock)
            return
        if mask & selectors.EVENT_READ:
            self.read(channel, channel.sock)
        if mask & selectors.EVENT_WRITE and channel.number in self.channels:
            self.write(channel)

    def read(self, channel: Channel, sock: socket.socket) -> None:
        """Forward data from the service, as far as the client has given credit."""
        try:
            data = sock.recv(min(PIECE, channel.credit))
        except BlockingIOError:
            return
        except OSError:
            self.abort(channel)
            return
        self.silent.discard(channel)
        if data:
            channel.credit -= len(data)
            self.send(DATA, channel.number, data)
        else:
            channel.ended_by_service = True
            self.send(END, channel.number)
        self.settle(channel)

    def write(self, channel: Channel) -> None:
        """Forward data from the client, as far as the service accepts it."""
        if channel.deadline or channel.sock is None:
            return
        try:
            while channel.out:
                sent = channel.sock.send(channel.out)
                del channel.out[:sent]
                channel.taken += sent
                self.silent.add(channel)
                if channel.taken >= WINDOW // 4:
                    self.send_credit()
            if channel.ended_by_peer:
                channel.sock.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            pass
        except OSError:
            self.abort(channel)
            return
        self.settle(channel)

    def send_credit(self) -> None:
        """Give credit for data that services received without an answer."""
        for channel in self.silent:
            self.send(CREDIT, channel.number, struct.pack(">I", channel.taken))
            channel.taken = 0
        self.silent.clear()

    def settle(self, channel: Channel) -> None:
        """Close a connection when both sides have finished, else wait for more."""
        if channel.ended_by_service and channel.ended_by_peer and not channel.out:
            self.send(CLOSE, channel.number)
            self.drop(channel)
        else:
            self.watch(channel)

    def watch(self, channel: Channel) -> None:
        """Wait for the next possible operations."""
        mask = selectors.EVENT_WRITE if channel.out or channel.deadline else 0
        if channel.credit > 0 and not channel.ended_by_service and not channel.deadline:
            mask |= selectors.EVENT_READ
        if mask == channel.mask:
            return
        assert channel.sock is not None
        if channel.mask:
            self.ready.unregister(channel.sock)
        if mask:
            self.ready.register(channel.sock, mask, channel)
        channel.mask = mask

    def fail(self, channel: Channel, why: str, words: str) -> None:
        """Report that a connection could not be made."""
        self.send(FAILED, channel.number, (f"{why} {words}").encode())
        self.drop(channel)

    def abort(self, channel: Channel) -> None:
        """Report that a connection broke."""
        self.send(CLOSE, channel.number, b"broken")
        self.drop(channel)

    def drop(self, channel: Channel) -> None:
        """Forget a connection; one that has not ended is reset."""
        del self.channels[channel.number]
        self.silent.discard(channel)
        if channel.sock is None:
            return
        if channel.mask:
            self.ready.unregister(channel.sock)
        if not (channel.ended_by_service and channel.ended_by_peer):
            channel.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        channel.sock.close()


def main() -> None:
    """Serve on standard input and output."""
    with contextlib.suppress(BrokenPipeError):
        Relay(0, 1).run()


if __name__ == "__main__":
    main()
