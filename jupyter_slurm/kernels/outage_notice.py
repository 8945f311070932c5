"""Notice in the running cell about an outage of the link to its kernel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

__all__ = ["OutageNotice"]

_LOOK = 1.0  # seconds between two checks
_SILENT = 9  # checks: an idle keeper sends a sign of life every 5 s
_DOWN = "The link to this kernel is down. The kernel goes on: what it prints is shown when the link is back."
_BACK = "The link is back."


class OutageNotice:
    """Reports an outage, its cause, and its end, each once.

    Parameters
    ----------
    words : callable
        Returns the number of receptions from the keeper.
    tell : callable
        Prints a line in the running cell, and returns whether a cell is running.
    trouble : callable
        Returns the cause of the outage, if the user can remove it.

    Attributes
    ----------
    is_down : bool
    """

    def __init__(
        self, words: Callable[[], int], tell: Callable[[str], bool], trouble: Callable[[], Awaitable[str]]
    ) -> None:
        self._words, self._tell, self._trouble = words, tell, trouble
        self.is_down = False

    async def watch(self) -> None:
        """Check forever. Checks are counted, not seconds: a sleeping machine makes none."""
        heard, looks, said = self._words(), 0, set[str]()
        while True:
            await asyncio.sleep(_LOOK)
            if (now := self._words()) != heard:
                heard, looks, self.is_down = now, 0, False
                if said:
                    self._tell(_BACK)
                    said.clear()
                continue
            looks += 1
            self.is_down = looks >= _SILENT
            if not self.is_down:
                continue
            if _DOWN not in said and self._tell(_DOWN):
                said.add(_DOWN)
            if _DOWN in said and (text := await self._trouble()) and text not in said and self._tell(text):
                said.add(text)
