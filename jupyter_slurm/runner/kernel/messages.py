"""Jupyter messages for the keeper of a kernel: creation, parsing, splitting, and the activity of the kernel.

ipykernel puts all output of a fifth of a second into one message. A single large message would be forwarded by each
process only after its complete arrival. Without a connected proxy, it would be dropped as a whole. So the message is
split into pieces: one is sent while the next one is made. Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import time
import uuid
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, cast

if TYPE_CHECKING:
    from jupyter_slurm.runner.job_document import MessageContent, MessageHeader, MessagePart

_PIECE_BYTES = 1 << 20  # bytes
_MAX_LINE_END_TRIES = 1000  # candidates for the end of a line
_NAME = rb'"name"\s*:\s*"(?:stdout|stderr)"'
_BEGINS = re.compile(rb"\s*\{\s*(?:" + _NAME + rb'\s*,\s*)?"text"\s*:\s*"')
_ENDS = re.compile(rb'"\s*(?:,\s*' + _NAME + rb"\s*)?\}\s*\Z")
_TAIL = 64  # bytes that contain the fields after the text
_BACKSLASH = ord("\\")


def message(kind: str, content: MessageContent, parent: bytes = b"{}") -> tuple[str, list[bytes]]:
    """Return id and frames of a new message."""
    at = datetime.datetime.now(datetime.timezone.utc).isoformat()
    header = {"msg_id": uuid.uuid4().hex, "msg_type": kind, "session": "keeper", "username": "keeper", "date": at}
    told = json.dumps({**header, "version": "5.3"}).encode()
    return header["msg_id"], [told, parent, b"{}", json.dumps(content).encode()]


def read(frame: bytes) -> MessagePart:
    """Return a parsed part of a message; empty if it is not an object."""
    try:
        told = json.loads(frame)
    except (ValueError, RecursionError):
        return {}
    return cast("MessagePart", told) if isinstance(told, dict) else {}


def word(told: Mapping[str, object], name: str) -> str:
    """Return the text under a name of an object; empty if it is not a text."""
    said = told.get(name)
    return said if isinstance(said, str) else ""


def pieces(header: MessageHeader, frames: list[bytes], size: int = _PIECE_BYTES) -> Iterator[list[Any]]:
    """Return a message unchanged, or a large output as several messages, each of which ends with a line.

    The content of these is a tuple of parts: none of the text is copied.

    Parameters
    ----------
    header : dict
        Parsed first frame.
    frames : list of bytes
        Header, parent, metadata and content, then buffers.
    size : int, optional
        Bytes of a piece, without the rest of its last line.
    """
    content = frames[3]
    is_large = len(content) >= 2 * size and len(frames) == 4 and header.get("msg_type") == "stream"
    begin, end = _text(content) if is_large else (0, 0)
    if begin == end:
        yield frames
        return
    told, opened, closed = frames[0], content[:begin], content[end:]
    while begin < end:
        cut = _line_end(content, begin + size, end)
        yield [told, frames[1], frames[2], (opened, memoryview(content)[begin:cut], closed)]
        told, begin = json.dumps({**header, "msg_id": uuid.uuid4().hex}).encode(), cut


def _text(content: bytes) -> tuple[int, int]:
    """Return start and end of an output's text; (0, 0) if they are uncertain."""
    opened, closed = _BEGINS.match(content), _ENDS.search(content, max(0, len(content) - _TAIL))
    if not (opened and closed):
        return 0, 0
    begin, end = opened.end(), closed.start()
    # Another name after the text would have a quotation mark without a backslash before it.
    has_more = content.find(b'"', begin, end) >= 0
    is_all = not has_more or content.count(b'"', begin, end) == content.count(b'\\"', begin, end)
    return (begin, end) if is_all else (0, 0)


def _line_end(content: bytes, at: int, end: int) -> int:
    """Return the end of the next line; the end of the text if there is none."""
    for _ in range(_MAX_LINE_END_TRIES):
        at = content.find(b"\\n", at, end)
        if at < 0:
            return end
        before = at
        while content[before - 1] == _BACKSLASH:  # a second backslash is escaped by the first, and starts no escape
            before -= 1
        at += 2
        if (at - before) % 2 == 0:
            return at
    return end


class Activity:
    """Activity of a kernel.

    Parameters
    ----------
    clock : callable, optional
        Returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._last = clock, clock()
        self._at_work: set[str] = set()  # ids of the requests

    def note_request(self) -> None:
        """Record a request."""
        self._last = self._clock()

    def note_message(self, kind: str, parent: str, content: MessageContent) -> None:
        """Record a published message: its type, the id of the request, the content of a status."""
        self._last = self._clock()
        state = content.get("execution_state") if kind == "status" else None
        if state == "busy":
            self._at_work.add(parent)
        elif state == "idle":
            self._at_work.discard(parent)

    @property
    def is_at_work(self) -> bool:
        """Return whether a request is unfinished."""
        return bool(self._at_work)

    @property
    def unused(self) -> float:
        """Seconds without a request, computation or message."""
        return 0.0 if self._at_work else self._clock() - self._last


class WakeSignal:
    """Pipe that another thread or a signal writes to, which wakes a thread that selects ``file``."""

    def __init__(self) -> None:
        self.file, self.signals = os.pipe()  # the end to wait for, and the one for signal.set_wakeup_fd
        for end in (self.file, self.signals):
            os.set_blocking(end, False)
        self._has_rung = False

    def ring(self) -> None:
        """Send a wake-up signal, unless one is pending."""
        if not self._has_rung:
            self._has_rung = True
            with contextlib.suppress(BlockingIOError):
                os.write(self.signals, b"\0")

    def listen(self, _: int) -> None:
        """Reset the signal."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.file, 4096)
        self._has_rung = False  # before new data is examined
