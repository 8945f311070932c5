"""Parser of server-sent events (the HTML standard, "Server-sent events")."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator

__all__ = ["EventParser"]


class EventParser:
    """Parser of one stream, which may be cut anywhere. Fields other than ``event`` and ``data`` are ignored."""

    def __init__(self) -> None:
        text = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._decode = io.IncrementalNewlineDecoder(text, translate=True).decode  # a line may end with CR, LF or both
        self._line: list[str] = []  # pieces of the unfinished line
        self._event = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[tuple[str, str]]:
        """Return the events that are complete now, as (event, data)."""
        first, *more = self._decode(piece).split("\n")
        self._line.append(first)
        for begun in more:
            yield from self._end_line("".join(self._line))
            self._line = [begun]

    def _end_line(self, line: str) -> Iterator[tuple[str, str]]:
        if line:
            field, _, value = line.partition(":")  # the field of a comment is empty
            if field == "data":
                self._data.append(value.removeprefix(" "))
            elif field == "event":
                self._event = value.removeprefix(" ")
            return
        if self._data:
            yield self._event or "message", "\n".join(self._data)
        self._event, self._data = "", []
