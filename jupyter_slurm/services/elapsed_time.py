"""Seconds that pass also while this computer sleeps: for secrets, proofs and logins that may last only for a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

__all__ = ["AgeTimer", "elapsed"]

_CHECK_INTERVAL_S = 30.0  # seconds after the end of a sleep, at most, until a timer notices it
# Linux stops CLOCK_MONOTONIC in a sleep, macOS stops time.monotonic(), but not CLOCK_MONOTONIC (clock_gettime(3)).
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def elapsed() -> float:
    """Return the seconds since an arbitrary time."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


class AgeTimer:
    """Call a function once, after some seconds, those of a sleep included.

    Parameters
    ----------
    seconds : float
    callback : callable
        Called in the running event loop.
    """

    def __init__(self, seconds: float, callback: Callable[[], object]) -> None:
        self._until, self._callback = elapsed() + seconds, callback
        self._loop = asyncio.get_running_loop()
        self._wait()

    def _wait(self) -> None:
        left = max(0.0, self._until - elapsed())
        self._handle = self._loop.call_later(min(left, _CHECK_INTERVAL_S), self._check)

    def _check(self) -> None:
        if elapsed() < self._until:
            self._wait()
        else:
            self._callback()

    def cancel(self) -> None:
        """Do not call the function any more."""
        self._handle.cancel()
