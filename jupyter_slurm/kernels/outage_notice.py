"""Notice in the running cell about an outage of the link to its kernel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

__all__ = ["OutageNotice"]

_CHECK_INTERVAL_S = 1.0  # seconds between two checks
_SILENT_CHECKS = 9  # checks: an idle keeper sends a sign of life every 5 s
_DOWN_TEXT = "The link to this kernel is down. The kernel goes on: what it prints is shown when the link is back."
_BACK_TEXT = "The link is back."


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
        self, read_counters: Callable[[], int], print_text: Callable[[str], bool], trouble: Callable[[], Awaitable[str]]
    ) -> None:
        self._counters, self._print, self._trouble = read_counters, print_text, trouble
        self.is_down = False

    async def watch(self) -> None:
        """Check forever. Checks are counted, not seconds: a sleeping machine makes none."""
        heard, looks, said = self._counters(), 0, set[str]()
        while True:
            await asyncio.sleep(_CHECK_INTERVAL_S)
            if (now := self._counters()) != heard:
                heard, looks, self.is_down = now, 0, False
                if said:
                    self._print(_BACK_TEXT)
                    said.clear()
                continue
            looks += 1
            self.is_down = looks >= _SILENT_CHECKS
            if not self.is_down:
                continue
            if _DOWN_TEXT not in said and self._print(_DOWN_TEXT):
                said.add(_DOWN_TEXT)
            if _DOWN_TEXT in said and (text := await self._trouble()) and text not in said and self._print(text):
                said.add(text)
