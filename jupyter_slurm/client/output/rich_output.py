"""Displays of a Python cell, as its runner recorded them (``jupyter_slurm/runner/cell/display.py``)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict, cast

if TYPE_CHECKING:
    from jupyter_slurm.client.jupyter_types import MimeBundle

__all__ = ["DisplayMessages", "DisplayedOutput", "Screening", "stream_position"]

Screening = Callable[["MimeBundle", "MimeBundle"], tuple["MimeBundle", "MimeBundle"]]
"""Function that returns what is shown of the data and the metadata of a display."""

_MAX_LINE_BYTES = 32 * 1024 * 1024  # bytes; the lines of the runner are shorter
_MAX_BRACKETS = 1_000_000  # of a line: the parser holds the interpreter's lock while it makes lists and objects


class DisplayMessage(TypedDict, total=False):
    """A well-formed line of the file: the first line has ``format``, each other one ``type``."""

    format: int
    type: str
    id: str | None
    data: MimeBundle
    metadata: MimeBundle
    at: Mapping[str, int]
    wait: bool
    job: str
    restarts: int


@dataclass
class DisplayedOutput:
    """One display: a MIME bundle, its display id if any, and the number of text parts before it."""

    id: str | None
    data: MimeBundle
    metadata: MimeBundle
    size: int
    after: int

    @classmethod
    def from_message(cls, message: DisplayMessage, size: int, after: int, screen: Screening) -> DisplayedOutput | None:
        """Parse a message; return None if it is not a display. ``screen`` decides what of it is shown."""
        data, metadata, name = message.get("data"), message.get("metadata"), message.get("id")
        if not isinstance(data, dict) or not isinstance(metadata, dict):
            return None
        return cls(name if isinstance(name, str) else None, *screen(data, metadata), size, after)

    @property
    def text(self) -> str:
        """Return the text form, for places that show only text."""
        text = self.data.get("text/plain")
        return f"{text}\n" if isinstance(text, str) else ""


class DisplayMessages:
    """Parser of the display file, fed in pieces."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._is_torn = False

    def feed(self, data: bytes) -> Iterator[tuple[DisplayMessage, int]]:
        """Parse a piece of the file; yield each complete message with its size in bytes."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._line += line
            message = None if self._is_torn else _read(bytes(self._line))
            size = len(self._line)
            self._line.clear()
            self._is_torn = False
            if message is not None:
                yield message, size
        self._line += rest
        if len(self._line) > _MAX_LINE_BYTES:
            self._is_torn = True
            self._line.clear()


def _read(line: bytes) -> DisplayMessage | None:
    """Parse one message; return None if it is incomplete (the last line of a killed job), or would hold the kernel."""
    if line.count(b"[") + line.count(b"{") > _MAX_BRACKETS:
        return None
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast("DisplayMessage", message) if isinstance(message, dict) else None


def stream_position(message: DisplayMessage, stream: str) -> int | None:
    """Return the bytes of a stream written before a message; None if the runner did not know the file."""
    places = message.get("at")
    place = places.get(stream) if isinstance(places, dict) else None
    return place if isinstance(place, int) and not isinstance(place, bool) and 0 <= place < 2**63 else None
