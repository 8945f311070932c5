"""Server-sent events (the HTML standard, "Server-sent events"), for readers of any speed.

A slow reader costs a bounded amount of memory. Unsent events are produced only on demand, or reduced to the latest
state of each object. A client that reads nothing for a minute is disconnected.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

from jupyter_slurm.agent.api.app import Exchange, problem
from jupyter_slurm.agent.json_encoding import encode_in_slices

__all__ = ["HEARTBEAT_S", "SEND_TIMEOUT_S", "Event", "latest_only", "send_events"]

HEARTBEAT_S = 15.0
"""Seconds between two heartbeats on a stream without events."""

SEND_TIMEOUT_S = 60.0
"""Seconds after which a client that reads nothing is disconnected."""

Event = tuple[str, Mapping[str, object]]


async def _frame(event: str, data: object) -> str:
    return f"event: {event}\ndata: {(await encode_in_slices(data)).decode('ascii')}\n\n"


async def send_events(
    exchange: Exchange,
    events: AsyncIterator[Event],
    until: asyncio.Future[None],
    *,
    heartbeat: float = HEARTBEAT_S,
    deadline: float | None = SEND_TIMEOUT_S,
) -> None:
    """Send events until they end, the client goes, or ``until`` is done.

    In the last case the response is broken off: a regular end means a complete stream, a break means that the client
    should request the stream again.

    An error of the source ends the stream with an ``error`` event that contains the problem document.

    Parameters
    ----------
    heartbeat, deadline : float
        Seconds between heartbeats, and seconds after which a client that reads nothing is disconnected (None: never).
    """
    exchange.set_header("Content-Type", "text/event-stream")
    upcoming: asyncio.Future[Event] | None = None
    try:
        await _send(exchange, ":\n\n", deadline)
        while not exchange.closed.done():
            upcoming = upcoming or asyncio.ensure_future(_next(events))
            awaited: set[asyncio.Future[Any]] = {upcoming, exchange.closed, until}
            await asyncio.wait(awaited, timeout=heartbeat, return_when=asyncio.FIRST_COMPLETED)
            if until.done():
                break
            if not upcoming.done():
                await _send(exchange, ":\n\n", deadline)
                continue
            (text, is_last), upcoming = await _frame_of(upcoming), None
            if text:
                await _send(exchange, text, deadline)
            if is_last:
                break
    except (OSError, TimeoutError):  # the client has gone, or reads nothing
        exchange.disconnect()
    finally:
        if upcoming is not None:
            upcoming.cancel()
            with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration, Exception):
                await upcoming
        if isinstance(events, AsyncGenerator):
            await events.aclose()
    if not exchange.closed.done():
        if until.done():
            exchange.disconnect()
        else:
            exchange.end()


async def _frame_of(upcoming: asyncio.Future[Event]) -> tuple[str, bool]:
    """Return the text of an event from the source, and whether it ends the stream."""
    try:
        return await _frame(*upcoming.result()), False
    except StopAsyncIteration:
        return "", True
    except Exception as error:  # noqa: BLE001 - the status is sent: the stream itself must say what went wrong
        return await _frame("error", problem(error)[1]), True


async def _next(events: AsyncIterator[Event]) -> Event:
    return await anext(events)


async def _send(exchange: Exchange, text: str, deadline: float | None) -> None:
    if exchange.closed.done():
        return
    async with asyncio.timeout(deadline):
        await exchange.send(text.encode())


async def latest_only(events: AsyncIterator[Event]) -> AsyncGenerator[Event, None]:
    """Pass events on; while the reader is busy, keep only the newest event of each job or cluster."""
    waiting: dict[tuple[Any, ...], Event] = {}
    ready = asyncio.Event()
    ended = False

    async def collect() -> None:
        nonlocal ended
        try:
            async for event, data in events:
                name = (event, data.get("cluster"), data.get("key") or data.get("id"))
                waiting.pop(name, None)
                waiting[name] = (event, data)
                ready.set()
        finally:
            ended = True
            ready.set()

    collector = asyncio.ensure_future(collect())
    try:
        while waiting or not ended:
            await ready.wait()
            while waiting:
                yield waiting.pop(next(iter(waiting)))
            if not ended:
                ready.clear()
        collector.result()
    finally:
        collector.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await collector
