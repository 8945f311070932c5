"""Line numbers of keys in a TOML file: ``tomllib`` returns only values."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["line_number"]

_MAX_LINES = 2_000  # lines; each is parsed as often as there are lines after it


def line_number(text: str, keys: Sequence[str]) -> int | None:
    """Return the number of the line, from 1, that sets a key; None if unknown.

    Parameters
    ----------
    text : str
        TOML with a valid syntax.
    keys : sequence of str
        Path of the key, its own name last; a value that is not a key (an array index) ends the path.
    """
    lines, whole = text.splitlines(keepends=True), 0  # lines that are valid TOML without the following ones
    if not keys or len(lines) > _MAX_LINES:
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
