"""What a job has left in its job directory as JSON: it runs what it likes, and so that may be anything."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from jupyter_slurm.transport.base import Transport

__all__ = ["parse_left", "read_left"]

_MOST = 16 << 20  # bytes; a sparse file of a terabyte takes no room
_DIGITS = 18


async def read_left(transport: Transport, path: str, most: int = _MOST) -> Any:
    """Read it.

    Raises
    ------
    FileNotFoundError, TransportError
        It is not there, or cannot be read.
    ValueError
        It is not JSON, or not such as can be told: not-a-number, or a number without end, would be none to a browser.
    """
    return parse_left(await transport.read(path, 0, most))


def parse_left(raw: bytes) -> Any:
    """Parse it; see :func:`read_left`."""
    try:
        return json.loads(raw, parse_constant=_refuse, parse_float=_finite, parse_int=_whole)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError(f"{text[:20]} is too large for a number")
    return number


def _whole(text: str) -> int:
    if len(text.lstrip("-")) > _DIGITS:
        raise ValueError(f"{text[:20]} is too large for a number")
    return int(text)
