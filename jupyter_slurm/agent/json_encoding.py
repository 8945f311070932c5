"""JSON of requests and answers, common to the agent and its clients."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["MAX_BODY_BYTES", "TOO_LARGE", "encode", "encode_in_slices"]

MAX_BODY_BYTES = 16 * 1024 * 1024
"""Bytes of the largest request body: a cell, its options and an environment."""

TOO_LARGE = f"The request body is larger than {MAX_BODY_BYTES} bytes."
"""The message about a larger one."""

_ITEMS_AT_ONCE = 100
_BYTES_AT_ONCE = 64 << 10
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def encode(value: Any) -> bytes:
    """Return JSON in ASCII: file names that are not UTF-8 (PEP 383) become escapes, NaN becomes null."""
    try:
        return _ENCODER.encode(value).encode("ascii")
    except ValueError:  # one job's invalid values must not hide all other jobs from a browser
        return _ENCODER.encode(_told(value)).encode("ascii")


async def encode_in_slices(value: Any) -> bytes:
    """Return the same JSON; the event loop has its turn while much is encoded.

    A thread would not help: the encoder does not let other threads run until it is done.
    """
    if not _is_large(value):
        return encode(value)
    pieces, size = [], 0
    for piece in _pieces(value):
        pieces.append(piece)
        size += len(piece)
        if size > _BYTES_AT_ONCE:
            size = 0
            await asyncio.sleep(0)
    return b"".join(pieces)


def _pieces(value: Any) -> Iterator[bytes]:
    """Yield JSON in pieces of some hundred items at most."""
    if not _is_large(value):
        yield encode(value)
    elif isinstance(value, Mapping):
        mark = b"{"
        for name, each in list(value.items()):  # meanwhile it may change
            yield mark + encode({name: 0})[1:-2]
            yield from _pieces(each)
            mark = b","
        yield b"}"
    else:
        mark, items = b"[", list(value)
        for at in range(0, len(items), _ITEMS_AT_ONCE):
            some = items[at : at + _ITEMS_AT_ONCE]
            yield mark
            if _is_large(some):
                yield from _joined(some)
            else:
                yield encode(some)[1:-1]
            mark = b","
        yield b"]"


def _joined(items: list[Any]) -> Iterator[bytes]:
    """Yield the items of a list, with commas between them."""
    for place, each in enumerate(items):
        yield b"," if place else b""
        yield from _pieces(each)


def _is_large(value: Any) -> bool:
    """Return whether a list or an object, or one within, has many items."""
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return False
    return len(value) > _ITEMS_AT_ONCE or any(map(_is_large, value))


def _told(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {name: _told(each) for name, each in value.items()}
    return [_told(each) for each in value] if isinstance(value, (list, tuple)) else value
