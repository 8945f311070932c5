"""A job's output, as far as it has been written."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from jupyter_slurm.errors import JobOutputMissing, TransportError
from jupyter_slurm.services.jobdir.output_paths import DISPLAY, STREAMS
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.serialize import job_dict
from jupyter_slurm.services.results.output_growth import OutputGrowth
from jupyter_slurm.transport.base import Transport
from jupyter_slurm.transport.ssh.protocols import LinkLost

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["DISPLAY", "STREAMS", "follow", "read_output", "why_lost"]

_CHUNK_BYTES = 262_144
_RETRY_INTERVAL_S = 5.0  # seconds after which what could not be read is tried again


async def read_output(
    transport: Transport, entry: TrackedJob, stream: str, offset: int, limit: int | None, *, finished: bool
) -> tuple[bytes, int]:
    """Return a part of a stream and its whole size in bytes; a negative offset counts from the end.

    Raises
    ------
    JobOutputMissing
        The job is over and its file is not there.
    """
    path = entry.path(stream)
    try:
        if path is None:
            raise FileNotFoundError
        size = (await transport.stat(path)).size
    except FileNotFoundError as error:
        if not finished or (stream in STREAMS and _never_started(entry)):
            return b"", 0
        raise _missing(entry, stream, path) from error
    start = max(0, size + offset) if offset < 0 else offset
    return (await transport.read(path, start, limit) if start < size else b""), size


def _never_started(entry: TrackedJob) -> bool:
    """Tell whether a job was cancelled before it had a node: there is no output, and nothing is wrong with that."""
    nodes = entry.reported_nodes or (entry.latest.nodes if entry.latest else "")
    return entry.state.name == "CANCELLED" and not nodes


def _missing(entry: TrackedJob, stream: str, path: str | None) -> JobOutputMissing:
    """Return what is to be said of a file that is not there."""
    if stream not in STREAMS:
        is_asked = bool(entry.record and entry.record.values and entry.record.values.outputs)
        hint = "Its log may say why: job.stderr." if is_asked else "out=NAME in its line would have asked for one."
        return JobOutputMissing("this job has left no values", hint=hint)
    return JobOutputMissing(
        f"there is no output at {path}" if path else "it is not known where this job wrote its output",
        hint="Did the folder of --output exist on the node? Was the file moved?",
    )


def why_lost(cluster: str, reached: Callable[[], Mapping[str, Any]]) -> str:
    """Return why nothing comes from a cluster now; empty where the way there is open."""
    connection = reached().get("connection") or {}
    return f"The connection to {cluster} is lost: {connection['message']}" if connection.get("state") == "lost" else ""


async def follow(
    transport: Transport,
    tails: OutputGrowth,
    read_entry: Callable[[], TrackedJob],
    offsets: dict[str, int],
    changed: asyncio.Event,
    printed: Callable[[], None],
    lost: Callable[[], str],
) -> AsyncIterator[tuple[str, Mapping[str, Any]]]:
    """Yield what a job prints and becomes, until it is over and everything has been said.

    ``offsets`` says how much of each stream the listener has already; one that is not in it is not sent. A negative one
    asks for the end only: the first event says where that begins. ``changed`` is set when the job becomes something
    else; ``printed`` is called when there was something; ``lost`` says that there is no way there now.

    Raises
    ------
    LinkLost
        The job is over, and how much it printed cannot be found out now: ask again from where this ended.
    """
    told: api.Job | None = None
    trouble = ""
    with tails.watching(changed) as watch:
        while True:
            changed.clear()  # first: what happens from here on is heard
            entry = read_entry()
            if (said := lost()) != trouble:
                trouble = said
                yield "trouble", {"detail": trouble}
            finished = entry.is_finished  # before the output is looked at: what it printed last is read too
            is_over = finished and not entry.is_copy_back_due  # before that is told, too: what came back is to be heard
            paths = _paths(entry, offsets)
            tails.watch(watch, paths.values())
            sizes = await _last_sizes(tails, paths.values()) if finished else watch.sizes
            quiet = True
            for stream, path in paths.items():
                size = sizes.get(path) if finished else await _size(tails, path, sizes.get(path), offsets[stream])
                async for part in _news(transport, path, size, stream, offsets, is_last=finished):
                    quiet = False
                    yield "output", part
            if not quiet:
                printed()
            if (now := job_dict(entry)) != told:
                told = now
                yield "job", now
            if is_over:
                yield "end", {}
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_INTERVAL_S):
                    await changed.wait()


def _paths(entry: TrackedJob, streams: Iterable[str]) -> dict[str, str]:
    """Return the file of each stream, as far as it is known; one that two share is that of the first."""
    found: dict[str, str] = {}
    for stream in streams:
        path = entry.path(stream)
        if path is not None and path not in found.values():
            found[stream] = path
    return found


async def _last_sizes(tails: OutputGrowth, paths: Iterable[str]) -> Mapping[str, int]:
    try:
        return await tails.sizes(paths)
    except LinkLost:
        raise
    except TransportError:
        return {}


async def _size(tails: OutputGrowth, path: str, size: int | None, had: int) -> int | None:
    """Return how large a file is that seems to have shrunk: what was seen of it may be older than what was read."""
    if size is None or size >= had:
        return size
    try:
        return (await tails.sizes([path])).get(path)
    except TransportError:
        return None


async def _news(
    transport: Transport, path: str, size: int | None, stream: str, offsets: dict[str, int], *, is_last: bool
) -> AsyncIterator[dict[str, Any]]:
    """Yield what was written beyond ``offsets[stream]`` and move that on; a file that shrank is read anew."""
    if size is None:
        return
    if offsets[stream] < 0:
        offsets[stream] = max(0, size + offsets[stream])
    elif size < offsets[stream]:
        offsets[stream] = 0
    while offsets[stream] < size:
        try:
            # Of what is shown no more than was there when the text was looked at, which it stands in.
            most = min(_CHUNK_BYTES, size - offsets[stream]) if stream == DISPLAY else _CHUNK_BYTES
            data = await transport.read(path, offsets[stream], most)
        except (TransportError, FileNotFoundError) as error:
            if is_last and isinstance(error, LinkLost):
                raise
            return  # not ours to read, or away: the job's state still gets told
        if not data:
            return
        size = max(size, offsets[stream] + len(data))
        yield {
            "stream": stream,
            "offset": offsets[stream],
            "size": size,
            "data": base64.b64encode(data).decode("ascii"),
        }
        offsets[stream] += len(data)
