"""The background loop: reads of the agent's socket that are cancelled."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import anyio

from jupyter_slurm.client.event_loop import cancel_reader


async def test_a_read_is_cancelled_in_the_turn_in_which_something_arrives(short_path: Path) -> None:
    loop, logged = asyncio.get_running_loop(), list[dict[str, Any]]()
    loop.set_exception_handler(lambda _, context: logged.append(context))
    writers: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    server = await asyncio.start_unix_server(lambda _, writer: writers.put_nowait(writer), short_path / "s")
    stream = await anyio.connect_unix(short_path / "s")
    writer = await writers.get()
    reading = asyncio.create_task(stream.receive())
    for _ in range(10):  # turns, until the read waits for the socket
        await asyncio.sleep(0)

    def write_and_cancel() -> None:
        writer.write(b"event")
        loop.call_soon(cancel_reader, reading)  # the next turn begins with the event of the socket

    loop.call_soon(write_and_cancel)
    await asyncio.wait({reading})
    await stream.aclose()
    writer.close()
    server.close()
    assert not logged
