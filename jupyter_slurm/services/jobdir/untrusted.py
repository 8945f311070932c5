"""What a job has left in its job directory: it runs what it likes, and so that may be anything, and of any size."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from jupyter_slurm.errors import UsageError
from jupyter_slurm.transport.base import Transport

__all__ = ["parse_untrusted", "read_untrusted", "read_whole"]

_MAX_FILE_BYTES = 16 << 20  # bytes; a sparse file of a terabyte takes no room
_MAX_OWN_FILE_BYTES = (
    64 << 20
)  # bytes of what we write there, values aside: a script has 4 MiB, and up to six times that as JSON
_MAX_NUMBER_DIGITS = 18


async def read_untrusted(transport: Transport, path: str, limit: int = _MAX_FILE_BYTES) -> Any:
    """Read it.

    Raises
    ------
    FileNotFoundError, TransportError
        It is not there, or cannot be read.
    ValueError
        It is not JSON, or not such as can be told: not-a-number, or a number without end, would be none to a browser.
    """
    return parse_untrusted(await transport.read(path, 0, limit))


async def read_whole(transport: Transport, path: str, limit: int = _MAX_OWN_FILE_BYTES) -> bytes:
    """Read a file that we have written there, and the job may have changed.

    Raises
    ------
    FileNotFoundError, TransportError
        It is not there, or cannot be read.
    UsageError
        It is longer than ``most`` bytes: it is not ours any more.
    """
    raw = await transport.read(path, 0, limit + 1)
    if len(raw) > limit:
        raise UsageError(
            f"{path} is not read: it has grown beyond {limit / 1e6:.0f} MB since the job was submitted.",
            hint="Only the job itself, or you, can have written to it.",
        )
    return raw


def parse_untrusted(raw: bytes) -> Any:
    """Parse it; see :func:`read_untrusted`."""
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
    if len(text.lstrip("-")) > _MAX_NUMBER_DIGITS:
        raise ValueError(f"{text[:20]} is too large for a number")
    return int(text)
