"""Connections of a keeper to its kernel's sockets, with signed and verified messages. For ``keeper.py``.

The kernel's libzmq discards messages that are not read in time. So one thread only reads published messages, which are
processed elsewhere. Python 3.8+, standard library only.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import hmac
import os
import runpy
import selectors
import socket
import sys
import threading
from typing import TYPE_CHECKING, Any, Callable, Iterator

# The runner is not a package: its files are loaded by path.
load = runpy.run_path(__file__[: -len("kernel/zmq_sockets.py")] + "loader.py")["load"]
if TYPE_CHECKING:
    from jupyter_slurm.runner.kernel import zmtp
else:
    zmtp = load("kernel.zmtp")

_DELIMITER = b"<IDS|MSG>"
_PARTS = 4  # minimum parts of a message: header, parent header, metadata, content
_READ_SIZE = 1 << 20
_MAX_BYTES_AT_ONCE = 1 << 20  # bytes that are processed before other work gets its turn
_MAX_UNPROCESSED_BYTES = 256 << 20  # bytes that are read ahead; beyond, libzmq queues and may discard messages
_SWITCH_INTERVAL_S = 0.0005  # seconds that another thread may delay the reading one


class Signer:
    """Signer and verifier of messages of the kernel's protocol, with the kernel's key."""

    def __init__(self, key: bytes) -> None:
        self._blank = hmac.new(key, digestmod=hashlib.sha256)

    def sign(self, frames: list[bytes]) -> bytes:
        """Return the signature of a message."""
        made = self._blank.copy()
        for frame in frames[:_PARTS]:
            made.update(frame)
        return made.hexdigest().encode("ascii")

    def wrap(self, frames: list[bytes]) -> list[bytes]:
        """Return a message in the form for the kernel."""
        return [_DELIMITER, self.sign(frames), *frames]

    def unwrap(self, parts: list[bytes]) -> list[bytes] | None:
        """Return the message from the kernel without its prefix; None: the signature is wrong."""
        with contextlib.suppress(ValueError):
            at = parts.index(_DELIMITER) + 1
            frames = parts[at + 1 :]
            if len(frames) >= _PARTS and hmac.compare_digest(parts[at], self.sign(frames)):
                return frames
        return None


class ChannelSocket:
    """Connection to a socket of the kernel."""

    def __init__(self, sock: Any, kind: str, identity: bytes) -> None:
        self.peer, self.sock = zmtp.Peer(kind, identity), sock
        self._waiting: list[bytes] = []  # messages queued until sending is possible
        self._out: collections.deque[Any] = collections.deque([self.peer.first])

    def take(self, data: bytes) -> list[list[bytes]]:
        """Return the received messages."""
        answer, messages = self.peer.feed(data)
        if answer:
            self._out.append(answer)
            self._waiting.insert(0, self.peer.subscription)
        if self.peer.is_ready and self._waiting:
            self._out.extend(self._waiting)
            self._waiting = []
        return list(messages)

    def send(self, parts: list[bytes]) -> None:
        """Queue a message for sending."""
        (self._out if self.peer.is_ready else self._waiting).append(zmtp.pack(parts))

    @property
    def has_more(self) -> bool:
        """Return whether data waits to be written."""
        return bool(self._out)

    def write(self) -> None:
        """Write as much as the kernel accepts."""
        with contextlib.suppress(BlockingIOError):
            while self._out:
                head = memoryview(self._out.popleft())
                try:
                    count = self.sock.send(head)
                except BlockingIOError:
                    self._out.appendleft(head)
                    raise
                if count < len(head):
                    self._out.appendleft(head[count:])


class ChannelReader:
    """Thread that reads published messages as fast as they arrive.

    Parameters
    ----------
    sock : socket
        Blocking socket.
    wake : callable
        Called in that thread when there are new messages.
    """

    def __init__(self, sock: Any, wake: Callable[[], None]) -> None:
        self._sock, self._wake = sock, wake
        self._pieces: collections.deque[bytes] = collections.deque()
        self._size, self._room = 0, threading.Condition()
        self.is_over = self._is_closed = False
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        threading.Thread(target=self._read, name="iopub", daemon=True).start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._sock.recv(_READ_SIZE):
                with self._room:
                    self._pieces.append(data)
                    self._size += len(data)
                self._wake()
                if self._size > _MAX_UNPROCESSED_BYTES:
                    with self._room:
                        self._room.wait_for(lambda: self._is_closed or self._size <= _MAX_UNPROCESSED_BYTES)
        self.is_over = True
        self._wake()

    def take(self) -> Iterator[bytes]:
        """Return some received messages, in order."""
        size = 0
        while self._pieces and size < _MAX_BYTES_AT_ONCE:
            with self._room:
                piece = self._pieces.popleft()
                self._size -= len(piece)
                self._room.notify()
            size += len(piece)
            yield piece

    def close(self) -> None:
        """Stop reading."""
        with self._room:
            self._is_closed = True
            self._room.notify()

    @property
    def has_more(self) -> bool:
        """Return whether there are received messages."""
        return bool(self._pieces)


class ChannelSockets:
    """All connections to one kernel.

    Parameters
    ----------
    reach : callable
        Returns a connection to a socket: of shell, control, stdin, iopub; may raise OSError.
    key : bytes
        Key of the connection file.
    ready : selectors.BaseSelector
        Selector, whose entries are callables that get the events.
    reply : callable
        Takes a channel and a message received on it.
    wake : callable
        Called in another thread when messages were published.
    """

    NAMES = ("shell", "control", "stdin")

    def __init__(
        self,
        reach: Callable[[str], Any],
        key: bytes,
        ready: selectors.BaseSelector,
        reply: Callable[[str, list[bytes]], None],
        wake: Callable[[], None],
    ) -> None:
        self._reach, self._signer, self._wake = reach, Signer(key), wake
        self._ready, self._reply = ready, reply
        self._identity = b"keeper-" + os.urandom(8).hex().encode("ascii")
        self.wires: dict[str, ChannelSocket] = {}
        self.reader: ChannelReader | None = None
        self.refused = 0  # messages with a wrong signature

    def connect(self) -> bool:
        """Connect to the available sockets; return whether all are connected."""
        for name in (*self.NAMES, "iopub"):
            if name not in self.wires:
                try:
                    kind = "SUB" if name == "iopub" else "DEALER"
                    self.wires[name] = wire = ChannelSocket(self._reach(name), kind, self._identity)
                except OSError:
                    return False
                if name != "iopub":
                    wire.sock.setblocking(False)
        self._write_out(self.wires["iopub"])
        self.reader = ChannelReader(self.wires["iopub"].sock, self._wake)
        for name in self.NAMES:
            self._ready.register(
                self.wires[name].sock, selectors.EVENT_READ, lambda mask, name=name: self._serve(name, mask)
            )
        return True

    @staticmethod
    def _write_out(wire: ChannelSocket) -> None:
        """Write a few bytes to a blocking socket whose peer reads."""
        while wire.has_more:
            wire.write()

    def send(self, name: str, frames: list[bytes]) -> None:
        """Send a message to the kernel."""
        self.wires[name].send(self._signer.wrap(frames))

    def _serve(self, name: str, mask: int) -> None:
        """Read data from a socket of the kernel. A closed socket is only a sign of the kernel's end."""
        try:
            if mask & selectors.EVENT_READ:
                for frames in self._read(name):
                    self._reply(name, frames)
            if mask & selectors.EVENT_WRITE:
                self.wires[name].write()
        except (OSError, zmtp.ProtocolError) as error:
            if not isinstance(error, ConnectionError):
                sys.stderr.write(f"kernel: {error}\n")
            self._ready.unregister(self.wires[name].sock)

    def _read(self, name: str) -> Iterator[list[bytes]]:
        with contextlib.suppress(BlockingIOError):
            while data := self.wires[name].sock.recv(_READ_SIZE):
                yield from self._proven(self.wires[name].take(data))
            raise ConnectionAbortedError(f"the kernel has closed {name}")

    def _open(self) -> Iterator[str]:
        """Return the channels that the kernel has not closed."""
        return (name for name in self.NAMES if name in self.wires and self.wires[name].sock in self._ready.get_map())

    def read_rest(self) -> None:
        """Read the remaining data of a kernel that has ended."""
        for name in self._open():
            self._serve(name, selectors.EVENT_READ)

    def flush(self) -> None:
        """Write queued messages as soon as the kernel accepts them."""
        for name in self._open():
            wire = self.wires[name]
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if wire.has_more else 0)
            key = self._ready.get_key(wire.sock)
            if key.events != wanted:
                self._ready.modify(wire.sock, wanted, key.data)

    def published(self) -> Iterator[list[bytes]]:
        """Return some of the published messages."""
        if self.reader is not None:
            for piece in self.reader.take():
                yield from self._proven(self.wires["iopub"].take(piece))
                self._write_out(self.wires["iopub"])

    def _proven(self, messages: list[list[bytes]]) -> Iterator[list[bytes]]:
        for parts in messages:
            frames = self._signer.unwrap(parts)
            if frames is not None:
                yield frames
            else:
                self.refused += 1
                if self.refused == 1:
                    sys.stderr.write("A message of the kernel was ignored: it is not signed with the key.\n")

    def close(self) -> None:
        """Close all connections."""
        if self.reader is not None:
            self.reader.close()
        for wire in self.wires.values():
            with contextlib.suppress(OSError):
                wire.sock.shutdown(socket.SHUT_RDWR)  # wakes the thread
            wire.sock.close()
