"""How far a long transfer has come, in one line that is written over."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Final

__all__ = ["ProgressLine", "told"]

_LARGE: Final = 10_000_000  # bytes from which it is told
_MB: Final = 1_000_000
_EVERY: Final = 0.5  # seconds; what is over sooner is not told


class ProgressLine:
    """The line of one transfer, on standard error.

    Parameters
    ----------
    what : str
        What is transferred.
    """

    def __init__(self, what: str) -> None:
        self._what, self._last = what, time.monotonic()
        self._done = self._total = 0
        self._has_told = False

    def at(self, done: int, total: int) -> None:
        """Say how many bytes of how many are over, unless that was said just now, or all of it is little."""
        self._done, self._total = done, total
        if total > _LARGE and time.monotonic() - self._last >= _EVERY:
            self._say("")
            self._last, self._has_told = time.monotonic(), True

    def end(self, *, is_whole: bool = False) -> None:
        """Leave the line as it is; ``is_whole``: all has arrived, also what nobody has told of."""
        if self._has_told:
            self._done = self._total if is_whole else self._done
            self._say("\n")

    def _say(self, end: str) -> None:
        sys.stderr.write(f"\r{self._what}: {self._done / _MB:.0f} of {self._total / _MB:.0f} MB{end}")
        sys.stderr.flush()


def told(pieces: Iterable[bytes], what: str, total: int) -> Iterator[bytes]:
    """Pass on the pieces of a transfer and, where it is a long one, say on standard error how far it has come.

    Parameters
    ----------
    pieces : iterable of bytes
        The transfer.
    what : str
        What is transferred.
    total : int
        Its size in bytes.
    """
    done, line = 0, ProgressLine(what)
    try:
        for piece in pieces:
            yield piece
            done += len(piece)
            line.at(done, total)
    finally:
        line.end()
