"""One stream of a job's output, in parts: before the first thing shown beside text, between two, after the last."""

from __future__ import annotations

import math
from collections.abc import Callable

from jupyter_slurm.client.render.rank_fold import RankedScreen
from jupyter_slurm.client.render.terminal import Screen, end_of

__all__ = ["Part", "TextStream"]

_UNSETTLED = 1_048_576  # bytes of the last part that can still be divided
_STEPS = 8  # in which an old part is shortened, so that it is not drawn anew for every line of a later one

AnyScreen = Screen | RankedScreen
Part = tuple[str, bool]
"""The end of a part that is to be seen, and whether something before it is left out."""


class TextStream:
    """The end of a stream, as terminals show it: a new one for each part.

    A part ends at a byte of the output file. That is heard of before the bytes come, or after: the files of a job are
    read one after the other, and over a network file system one of them may be seen seconds later than another.

    Parameters
    ----------
    limit : int
        Characters that are kept.
    screen : callable
        Gives a terminal for so many characters.
    """

    def __init__(self, limit: int, screen: Callable[[int], AnyScreen] = Screen) -> None:
        self._limit, self._screen = limit, screen
        self._unsettled: bytearray | None = None  # the bytes of the last part, which may turn out to be two
        self._since = 0  # where they begin
        self.start_anew()

    def start_anew(self, parts: int = 1) -> None:
        """Forget all that was printed; there are so many parts already, and they are empty."""
        self._parts = [self._screen(self._limit) for _ in range(parts)]
        self._ends: list[float] = [0.0] * (parts - 1)  # of all parts but the last
        self._at = 0  # bytes of the file that have come, or were passed over
        self._floor = 0.0  # what comes from before it was cleared
        self._is_shortened = False
        self._settle()

    def feed(self, offset: int, data: bytes) -> None:
        """Take in what stands at a place of the file; one that was there before: the file was written anew."""
        if offset < self._at:
            self.start_anew(len(self._parts))
        elif offset > self._at:  # somebody asked for its end only
            self._parts = [self._screen(self._limit) for _ in self._parts]
            self._at, self._is_shortened = offset, True
            self._settle()
        self._pour(data)

    def divide(self, at: float | None, *, is_new_run: bool = False) -> None:
        """End the last part at a place of the file; None: that is not known, and what comes stays before it.

        A new run of the job may have begun its file anew: then a place before the last one is none of that file.
        """
        place, last = math.inf if at is None else at, self._last_end()
        if is_new_run and place < last < math.inf:
            self.start_anew(len(self._parts))
            last = 0.0
        place = max(place, last)
        again = b""
        if place < self._at:
            if self._unsettled is None:
                place = self._at  # too late: what came is not taken apart again
            else:
                place, again, self._at = max(place, self._since), bytes(self._unsettled), self._since
                self._parts[-1] = self._screen(self._limit)
        self._ends.append(place)
        self._parts.append(self._screen(self._limit))
        self._settle()
        self._pour(again)

    def drop(self, parts: int) -> None:
        """Take away the first parts, also what comes of them later."""
        if not parts:
            return
        if math.isinf(self._ends[parts - 1]):
            self._parts[parts] = self._parts[self._filling()]  # where that ends, is not known: all comes into it
        self._floor = max(self._floor, *(end for end in self._ends[:parts] if math.isfinite(end)), 0.0)
        del self._parts[:parts], self._ends[:parts]

    def has_any(self, parts: int) -> bool:
        """Tell whether there is anything after the first parts."""
        return any(self._parts[parts:])

    def shown(self, limit: int) -> dict[int, Part]:
        """Return what is to be seen of each part that has anything; the oldest ones go where it is too much."""
        found: dict[int, Part] = {}
        is_cut, step = self._is_shortened, max(1, limit // _STEPS)
        for number in reversed(range(len(self._parts))):
            text = self._parts[number].text()
            if not text:
                continue
            if found and len(text) > limit:
                limit -= limit % step
            if limit <= 0:
                is_cut = True
                break
            found[number] = end_of(text, limit), self._parts[number].dropped or len(text) > limit
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
                    self._keep(piece)
            self._at, rest = self._at + len(piece), rest[len(piece) :]
            if self._at >= end:
                self._trim()

    def _filling(self) -> int:
        """Return the part that the next byte belongs to."""
        return next((number for number, end in enumerate(self._ends) if end > self._at), len(self._ends))

    def _last_end(self) -> float:
        return self._ends[-1] if self._ends else self._floor

    def _keep(self, piece: bytes) -> None:
        """Keep the bytes of the last part, as long as that can be done."""
        if self._unsettled is not None:
            if not self._unsettled:
                self._since = self._at
            self._unsettled += piece
            if len(self._unsettled) > max(_UNSETTLED, self._limit):
                self._unsettled = None

    def _settle(self) -> None:
        self._unsettled, self._since = bytearray(), self._at

    def _trim(self) -> None:
        """Forget the parts that are before all that is kept."""
        left = self._limit
        for number in reversed(range(len(self._parts))):
            if left <= 0 and self._parts[number]:
                self._parts[number], self._is_shortened = self._screen(self._limit), True
            left -= len(self._parts[number].text())
