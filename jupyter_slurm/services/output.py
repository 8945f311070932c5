"""A job's output, as far as it has been written."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from typing import Any

from jupyter_slurm.errors import JobOutputMissing, TransportError
from jupyter_slurm.services.entry import Entry
from jupyter_slurm.services.paths import STREAMS
from jupyter_slurm.transport.base import Transport

__all__ = ["STREAMS", "follow", "read_output"]

_CHUNK = 262_144
_QUICK, _SLOW = 0.2, 1.0


async def read_output(
    transport: Transport, path: str | None, offset: int, limit: int | None, *, finished: bool
) -> tuple[bytes, int]:
    """Return a part of a stream and its whole size in bytes; a negative offset counts from the end.

    Raises
    ------
    JobOutputMissing
        The job is over and its file is not there.
    """
    try:
        if path is None:
            raise FileNotFoundError
        size = (await transport.stat(path)).size
    except FileNotFoundError as error:
        if not finished:
            return b"", 0
        raise JobOutputMissing(
            f"there is no output at {path}" if path else "it is not known where this job wrote its output",
            hint="Did the folder of --output exist on the node? Was the file moved?",
        ) from error
    start = max(0, size + offset) if offset < 0 else offset
    return (await transport.read(path, start, limit) if start < size else b""), size


async def follow(
    transport: Transport,
    look: Callable[[], Entry],
    offsets: dict[str, int],
    changed: asyncio.Event,
    printed: Callable[[], None],
) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """Yield what a job prints and becomes, until it is over and everything has been said.

    ``offsets`` says how much of each stream the listener has already. A negative one asks for the end only: the first
    event says where that begins. ``printed`` is called when there was something.
    """
    told: dict[str, Any] | None = None
    pause = _QUICK
    while True:
        entry = look()
        finished = entry.is_finished  # before the output is read: what it printed last is read too
        quiet = True
        paths = entry.paths()
        for stream in STREAMS:
            if stream == "stderr" and paths["stderr"] == paths["stdout"]:
                continue
            async for part in _news(transport, paths[stream], stream, offsets):
                quiet = False
                yield "output", part
        if not quiet:
            printed()
        now = entry.as_dict()
        if now != told:
            told, quiet = now, False
            yield "job", now
        if finished:
            yield "end", {}
            return
        pause = min(_SLOW, pause * 1.2) if quiet else _QUICK
        changed.clear()
        try:
            async with asyncio.timeout(pause):
                await changed.wait()
        except TimeoutError:
            continue


async def _news(
    transport: Transport, path: str | None, stream: str, offsets: dict[str, int]
) -> AsyncIterator[dict[str, Any]]:
    """Yield what was written beyond ``offsets[stream]`` and move that on; a file that shrank is read anew."""
    while True:
        try:
            data, size = await read_output(transport, path, offsets[stream], _CHUNK, finished=False)
        except TransportError:
            return  # not ours to read, or the disk is away: the job's state still gets told
        if offsets[stream] < 0:
            offsets[stream] = max(0, size + offsets[stream])
        elif size < offsets[stream]:
            offsets[stream] = 0
            continue
        if not data:
            return
        yield {
            "stream": stream,
            "offset": offsets[stream],
            "size": size,
            "data": base64.b64encode(data).decode("ascii"),
        }
        offsets[stream] += len(data)
