"""What a kernel prints at once, in pieces: one is on its way while the next one is made. For ``keeper.py``.

ipykernel puts all into one message that was printed within a fifth of a second. As one it would go from hand to hand,
each of which begins when the one before has all of it; and too much of it for a front that is away would be dropped
as a whole. Python 3.8+, standard library only.
"""

from __future__ import annotations

import json
import re
import uuid
from typing import Any, Iterator

_PIECE = 1 << 20  # bytes
_LOOKS = 1000  # places that may be the end of a line and are none
_NAME = rb'"name"\s*:\s*"(?:stdout|stderr)"'
_BEGINS = re.compile(rb"\s*\{\s*(?:" + _NAME + rb'\s*,\s*)?"text"\s*:\s*"')
_ENDS = re.compile(rb'"\s*(?:,\s*' + _NAME + rb"\s*)?\}\s*\Z")
_TAIL = 64  # bytes in which what is behind the text stands
_BACKSLASH = ord("\\")


def pieces(header: dict[str, Any], frames: list[bytes], size: int = _PIECE) -> Iterator[list[Any]]:
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
    for _ in range(_LOOKS):
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
