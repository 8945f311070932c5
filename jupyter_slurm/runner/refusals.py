"""Numbers of refused connections: another user may cause any number of them, but a log may only grow a little.

Python 3.8+, standard library only.
"""

from __future__ import annotations

_FACTOR = 10  # between two reported numbers


class RefusalCount:
    """Number of equal refusals. The first is reported, then the tenth, the hundredth, and so on."""

    def __init__(self) -> None:
        self.number, self._next = 0, 1

    def add(self) -> str:
        """Count a refusal; return the text to append to its report, or an empty text if it is not reported."""
        self.number += 1
        if self.number < self._next:
            return ""
        self._next *= _FACTOR
        return f" ({self.number} so far; further ones are counted)"
