"""How far a long transfer has come, in one line that is written over."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Final

__all__ = ["told"]

_LARGE: Final = 10_000_000  # bytes from which it is told
_MB: Final = 1_000_000
_EVERY: Final = 0.5  # seconds; what is over sooner is not told


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
    if total <= _LARGE:
        yield from pieces
        return
    done, last, has_told = 0, time.monotonic(), False
    try:
        for piece in pieces:
            yield piece
            done += len(piece)
            if time.monotonic() - last >= _EVERY:
                _say(f"\r{what}: {done / _MB:.0f} of {total / _MB:.0f} MB")
                last, has_told = time.monotonic(), True
    finally:
        if has_told:
            _say(f"\r{what}: {done / _MB:.0f} of {total / _MB:.0f} MB\n")


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
