"""Link between a proxy on the user's computer and a keeper on the node, over successive connections.

The module reads and writes no sockets: received bytes are passed in, bytes to send are requested. Both ends use it: the
keeper (``kernel/keeper.py``), and the proxy, which imports it from the package. Python 3.8+, standard library only.

A connection begins with a handshake (``handshake.py``). Frames follow: type (1 byte), length (4, big-endian), body. A
record (``DATA``) has a number (8 bytes), greater than the previous one. The sender keeps it until the peer confirms it
(``ACK``), and sends it again on the next connection. An end that is silent for a while sends ``ALIVE``, also while it
receives a lot.

Payload of a record: channel (1 byte), number of frames (4), their lengths (4 each), the frames. The channel ``NOTE``
has one frame of JSON. The other channels have header, parent, metadata, content and buffers of a Jupyter message.
"""

from __future__ import annotations

import collections
import contextlib
import json
import struct
import time
from typing import Any, Callable, Iterable, NamedTuple, Sequence

SHELL, CONTROL, STDIN, IOPUB, NOTE = range(5)
KEEPALIVE_INTERVAL_S, SILENCE_TIMEOUT_S = 5.0, 15.0  # seconds of silence: of this end, of the peer
MAX_FRAME_BYTES = 1 << 31  # bytes of a frame
_DATA, _ACK, _ALIVE, _REPLACED = range(4)
_HEADER, _NUMBER, _COUNT = struct.Struct(">BI"), struct.Struct(">Q"), struct.Struct(">BI")
_MAX_READY_BYTES = 256 << 10  # bytes that are prepared for sending
_MIN_UNCOPIED_BYTES = 64 << 10  # bytes that are sent without a copy
_MAX_FRAMES = 10_000
_MAX_NOTE_BYTES = 16 << 20  # bytes of a note, which is parsed at once
_NOTHING = memoryview(b"")


class LinkBroken(Exception):
    """The connection is broken: the peer is silent, or sent invalid data."""


class Message(NamedTuple):
    """Received message of a record."""

    channel: int
    frames: list[bytes]

    def note(self) -> dict[str, object]:
        """Return the parsed note; may raise LinkBroken."""
        try:
            if len(self.frames[0]) > _MAX_NOTE_BYTES:
                raise LinkBroken(f"a note of {len(self.frames[0])} bytes")
            told = json.loads(self.frames[0])
        except (IndexError, ValueError, RecursionError) as error:
            raise LinkBroken(f"a note that cannot be read: {error}") from None
        if not isinstance(told, dict):
            raise LinkBroken("a note that is no object")
        return told


def pack(channel: int, frames: Sequence[Any]) -> list[Any]:
    """Return the payload of a record, in parts. A frame given as a tuple of parts is not copied."""
    parts: list[Any] = []
    for frame in frames:
        parts += frame if isinstance(frame, tuple) else (frame,)
    sizes = (sum(map(len, frame)) if isinstance(frame, tuple) else len(frame) for frame in frames)
    return _joined([_COUNT.pack(channel, len(frames)), struct.pack(f">{len(frames)}I", *sizes), *parts])


def _joined(parts: Iterable[Any]) -> list[Any]:
    """Return the same bytes in fewer parts: large parts are kept, small ones between them are joined."""
    joined: list[Any] = []
    small: list[Any] = []
    for part in parts:
        if len(part) < _MIN_UNCOPIED_BYTES:
            small.append(part)
            continue
        if small:
            joined.append(b"".join(small))
            small = []
        joined.append(part)
    return [*joined, b"".join(small)] if small else joined


def unpack(payload: bytes | memoryview) -> Message:
    """Return the content of a payload from :func:`pack`; may raise LinkBroken."""
    try:
        channel, count = _COUNT.unpack_from(payload)
        if count > _MAX_FRAMES:
            raise LinkBroken(f"a message of {count} frames")
        lengths = struct.unpack_from(f">{count}I", payload, _COUNT.size)
    except struct.error as error:
        raise LinkBroken(f"a record that is cut short: {error}") from None
    at, frames = _COUNT.size + 4 * count, []
    for length in lengths:
        frames.append(bytes(payload[at : at + length]))
        at += length
    if at != len(payload):
        raise LinkBroken(f"a record of {len(payload)} bytes for frames of {at}")
    return Message(channel, frames)


# Outgoing records -----------------------------------------------------------------------------------------------------


