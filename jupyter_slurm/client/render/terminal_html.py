"""The text of a terminal's screen as HTML: escaped, with inline styles for its colours."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import islice

from jupyter_slurm.client.render.terminal import printable, styled_parts

__all__ = ["to_html"]

# The first 16 colours of xterm, the steps of its cube of 216 colours, and its grays.
_NAMED = (
    *("000000", "cd0000", "00cd00", "cdcd00", "0000ee", "cd00cd", "00cdcd", "e5e5e5"),
    *("7f7f7f", "ff0000", "00ff00", "ffff00", "5c5cff", "ff00ff", "00ffff", "ffffff"),
)
_STEPS = (0, 95, 135, 175, 215, 255)
_PALETTE = (
    *map(bytes.fromhex, _NAMED),
    *(bytes((red, green, blue)) for red in _STEPS for green in _STEPS for blue in _STEPS),
    *(bytes([level] * 3) for level in range(8, 248, 10)),
)
_BLACK, _WHITE = _PALETTE[0], _PALETTE[15]

_RULES = {1: "font-weight: bold", 2: "font-weight: lighter", 3: "font-style: italic", 8: "visibility: hidden"}
_LINES = {4: "underline", 5: "blink", 9: "line-through"}


def to_html(text: str) -> str:
    """Render the text of a :class:`jupyter_slurm.client.render.terminal.Screen` as escaped HTML."""
    return "".join(_span(part, style) for style, part in styled_parts(text) if part)


def _span(text: str, style: str) -> str:
    css, content = _css(style) if style else "", escape(printable(text))
    return f'<span style="{css}">{content}</span>' if css else content


def _css(style: str) -> str:
    """Return the CSS for the numbers of an SGR sequence (ECMA-48 8.3.117)."""
    numbers = [int(part) if part and len(part) < 4 else 0 for part in style.split(";")]
    rules: list[str] = []
    lines: list[str] = []
    color = ground = None
    is_reversed = False
    left = iter(numbers)
    for number in left:
        if number in _RULES:
            rules.append(_RULES[number])
        elif number in _LINES:
            lines.append(_LINES[number])
        elif number == 7:
            is_reversed = True
        elif number == 38:
            color = _read_color(left)
        elif number == 48:
            ground = _read_color(left)
        elif 30 <= number <= 37 or 90 <= number <= 97:
            color = _PALETTE[number - 30 if number < 90 else number - 82]
        elif 40 <= number <= 47 or 100 <= number <= 107:
            ground = _PALETTE[number - 40 if number < 100 else number - 92]
    if lines:
        rules.append(f"text-decoration: {' '.join(lines)}")
    if is_reversed:
        color, ground = ground, color or _BLACK
    return "; ".join(rules + _color_rules(color, ground))


def _read_color(numbers: Iterator[int]) -> bytes | None:
    """Read the rest of 38;5;N (palette) or 38;2;R;G;B; None if it is no colour."""
    kind = next(numbers, 0)
    if kind == 5:
        index = next(numbers, len(_PALETTE))
        return _PALETTE[index] if index < len(_PALETTE) else None
    parts = list(islice(numbers, 3 if kind == 2 else None))  # what follows an unknown kind is unknown, too
    return bytes(parts) if kind == 2 and len(parts) == 3 and max(parts) < 256 else None


def _color_rules(color: bytes | None, ground: bytes | None) -> list[str]:
    """Return colours that are readable in a light and in a dark theme: the theme is unknown."""
    if ground is not None:
        red, green, blue = ground
        color = color or (_BLACK if 299 * red + 587 * green + 114 * blue > 100_000 else _WHITE)
        return [f"background-color: #{ground.hex()}", f"color: #{color.hex()}"]
    # The surrounding text contrasts with the theme: a share of its colour in every colour keeps the contrast.
    return [] if color is None else [f"color: color-mix(in srgb, #{color.hex()} 50%, currentColor)"]
