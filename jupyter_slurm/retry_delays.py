"""Increasing delays between attempts."""

from __future__ import annotations

__all__ = ["RetryDelays"]


class RetryDelays:
    """Delays between attempts: each is longer than the one before, up to a limit.

    Parameters
    ----------
    first : float
        First delay, in seconds.
    longest : float
        Longest delay, in seconds.
    factor : float
        Ratio of a delay to the one before.
    """

    def __init__(self, first: float, longest: float, factor: float = 2.0) -> None:
        self._first, self._longest, self._factor = first, longest, factor
        self._next = first

    @property
    def upcoming(self) -> float:
        """Return the next delay in seconds, without using it."""
        return self._next

    def next(self, lasted: float = 0.0) -> float:
        """Return the delay before the next attempt, in seconds.

        Parameters
        ----------
        lasted : float
            Seconds for which the attempt before was a success. After a success of the longest delay or more, the
            delays restart.
        """
        if lasted >= self._longest:
            self.reset()
        delay, self._next = self._next, min(self._longest, self._next * self._factor)
        return delay

    def next_random(self) -> float:
        """Return a random part of the next delay, in seconds: those who wait for the same do not try together."""
        from random import uniform  # slow to import

        return uniform(0.0, self.next())  # noqa: S311 - no secret

    def reset(self) -> None:
        """Start with the first delay, after a success."""
        self._next = self._first
