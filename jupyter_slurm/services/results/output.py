"""Output of a job, as far as written."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from jupyter_slurm.errors import JobOutputMissing, TransportError
from jupyter_slurm.services.event_bus import Event
from jupyter_slurm.services.jobdir.output_paths import DISPLAY, STREAMS
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.serialize import job_dict
from jupyter_slurm.services.results.output_growth import OutputGrowth
from jupyter_slurm.services.slurm.client import printable
from jupyter_slurm.transport.base import Transport
from jupyter_slurm.transport.ssh.protocols import LinkLost

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["DISPLAY", "STREAMS", "LinkState", "Listener", "OutputPart", "follow", "read_output", "why_lost"]

_CHUNK_BYTES = 262_144
_RETRY_INTERVAL_S = 5.0  # seconds after which a failed read is repeated


class LinkState(TypedDict, total=False):
    """Connection of a cluster, of the fields that the API has of it."""

    connection: api.Connection | None


class OutputPart(TypedDict):
    """Part of a stream, base64-encoded, with its position and the size of the whole."""

    stream: str
    offset: int
    size: int
    data: str


async def read_output(
    transport: Transport, entry: TrackedJob, stream: str, offset: int, limit: int | None, *, finished: bool
) -> tuple[bytes, int]:
    """Return a part of a stream and its total size in bytes; a negative offset counts from the end.

    Raises
    ------
    JobOutputMissing
        The job is over and its file does not exist.
    UntrustedFile
        Values, which are more than text, can have been written by another user.
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
    read = transport.read if stream in STREAMS else transport.read_owned
    if finished and stream in STREAMS and stream not in entry.runner.sizes:
        # An NFS client may keep an old size for a while, but it asks for the size when it opens a file.
        while more := await read(path, size, _CHUNK_BYTES):
            size += len(more)
    start = max(0, size + offset) if offset < 0 else offset
    return (await read(path, start, limit) if start < size else b""), size


def _never_started(entry: TrackedJob) -> bool:
    """Return whether a job was cancelled before it had a node: missing output is then normal."""
    nodes = entry.reported_nodes or (entry.latest.nodes if entry.latest else "")
    return entry.state.name == "CANCELLED" and not nodes


def _missing(entry: TrackedJob, stream: str, path: str | None) -> JobOutputMissing:
    """Return the message about a missing file."""
    if stream not in STREAMS:
        is_asked = bool(entry.record and entry.record.values and entry.record.values.outputs)
        hint = (
            "Look for the cause in job.stderr."
            if is_asked
            else "Add out=NAME to the line of the cell, and run it again."
        )
        return JobOutputMissing("The job left no values.", hint=hint)
    if path:
        return JobOutputMissing(
            f"Log not found (looked for {printable(path)}).",
            hint="Check that the directory of --output exists on the node, and that the file was not moved.",
        )
    if entry.is_array and (entry.id is None or entry.id.task is None):
        hint = "Read the log of one task, for example `jupyter_slurm.job('12345_0').stdout`."
        return JobOutputMissing("Each task of the array has a log of its own.", hint=hint)
    if entry.latest is not None and entry.latest.stdout == "":
        return JobOutputMissing(
            "Slurm writes no log of this job, because it was not submitted with sbatch.",
            hint="Its output went to the terminal of salloc or srun.",
        )
    return JobOutputMissing(
        "Log not found: neither its file nor the working directory of the job is known.",
        hint="Look for slurm-ID.out in the folder from which the job was submitted.",
    )


def why_lost(cluster: str, reached: Callable[[], LinkState]) -> str:
    """Return why a cluster does not answer now; empty if the connection works."""
    connection = reached().get("connection")
    if not connection or connection.get("state") != "lost":
        return ""
    return f"The connection to {cluster} is lost: {connection['message']}"


