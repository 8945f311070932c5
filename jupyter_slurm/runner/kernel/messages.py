"""Messages of Jupyter as the keeper of a kernel makes, reads and cuts them, and what they tell of the kernel's work.

ipykernel puts all into one message that was printed within a fifth of a second. As one it would go from hand to hand,
each of which begins when the one before has all of it; and too much of it for a front that is away would be dropped
as a whole. So it goes in pieces: one is on its way while the next one is made. Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import time
import uuid
from typing import Any, Callable, Iterator

_PIECE_BYTES = 1 << 20  # bytes
_MAX_LINE_END_TRIES = 1000  # places that may be the end of a line and are none
_NAME = rb'"name"\s*:\s*"(?:stdout|stderr)"'
_BEGINS = re.compile(rb"\s*\{\s*(?:" + _NAME + rb'\s*,\s*)?"text"\s*:\s*"')
_ENDS = re.compile(rb'"\s*(?:,\s*' + _NAME + rb"\s*)?\}\s*\Z")
_TAIL = 64  # bytes in which what is behind the text stands
_BACKSLASH = ord("\\")


def message(kind: str, content: dict[str, Any], parent: bytes = b"{}") -> tuple[str, list[bytes]]:
    """Return the id and the frames of a message of ours."""
    at = datetime.datetime.now(datetime.timezone.utc).isoformat()
    header = {"msg_id": uuid.uuid4().hex, "msg_type": kind, "session": "keeper", "username": "keeper", "date": at}
    told = json.dumps({**header, "version": "5.3"}).encode()
    return header["msg_id"], [told, parent, b"{}", json.dumps(content).encode()]


def read(frame: bytes) -> dict[str, Any]:
    """Return what a part of a message says; nothing, where it is no object."""
    try:
        told = json.loads(frame)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def word(told: dict[str, Any], name: str) -> str:
    """Return what an object says under a name; nothing, where that is no text."""
    said = told.get(name)
    return said if isinstance(said, str) else ""


def pieces(header: dict[str, Any], frames: list[bytes], size: int = _PIECE_BYTES) -> Iterator[list[Any]]:
    """Return a message as it is or, where it is a large output, as several, each of which ends with a line.

    The content of these is a tuple of parts: none of the text is copied.

    Parameters
    ----------
    header : dict
        What its first frame says.
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
    """Return where the text of an output begins and ends; nowhere, if that is not plain to see."""
    opened, closed = _BEGINS.match(content), _ENDS.search(content, max(0, len(content) - _TAIL))
    if not (opened and closed):
        return 0, 0
    begin, end = opened.end(), closed.start()
    # Behind the end of the text there would be another name, whose quotation mark has no backslash before it.
    has_more = content.find(b'"', begin, end) >= 0
    is_all = not has_more or content.count(b'"', begin, end) == content.count(b'\\"', begin, end)
    return (begin, end) if is_all else (0, 0)


def _line_end(content: bytes, at: int, end: int) -> int:
    """Return where the next line ends; the end of all where there is none."""
    for _ in range(_MAX_LINE_END_TRIES):
        at = content.find(b"\\n", at, end)
        if at < 0:
            return end
        before = at
        while content[before - 1] == _BACKSLASH:  # of two, the second one is itself, and no beginning
            before -= 1
        at += 2
        if (at - before) % 2 == 0:
            return at
    return end


class Activity:
    """What a kernel does.

    Parameters
    ----------
    clock : callable, optional
        Seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._last = clock, clock()
        self._at_work: set[str] = set()  # ids of the requests

    def note_request(self) -> None:
        """Take note of a request."""
        self._last = self._clock()

    def note_message(self, kind: str, parent: str, content: dict[str, Any]) -> None:
        """Take note of what it publishes: a type of message, the id of the request, the content of a status."""
        self._last = self._clock()
        state = content.get("execution_state") if kind == "status" else None
        if state == "busy":
            self._at_work.add(parent)
        elif state == "idle":
            self._at_work.discard(parent)

    @property
    def is_at_work(self) -> bool:
        """Whether there is a request that is not done."""
        return bool(self._at_work)

    @property
    def unused(self) -> float:
        """Seconds for which nothing was asked, done or said."""
        return 0.0 if self._at_work else self._clock() - self._last


class WakeSignal:
    """A pipe that another thread, or a signal, rings: whoever selects ``file`` wakes up."""

    def __init__(self) -> None:
        self.file, self.signals = os.pipe()  # the end to wait for, and the one for signal.set_wakeup_fd
        for end in (self.file, self.signals):
            os.set_blocking(end, False)
        self._has_rung = False

    def ring(self) -> None:
        """Wake it, once until it has listened."""
        if not self._has_rung:
            self._has_rung = True
            with contextlib.suppress(BlockingIOError):
                os.write(self.signals, b"\0")

    def listen(self, _: int) -> None:
        """Take note that it was rung."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.file, 4096)
        self._has_rung = False  # before what has come is looked at
