"""Repetition of a call whose agent has ended: if it was not sent, or is idempotent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from jupyter_slurm.agent.client.client_errors import LinkLost
from jupyter_slurm.retry_delays import RetryDelays

__all__ = ["call_repeatedly", "call_repeatedly_async"]

_T = TypeVar("_T")

_MAX_REPETITIONS = 3
_DELAYS_S = (0.05, 1.0)  # first and longest


class _Repetitions:
    def __init__(self, is_idempotent: bool) -> None:
        self._is_idempotent = is_idempotent
        self._delays, self._left = RetryDelays(*_DELAYS_S), _MAX_REPETITIONS

    def delay_after(self, error: LinkLost) -> float:
        """Return the seconds before the next attempt, or raise the error if it is final."""
        if not self._left or (error.sent and not self._is_idempotent):
            raise error
        self._left -= 1
        return self._delays.next_random()


def call_repeatedly(call: Callable[[], _T], is_idempotent: bool) -> _T:
    """Call a function until it succeeds, or its LinkLost is final."""
    repetitions = _Repetitions(is_idempotent)
    while True:
        try:
            return call()
        except LinkLost as error:
            delay = repetitions.delay_after(error)
        time.sleep(delay)


async def call_repeatedly_async(call: Callable[[], Awaitable[_T]], is_idempotent: bool) -> _T:
    """Call a coroutine function like :func:`call_repeatedly`."""
    repetitions = _Repetitions(is_idempotent)
    while True:
        try:
            return await call()
        except LinkLost as error:
            delay = repetitions.delay_after(error)
        await asyncio.sleep(delay)
