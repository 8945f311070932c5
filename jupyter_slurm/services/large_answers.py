"""Large answers of a cluster, and large files of a job: parsed in a thread, so that the event loop runs meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Final, TypeVar

from jupyter_slurm.errors import ControllerError

__all__ = ["MAX_BYTES_AT_ONCE", "call_off_loop", "in_slices", "parse_answer"]

_T = TypeVar("_T")

MAX_BYTES_AT_ONCE: Final = 128 << 10
"""Bytes that a parser handles within milliseconds."""

_ITEMS_AT_ONCE: Final = 200
_MAX_ANSWER_BYTES: Final = 128 << 20  # bytes: the queue of a large cluster has 50 MB


async def call_off_loop(parse: Callable[[bytes], _T], raw: bytes) -> _T:
    """Return ``parse(raw)``, called in a thread if there is much to parse."""
    return parse(raw) if len(raw) <= MAX_BYTES_AT_ONCE else await asyncio.to_thread(parse, raw)


async def parse_answer(argv: Sequence[str], answer: bytes, parse: Callable[[bytes], _T]) -> _T:
    """Return the parsed answer of a command of Slurm.

    Raises
    ------
    ControllerError
        It has more bytes than the queue of any cluster; parsed, it would take many times its size of memory.
    ParseError
        It has another form.
    """
    if len(answer) > _MAX_ANSWER_BYTES:
        raise ControllerError(
            f"The answer of {argv[0]} has {len(answer) >> 20} MiB; at most {_MAX_ANSWER_BYTES >> 20} MiB are read.",
            hint=f"Run {argv[0]} on the login node. If it prints text of start-up files or of a wrapper, ask its "
            "administrators.",
            argv=list(argv),
        )
    return await call_off_loop(parse, answer)


async def in_slices(items: Iterable[_T]) -> AsyncIterator[_T]:
    """Yield items; the event loop has its turn after some hundreds."""
    for count, item in enumerate(items, 1):
        yield item
        if count % _ITEMS_AT_ONCE == 0:
            await asyncio.sleep(0)
