"""Progress of a long transfer, in one line that is overwritten."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Final

__all__ = ["ProgressLine", "told"]

_LARGE: Final = 10_000_000  # bytes from which progress is shown
_MB: Final = 1_000_000
_EVERY: Final = 0.5  # seconds; a shorter transfer shows no progress


class ProgressLine:
    """Progress line of one transfer, on standard error.

    Parameters
    ----------
    what : str
        Name of the transfer.
    """

    def __init__(self, what: str) -> None:
        self._what, self._last = what, time.monotonic()
        self._done = self._total = 0
        self._has_told = False

    def at(self, done: int, total: int) -> None:
        """Show the transferred and total bytes, unless shown just now or the total is small."""
        self._done, self._total = done, total
        if total > _LARGE and time.monotonic() - self._last >= _EVERY:
            self._say("")
            self._last, self._has_told = time.monotonic(), True

    def end(self, *, is_whole: bool = False) -> None:
        """End the line; ``is_whole``: the transfer is complete, including bytes without a progress report."""
        if self._has_told:
            self._done = self._total if is_whole else self._done
            self._say("\n")

    def _say(self, end: str) -> None:
        sys.stderr.write(f"\r{self._what}: {self._done / _MB:.0f} of {self._total / _MB:.0f} MB{end}")
        sys.stderr.flush()


def told(pieces: Iterable[bytes], what: str, total: int) -> Iterator[bytes]:
    """Yield the pieces of a transfer and, if it is long, show its progress on standard error.

    Parameters
    ----------
    pieces : iterable of bytes
        Pieces of the transfer.
    what : str
        Name of the transfer.
    total : int
        Size of the transfer in bytes.
    """
    done, line = 0, ProgressLine(what)
    try:
        for piece in pieces:
            yield piece
            done += len(piece)
            line.at(done, total)
    finally:
        line.end()
