"""Server-sent events (the HTML standard, "Server-sent events"), for readers of any speed.

A slow reader costs a bounded amount of memory: what is not sent yet is either pulled only when there is room, or
collapsed to the latest state of each thing; who takes nothing for a minute is disconnected.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

from jupyter_slurm.agent.api.app import Exchange, problem
from jupyter_slurm.agent.json_encoding import encode

__all__ = ["HEARTBEAT", "Event", "latest_only", "send_events"]

HEARTBEAT = 15.0
"""Seconds between two signs of life on a stream without events."""

_SEND_DEADLINE = 60.0

Event = tuple[str, Mapping[str, object]]


def _frame(event: str, data: object) -> str:
    return f"event: {event}\ndata: {encode(data).decode('ascii')}\n\n"


async def send_events(
    exchange: Exchange,
    events: AsyncIterator[Event],
    until: asyncio.Future[None],
    *,
    heartbeat: float = HEARTBEAT,
    deadline: float = _SEND_DEADLINE,
) -> None:
    """Send events until they end, the client goes, or ``until`` is done.

    In the last case the response is broken off: one that ends properly is complete, this one is to be asked for again.

    An error of the source ends the stream with an ``error`` event that carries the problem document.

    Parameters
    ----------
    heartbeat, deadline : float
        Seconds between signs of life; seconds after which a client that takes nothing is disconnected.
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
            (text, is_last), upcoming = _frame_of(upcoming), None
            if text:
                await _send(exchange, text, deadline)
            if is_last:
                break
    except (OSError, TimeoutError):  # the client is gone, or takes nothing
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


def _frame_of(upcoming: asyncio.Future[Event]) -> tuple[str, bool]:
    """Return the text of what the source gave, and whether that ends the stream."""
    try:
        return _frame(*upcoming.result()), False
    except StopAsyncIteration:
        return "", True
    except Exception as error:  # noqa: BLE001 - the status is sent: the stream itself must say what went wrong
        return _frame("error", problem(error)[1]), True


async def _next(events: AsyncIterator[Event]) -> Event:
    return await anext(events)


async def _send(exchange: Exchange, text: str, deadline: float) -> None:
    if exchange.closed.done():
        return
    await asyncio.wait_for(exchange.send(text.encode()), deadline)


async def latest_only(events: AsyncIterator[Event]) -> AsyncGenerator[Event, None]:
    """Pass events on; while the reader is busy, keep the newest of each job or cluster only."""
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
