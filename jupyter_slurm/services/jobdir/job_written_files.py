"""Untrusted files of a job directory: a job can write anything, of any size."""

from __future__ import annotations

import math
from typing import Any, NoReturn

from jupyter_slurm.errors import UsageError
from jupyter_slurm.services.jobdir.untrusted_json import parse_json
from jupyter_slurm.services.large_answers import call_off_loop
from jupyter_slurm.transport.base import Transport

__all__ = ["parse_untrusted", "read_untrusted", "read_whole"]

_MAX_FILE_BYTES = 16 << 20  # bytes; a sparse file of a terabyte takes no disk space
_MAX_OWN_FILE_BYTES = (
    64 << 20
)  # bytes of files written by jupyter_slurm, without values: a script has 4 MiB, up to six times as much as JSON
_MAX_NUMBER_DIGITS = 18


async def read_untrusted(transport: Transport, path: str, limit: int = _MAX_FILE_BYTES) -> Any:
    """Read a JSON file of the job directory.

    Raises
    ------
    FileNotFoundError, TransportError
        The file does not exist, or cannot be read, or another user can have written it.
    ValueError
        The file is not JSON, or has NaN or infinite numbers, which browsers reject.
    """
    return await call_off_loop(parse_untrusted, await transport.read_owned(path, 0, limit))


async def read_whole(transport: Transport, path: str, limit: int = _MAX_OWN_FILE_BYTES) -> bytes:
    """Read a file that jupyter_slurm wrote and the job may have changed.

    Raises
    ------
    FileNotFoundError, TransportError
        The file does not exist, or cannot be read, or another user can have written it.
    UsageError
        The file is longer than ``limit`` bytes, so the job has changed it.
    """
    raw = await transport.read_owned(path, 0, limit + 1)
    if len(raw) > limit:
        raise UsageError(
            f"{path} was not read, because it is larger than {limit / 1000000.0:.0f} MB.",
            hint="Check the file: after the submission, only the job or you can have written to it.",
        )
    return raw


def parse_untrusted(raw: bytes) -> Any:
    """Parse the content; see :func:`read_untrusted`."""
    return parse_json(raw, parse_constant=_refuse, parse_float=_finite, parse_int=_whole)


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