@dataclass(frozen=True)
class Listener:
    """Connections of a followed output to its job.

    Attributes
    ----------
    changed : asyncio.Event
        Set when the state of the job changes.
    printed : callable
        Called after new output, and when a file has appeared.
    is_growing : callable
        Returns whether streams of a finished job, with the sizes seen, are still incomplete; a coroutine function.
    """

    changed: asyncio.Event
    printed: Callable[[], None]
    is_growing: Callable[[TrackedJob, Mapping[str, int | None]], Awaitable[bool]]


async def follow(
    transport: Transport,
    tails: OutputGrowth,
    read_entry: Callable[[], TrackedJob],
    offsets: dict[str, int],
    heard: Listener,
    lost: Callable[[], str],
) -> AsyncIterator[Event]:
    """Yield the output and the states of a job, until it is over and everything has been sent.

    ``offsets`` gives for each stream the bytes that the listener already has; a missing stream is not sent. A negative
    offset asks for the end only: the first event has the start position. ``lost`` returns why the connection is down.

    Raises
    ------
    LinkLost
        The job is over, and the size of its output is unknown: continue later from the last position.
    """
    told: api.Job | None = None
    trouble, present = "", set[str]()
    with tails.watching(heard.changed) as watch:
        while True:
            heard.changed.clear()  # first: later changes set the event again
            entry = read_entry()
            if (said := lost()) != trouble:
                trouble = said
                yield "trouble", {"detail": trouble}
            finished = entry.is_finished  # before the output is read, so that the last output is read too
            # an earlier end is also sent; listeners also receive the copied results
            is_over = finished and not entry.is_copy_back_due
            paths = _paths(entry, offsets)
            tails.watch(watch, paths.values())
            sizes = await _last_sizes(tails, paths.values()) if finished else watch.sizes
            quiet, present = (found := {one for one in paths.values() if sizes.get(one) is not None}) <= present, found
            for stream, path in paths.items():
                size = sizes.get(path) if finished else await _size(tails, path, sizes.get(path), offsets[stream])
                to_end = finished and stream not in (DISPLAY, *entry.runner.sizes)
                async for part in _news(transport, path, size, stream, offsets, is_last=finished, to_end=to_end):
                    quiet = False
                    yield "output", part
            if not quiet:
                heard.printed()
            if (now := job_dict(entry)) != told:
                told = now
                yield "job", now
            if is_over and not await heard.is_growing(entry, {name: sizes.get(path) for name, path in paths.items()}):
                yield "end", {}
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_INTERVAL_S):
                    await heard.changed.wait()


def _paths(entry: TrackedJob, streams: Iterable[str]) -> dict[str, str]:
    """Return the known file of each stream; a file of two streams belongs to the first."""
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
    """Return the size of a file that seems to have shrunk: the watched size may be older than the last read."""
    if size is None or size >= had:
        return size
    try:
        return (await tails.sizes([path])).get(path)
    except TransportError:
        return None


async def _news(
    transport: Transport,
    path: str,
    size: int | None,
    stream: str,
    offsets: dict[str, int],
    *,
    is_last: bool,
    to_end: bool,
) -> AsyncIterator[OutputPart]:
    """Yield the data beyond ``offsets[stream]`` and update the offset; a file that shrank is read from its start.

    With ``to_end``, read on to the end of the file: an NFS client may keep an old size, but asks when it opens a file.
    """
    if size is None:
        return
    if offsets[stream] < 0:
        offsets[stream] = max(0, size + offsets[stream])
    elif size < offsets[stream]:
        offsets[stream] = 0
    while offsets[stream] < size or to_end:
        try:
            # Display data is limited to its size when the text was read, because display data has a position in the
            # text.
            most = min(_CHUNK_BYTES, size - offsets[stream]) if stream == DISPLAY else _CHUNK_BYTES
            read = transport.read_owned if stream == DISPLAY else transport.read
            data = await read(path, offsets[stream], most)
        except (TransportError, FileNotFoundError) as error:
            if is_last and isinstance(error, LinkLost):
                raise
            return  # not readable, or missing: the job's state is still sent
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
