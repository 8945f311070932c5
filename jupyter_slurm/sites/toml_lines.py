"""Where in a TOML file a key stands: ``tomllib`` tells values only."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["line_of"]

_MOST = 2_000  # lines; each is read as often as there are lines after it


def line_of(text: str, keys: Sequence[str]) -> int | None:
    """Return the number of the line, from 1, in which a key is given its value; None where that is not known.

    Parameters
    ----------
    text : str
        TOML without a mistake in its syntax.
    keys : sequence of str
        The key's own name comes last; what is no key (the place in an array) ends it.
    """
    lines, whole = text.splitlines(keepends=True), 0  # lines that are TOML without those that follow
    if not keys or len(lines) > _MOST:
        return None
    for count in range(1, len(lines) + 1):
        try:
            data = tomllib.loads("".join(lines[:count]))
        except ValueError:
            continue  # a value of several lines
        if _has(data, keys):
            return whole + 1
        whole = count
    return None


def _has(data: Any, keys: Sequence[str]) -> bool:
    for key in keys:
        if not isinstance(data, Mapping):
            return True
        if key not in data:
            return False
        data = data[key]
    return True
