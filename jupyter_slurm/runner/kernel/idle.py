"""Whether a kernel is at work, and since when it is not, by its messages. Python 3.8+, standard library only."""

from __future__ import annotations

import time
from typing import Any, Callable


class Activity:
    """What a kernel does.

    Parameters
    ----------
    clock : callable, optional
        Seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._last = clock, clock()
        self._at_work: set[str] = set()  # ids of the requests

    def ask(self) -> None:
        """Take note of a request."""
        self._last = self._clock()

    def hear(self, kind: str, parent: str, content: dict[str, Any]) -> None:
        """Take note of what it publishes: a type of message, the id of the request, the content of a status."""
        self._last = self._clock()
        state = content.get("execution_state") if kind == "status" else None
        if state == "busy":
            self._at_work.add(parent)
        elif state == "idle":
            self._at_work.discard(parent)

    @property
    def is_at_work(self) -> bool:
        """Whether there is a request that is not done."""
        return bool(self._at_work)

    @property
    def unused(self) -> float:
        """Seconds for which nothing was asked, done or said."""
        return 0.0 if self._at_work else self._clock() - self._last
