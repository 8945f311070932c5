"""Progress of a long transfer, in one line that is overwritten."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Final

__all__ = ["ProgressLine", "report_progress"]

_MIN_SHOWN_BYTES: Final = 10_000_000  # bytes from which progress is shown
_MB: Final = 1_000_000
_UPDATE_INTERVAL_S: Final = 0.5  # seconds; a shorter transfer shows no progress


class ProgressLine:
    """Progress line of one transfer, on standard error.

    Parameters
    ----------
    subject : str
        Name of the transfer.
    """

    def __init__(self, subject: str) -> None:
        self._subject, self._last = subject, time.monotonic()
        self._transferred = self._total = 0
        self._is_reported = False

    def at(self, done: int, total: int) -> None:
        """Show the transferred and total bytes, unless shown just now or the total is small."""
        self._transferred, self._total = done, total
        if total > _MIN_SHOWN_BYTES and time.monotonic() - self._last >= _UPDATE_INTERVAL_S:
            self._write("")
            self._last, self._is_reported = time.monotonic(), True

    def end(self, *, is_whole: bool = False) -> None:
        """End the line; ``is_whole``: the transfer is complete, including bytes without a progress report."""
        if self._is_reported:
            self._transferred = self._total if is_whole else self._transferred
            self._write("\n")

    def _write(self, end: str) -> None:
        sys.stderr.write(f"\r{self._subject}: {self._transferred / _MB:.0f} of {self._total / _MB:.0f} MB{end}")
        sys.stderr.flush()


def report_progress(pieces: Iterable[bytes], subject: str, total: int) -> Iterator[bytes]:
    """Yield the pieces of a transfer and, if it is long, show its progress on standard error.

    Parameters
    ----------
    pieces : iterable of bytes
        Pieces of the transfer.
    subject : str
        Name of the transfer.
    total : int
        Size of the transfer in bytes.
    """
    done, line = 0, ProgressLine(subject)
    try:
        for piece in pieces:
            yield piece
            done += len(piece)
            line.at(done, total)
    finally:
        line.end()
