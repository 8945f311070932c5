"""What the cell that runs is told while the way to its kernel is silent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

__all__ = ["OutageNotice"]

_LOOK = 1.0  # seconds between two looks
_SILENT = 9  # looks: a keeper that has nothing to say says so after 5 s
_DOWN = "The link to this kernel is down. The kernel goes on: what it prints is shown when the link is back."
_BACK = "The link is back."


class OutageNotice:
    """Tells that the link is down, what it waits for, and that it is back; each of it once.

    Parameters
    ----------
    words : callable
        Returns how often something has come from the keeper.
    tell : callable
        Says a line in the cell that runs, and returns whether there is one.
    trouble : callable
        Returns what the way waits for, as far as somebody can do something about it.

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
        """Look, for ever. It counts looks and not seconds: while this machine sleeps there are none."""
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
