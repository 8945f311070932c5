"""Rate limit of requests: a token bucket, so that a runaway loop of the agent does not burden the controller."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from jupyter_slurm.errors import Throttled

__all__ = ["TokenBucket"]


class TokenBucket:
    """Allow ``burst`` requests at once, then ``rate`` a second; earlier callers wait in order.

    Parameters
    ----------
    rate : float
        Tokens a second.
    burst : float
        Tokens that can accumulate.
    clock : callable, optional
        Monotonic seconds.
    """

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._level, self._at = burst, clock()

    def reserve(self, cost: float = 1.0) -> float:
        """Take ``cost`` tokens and return the seconds to wait until they are there."""
        now = self._clock()
        self._level = min(self._burst, self._level + (now - self._at) * self._rate)
        self._at = now
        self._level -= cost
        return max(0.0, -self._level / self._rate)

    def is_ready(self, cost: float = 1.0) -> bool:
        """Return whether ``cost`` tokens are available without waiting."""
        return self._level + (self._clock() - self._at) * self._rate >= cost

    def return_tokens(self, cost: float = 1.0) -> None:
        """Return unused tokens."""
        self._level = min(self._burst, self._level + cost)

    async def acquire(self, cost: float = 1.0, *, max_wait: float = math.inf) -> None:
        """Wait until ``cost`` tokens are available. A cancelled wait returns its tokens.

        Raises
        ------
        Throttled
            The wait would exceed ``longest`` seconds, because so many callers wait already.
        """
        delay = self.reserve(cost)
        if delay > max_wait:
            self.return_tokens(cost)
            seconds = math.ceil(delay)
            raise Throttled(
                "There were too many queries to Slurm in a short time, so this one was not sent.",
                hint=f"Try again in {seconds} s. Use jupyter_slurm.jobs() to read all your jobs at once.",
                retry_after=seconds,
            )
        try:
            if delay:
                await asyncio.sleep(delay)
        except asyncio.CancelledError:
            self.return_tokens(cost)
            raise
