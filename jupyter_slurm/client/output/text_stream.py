"""One text stream of a job, in parts: before the first display, between displays, after the last."""

from __future__ import annotations

import math
from collections.abc import Callable

from jupyter_slurm.client.render.rank_fold import RankedScreen
from jupyter_slurm.client.render.terminal import Screen, tail_text

__all__ = ["Part", "TextStream"]

_MAX_UNSETTLED_BYTES = 1_048_576  # bytes of the last part that can still be divided
_SHORTENING_STEPS = 8  # steps in which an old part is shortened, to avoid a redraw for every line of a later part

AnyScreen = Screen | RankedScreen
Part = tuple[str, bool]
"""The visible end of a part, and whether earlier text is left out."""


class TextStream:
    """The end of a stream, as terminals show it: a new terminal for each part.

    A part ends at a byte of the output file. This position arrives before or after the bytes: the files of a job are
    read one after another, and a network file system may show one of them seconds later than another.

    Parameters
    ----------
    limit : int
        Characters to keep.
    screen : callable
        Function that returns a terminal for a number of characters.
    """

    def __init__(self, limit: int, screen: Callable[[int], AnyScreen] = Screen) -> None:
        self._limit, self._screen = limit, screen
        self._unsettled: bytearray | None = None  # the bytes of the last part, which may still be divided
        self._since = 0  # start of these bytes
        self.clear()

    def clear(self, parts: int = 1) -> None:
        """Forget all text; start with the given number of empty parts."""
        self._parts = [self._screen(self._limit) for _ in range(parts)]
        self._ends: list[float] = [0.0] * (parts - 1)  # of all parts but the last
        self._at = 0  # bytes of the file that have arrived, or were skipped
        self._floor = 0.0  # earlier text was cleared
        self._is_shortened = False
        self._settle()

    def feed(self, offset: int, data: bytes) -> None:
        """Add text at a position of the file. A position that was read already means that the file was rewritten."""
        if offset < self._at:
            self.clear(len(self._parts))
        elif offset > self._at:  # only the end was requested
            self._parts = [self._screen(self._limit) for _ in self._parts]
            self._at, self._is_shortened = offset, True
            self._settle()
        self._pour(data)

    def divide(self, at: float | None, *, is_new_run: bool = False) -> None:
        """End the last part at a position of the file; None: the position is unknown, and later text stays before it.

        A requeued job may have rewritten its file: then a position before the last one belongs to another file.
        """
        place, last = math.inf if at is None else at, self._last_end()
        if is_new_run and place < last < math.inf:
            self.clear(len(self._parts))
            last = 0.0
        place = max(place, last)
        again = b""
        if place < self._at:
            if self._unsettled is None:
                place = self._at  # too late: earlier text is not divided again
            else:
                place, again, self._at = max(place, self._since), bytes(self._unsettled), self._since
                self._parts[-1] = self._screen(self._limit)
        self._ends.append(place)
        self._parts.append(self._screen(self._limit))
        self._settle()
        self._pour(again)

    def drop(self, parts: int) -> None:
        """Drop the first parts, including their later text."""
        if not parts:
            return
        if math.isinf(self._ends[parts - 1]):
            self._parts[parts] = self._parts[self._filling()]  # the end of this part is unknown: all text goes into it
        self._floor = max(self._floor, *(end for end in self._ends[:parts] if math.isfinite(end)), 0.0)
        del self._parts[:parts], self._ends[:parts]

    def has_any(self, parts: int) -> bool:
        """Return whether any text exists after the first parts."""
        return any(self._parts[parts:])

    def visible_parts(self, limit: int) -> dict[int, Part]:
        """Return the visible text of each part with text; the oldest ones are dropped above the limit."""
        found: dict[int, Part] = {}
        is_cut, step = self._is_shortened, max(1, limit // _SHORTENING_STEPS)
        for number in reversed(range(len(self._parts))):
            text = self._parts[number].text()
            if not text:
                continue
            if found and len(text) > limit:
                limit -= limit % step
            if limit <= 0:
                is_cut = True
                break
            found[number] = tail_text(text, limit), self._parts[number].dropped or len(text) > limit
            limit -= len(found[number][0])
        if is_cut and found:
            oldest = min(found)
            found[oldest] = found[oldest][0], True
        return found

    def _pour(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            number = self._filling()
            is_gone, is_last = self._at < self._floor, number == len(self._ends)
            end = self._floor if is_gone else math.inf if is_last else self._ends[number]
            piece = bytes(rest if math.isinf(end) else rest[: int(end) - self._at])
            if not is_gone:
                self._parts[number].feed(piece)
                if is_last:
                    self._append(piece)
            self._at, rest = self._at + len(piece), rest[len(piece) :]
            if self._at >= end:
                self._trim()

    def _filling(self) -> int:
        """Return the index of the part of the next byte."""
        return next((number for number, end in enumerate(self._ends) if end > self._at), len(self._ends))

    def _last_end(self) -> float:
        return self._ends[-1] if self._ends else self._floor

    def _append(self, piece: bytes) -> None:
        """Keep the bytes of the last part while it can be divided."""
        if self._unsettled is not None:
            if not self._unsettled:
                self._since = self._at
            self._unsettled += piece
            if len(self._unsettled) > max(_MAX_UNSETTLED_BYTES, self._limit):
                self._unsettled = None

    def _settle(self) -> None:
        self._unsettled, self._since = bytearray(), self._at

    def _trim(self) -> None:
        """Forget the parts before the kept text."""
        left = self._limit
        for number in reversed(range(len(self._parts))):
            if left <= 0 and self._parts[number]:
                self._parts[number], self._is_shortened = self._screen(self._limit), True
            left -= len(self._parts[number].text())