class _Record:
    """Record: its payload, and its cause if it may be dropped."""

    __slots__ = ("cause", "count", "length", "payload", "size")

    def __init__(self, payload: list[Any], cause: bytes | None) -> None:
        self.payload, self.length, self.cause = payload, sum(map(len, payload)), cause
        self.size, self.count = 0, 0  # of a note about dropped records: bytes, messages

    def payload_to_send(self) -> list[Any]:
        """Return the payload. A note about dropped records contains the current numbers."""
        if not self.count:
            return self.payload
        parent: Any = {}
        with contextlib.suppress(ValueError, RecursionError):  # the peer accepts an unreadable cause
            parent = json.loads(self.cause or b"{}")
        note = {"event": "dropped", "bytes": self.size, "messages": self.count, "parent": parent}
        return pack(NOTE, [json.dumps(note).encode()])


class Outbox:
    """Records that the peer has not confirmed. Beyond a number of bytes, the oldest droppable records are dropped.

    Parameters
    ----------
    limit : int
        Bytes of records that were not sent on this connection.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.last = limit, 0
        self.unsent = 0  # bytes
        self._records: collections.OrderedDict[int, _Record] = collections.OrderedDict()
        self._queue: collections.deque[int] = collections.deque()
        self._victims: collections.deque[int] = collections.deque()
        self._marks: dict[bytes, int] = {}  # cause: unsent note about its dropped records

    def __len__(self) -> int:
        return len(self._records)

    def put(self, payload: list[Any], cause: bytes | None = None) -> None:
        """Add a record. A ``cause``, the parent header of a message, marks the record as droppable."""
        self.last += 1
        self._records[self.last] = record = _Record(payload, cause)
        self._queue.append(self.last)
        self.unsent += record.length
        if cause is not None:
            self._victims.append(self.last)
        while self.unsent > self.limit and self._victims:
            self._drop(self._victims.popleft())

    def _drop(self, number: int) -> None:
        record = self._records.get(number)
        if record is None:
            return
        self.unsent -= record.length
        record.size, record.count, record.payload, record.length = record.length, 1, [], 0
        cause = record.cause or b""
        # The note takes the place of the last dropped record of a cell: the peer may have received the earlier ones.
        before = self._records.pop(self._marks.pop(cause, 0), None)
        if before is not None:
            record.size, record.count = record.size + before.size, record.count + before.count
        self._marks[cause] = number

    def next(self) -> tuple[int, list[Any]] | None:
        """Return the next record to send; None: there is none."""
        while self._queue:
            number = self._queue.popleft()
            record = self._records.get(number)
            if record is not None:
                self.unsent -= record.length
                if record.count:
                    self._marks.pop(record.cause or b"", None)
                elif record.cause is not None and self._victims and self._victims[0] == number:
                    self._victims.popleft()
                return number, record.payload_to_send()
        return None

    @property
    def has_next(self) -> bool:
        """Return whether there is an unsent record."""
        return any(number in self._records for number in self._queue)

    def has(self, number: int) -> None:
        """Forget the records that the peer has."""
        while self._records and next(iter(self._records)) <= number:
            self._records.popitem(last=False)

    def rewind(self) -> None:
        """Mark all records that the peer may lack as unsent."""
        self._queue = collections.deque(self._records)
        self._victims = collections.deque(n for n, r in self._records.items() if r.cause is not None and not r.count)
        self._marks = {r.cause or b"": n for n, r in self._records.items() if r.count}
        self.unsent = sum(record.length for record in self._records.values())


# The link -------------------------------------------------------------------------------------------------------------


class Link:
    """One end of the link, over all connections.

    Parameters
    ----------
    limit : int, optional
        Bytes beyond which droppable records are dropped.
    clock : callable, optional
        Returns seconds.
    """

    def __init__(self, limit: int = 1 << 62, clock: Callable[[], float] = time.monotonic) -> None:
        self.outbox, self._clock = Outbox(limit), clock
        self.received = 0  # number of the last record that was passed on
        self._fed = 0  # number of the last record that arrived
        self.is_attached = False
        self.is_replaced = False  # the peer has reported a newer proxy: this one must end
        self._incoming = bytearray()
        self._ready: collections.deque[memoryview] = collections.deque()
        self._words: list[bytes] = []  # frames that are not records
        self._received_at = self._sent_at = 0.0

    def attach(self, received: int, rest: bytes) -> list[Message]:
        """Continue over a connection after its handshake; return the messages that arrived with the handshake.

        Parameters
        ----------
        received : int
            Number of the last record that the peer has received.
        rest : bytes
            Bytes after the handshake.
        """
        self.detach()
        self.outbox.has(received)
        self.is_attached, self._received_at, self._fed = True, self._clock(), self.received
        return self.feed(rest)

    def detach(self) -> None:
        """Forget the connection: unconfirmed records will be sent again."""
        self.is_attached = False
        self._incoming, self._words = bytearray(), []
        self._ready.clear()
        self.outbox.rewind()

    def forget(self) -> None:
        """Start from scratch with another peer, which has sent nothing yet."""
        self.received = self._fed = 0

    def send(self, channel: int, frames: Sequence[Any], cause: bytes | None = None) -> None:
        """Send a message. With its parent header as ``cause``, the message may be dropped if there are too many."""
        self.outbox.put(pack(channel, frames), cause)

    def send_note(self, **told: Any) -> None:
        """Send a note."""
        self.send(NOTE, [json.dumps(told).encode()])

    def replace(self) -> bytes:
        """Return the frame that tells a proxy of a newer one."""
        return _HEADER.pack(_REPLACED, 0)

    def feed(self, data: bytes) -> list[Message]:
        """Process received bytes, return the messages in them; may raise LinkBroken.

        :meth:`confirm` reports that they are passed on. Until then they would arrive again on another connection.
        """
        self._incoming += data
        if data:
            self._received_at = self._clock()
        messages: list[Message] = []
        view, at, size = memoryview(self._incoming), 0, len(self._incoming)
        try:
            while size - at >= _HEADER.size:
                kind, length = _HEADER.unpack_from(view, at)
                if length > MAX_FRAME_BYTES:
                    raise LinkBroken(f"a frame of {length} bytes")
                if size - at - _HEADER.size < length:
                    break
                at += _HEADER.size
                with view[at : at + length] as body:
                    self._handle(kind, body, messages)
                at += length
        finally:
            view.release()
            del self._incoming[:at]
        return messages

    def _handle(self, kind: int, body: memoryview, messages: list[Message]) -> None:
        if kind in (_DATA, _ACK) and len(body) < _NUMBER.size:
            raise LinkBroken("a record without a number")
        if kind == _DATA:
            (number,) = _NUMBER.unpack_from(body)
            if number > self._fed:
                with body[_NUMBER.size :] as payload:
                    messages.append(unpack(payload))
                self._fed = number
        elif kind == _ACK:
            self.outbox.has(_NUMBER.unpack_from(body)[0])
        elif kind == _REPLACED:
            self.is_replaced = True

    def confirm(self) -> None:
        """Confirm that all received messages are passed on."""
        if self._fed > self.received:
            self.received = self._fed
            self._words.append(_HEADER.pack(_ACK, _NUMBER.size) + _NUMBER.pack(self.received))

    def pending(self) -> memoryview:
        """Return bytes to send now; empty: nothing to send. :meth:`written` reports how many were sent."""
        if not self._ready and self.is_attached:
            self._make_ready()
        return self._ready[0] if self._ready else _NOTHING

    def _make_ready(self) -> None:
        words, self._words = self._words, []
        size = 0
        while size < _MAX_READY_BYTES and (record := self.outbox.next()) is not None:
            number, payload = record
            length = sum(map(len, payload))
            words += (_HEADER.pack(_DATA, _NUMBER.size + length), _NUMBER.pack(number), *payload)
            size += length
        if words:
            self._ready.extend(map(memoryview, _joined(words)))
            self._sent_at = self._clock()

    def written(self, count: int) -> None:
        """Record the number of bytes of :meth:`pending` that were sent."""
        if count:
            head = self._ready.popleft()
            if count < len(head):
                self._ready.appendleft(head[count:])

    @property
    def is_sent(self) -> bool:
        """Return whether everything was given to this connection, which does not imply its arrival."""
        return self.is_attached and not self._ready and not self.outbox.has_next

    @property
    def is_clear(self) -> bool:
        """Return whether the peer has confirmed everything."""
        return not len(self.outbox)

    def tick(self) -> None:
        """Check the peer, about once a second, after received bytes were processed; may raise LinkBroken."""
        now = self._clock()
        if not self.is_attached:
            return
        if now - self._received_at > SILENCE_TIMEOUT_S:
            raise LinkBroken(f"nothing was heard for {SILENCE_TIMEOUT_S:g} s")
        if now - self._sent_at > KEEPALIVE_INTERVAL_S:
            self._sent_at = now
            self._words.append(_HEADER.pack(_ALIVE, 0))
