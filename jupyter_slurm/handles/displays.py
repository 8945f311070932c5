"""What a Python cell showed beside text, as its runner wrote it down (``jupyter_slurm/runner/display.py``)."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import Any

__all__ = ["Displays", "Shown"]

FORMAT = 1
_LONGEST = 32 * 1024 * 1024  # a line of the runner's is shorter
_MOST = 1000  # outputs


@dataclass
class Shown:
    """One output: a MIME bundle, its display id if it has one, and a number that is another one after each change."""

    id: str | None
    data: dict[str, Any]
    metadata: dict[str, Any]
    size: int
    version: int


class Displays:
    """What is to be seen now of all that was shown, updated and cleared.

    Parameters
    ----------
    limit : int
        Bytes that are kept; what comes later is counted (:attr:`left_out`).
    """

    def __init__(self, limit: int) -> None:
        self.shown: list[Shown] = []
        self.left_out = 0
        self._limit = limit
        self._versions = itertools.count(1)
        self._line = bytearray()
        self._is_torn = False
        self._clears = False

    def feed(self, data: bytes) -> str:
        """Take in a piece of the file; return what stands for what is new in a place that shows text only."""
        texts = []
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._line += line
            if not self._is_torn:
                texts.append(self._read(bytes(self._line)))
            self._line.clear()
            self._is_torn = False
        self._line += rest
        if len(self._line) > _LONGEST:
            self._is_torn = True
            self._line.clear()
        return "".join(texts)

    def _read(self, line: bytes) -> str:
        """Take in one message; what is none (half a line of a job that was killed) is passed over."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return ""
        if not isinstance(message, dict):
            return ""
        kind = message.get("type")
        if kind == "clear":
            self._clears = True
            if not message.get("wait"):
                self._clear()
        elif kind in ("display", "update"):
            return self._show(message, len(line), update=kind == "update")
        return ""

    def _show(self, message: dict[str, Any], size: int, *, update: bool) -> str:
        data, metadata, name = message.get("data"), message.get("metadata"), message.get("id")
        if not isinstance(data, dict) or not isinstance(metadata, dict):
            return ""
        if self._clears and not update:
            self._clear()
        output = Shown(name if isinstance(name, str) else None, data, metadata, size, next(self._versions))
        places = [place for place, shown in enumerate(self.shown) if update and shown.id and shown.id == output.id]
        kept = sum(shown.size for place, shown in enumerate(self.shown) if place not in places)
        if kept + size * max(1, len(places)) > self._limit or (not places and len(self.shown) >= _MOST):
            self.left_out += 1
            return ""
        for place in places:
            self.shown[place] = output
        if not places:  # of an update, too: its first form was left out, or cleared
            self.shown.append(output)
        text = data.get("text/plain")
        return f"{text}\n" if isinstance(text, str) else ""

    def _clear(self) -> None:
        self.shown.clear()
        self._clears = False
