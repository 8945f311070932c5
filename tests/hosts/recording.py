"""Recording of a part of a browser's page as an animation."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

if TYPE_CHECKING:
    from playwright.sync_api import Locator

__all__ = ["Recording"]

_FRAME_S = 0.25
_MAX_FRAME_S = 1.2  # a wait that shows nothing new is cut
_COLORS = 64


class Recording:
    """Pictures of an element of a page, each with the time until the next one.

    Parameters
    ----------
    element : Locator
        The element that is recorded.
    """

    def __init__(self, element: Locator) -> None:
        self._element = element
        self._frames: list[tuple[Image.Image, float]] = []

    @property
    def seconds(self) -> float:
        """Return the length of the animation."""
        return sum(seconds for _, seconds in self._frames)

    def take(self, last_for: float = _FRAME_S) -> None:
        """Take a picture; one that shows nothing new makes the previous one last longer."""
        picture = Image.open(io.BytesIO(self._element.screenshot(animations="disabled", caret="hide"))).convert("RGB")
        if self._frames and self._frames[-1][0].tobytes() == picture.tobytes():
            previous, seconds = self._frames[-1]
            self._frames[-1] = previous, max(last_for, min(seconds + last_for, _MAX_FRAME_S))
        else:
            self._frames.append((picture, last_for))

    def take_until(self, condition: Callable[[], bool], seconds: float) -> None:
        """Take pictures until a condition holds, for some seconds at most."""
        deadline = time.monotonic() + seconds
        while not condition() and time.monotonic() < deadline:
            begun = time.monotonic()
            self.take()
            time.sleep(max(0.0, _FRAME_S - (time.monotonic() - begun)))

    def save(self, file: Path) -> None:
        """Write the animation as a GIF, with the colors of its last picture."""
        palette = self._frames[-1][0].quantize(_COLORS, dither=Image.Dither.NONE)
        frames = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture, _ in self._frames]
        times = [round(seconds * 1000) for _, seconds in self._frames]
        frames[0].save(file, save_all=True, append_images=frames[1:], duration=times, loop=0, optimize=True, disposal=1)
