"""Tests of the sockets of a kernel when clients leave and return."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import zmq
import zmq.asyncio
from jupyter_client.connect import write_connection_file

from jupyter_slurm.kernels.channels.messages import Message
from jupyter_slurm.kernels.channels.zmq_channels import ZmqChannels

_IDENTITY = b"session of a client"


@asynccontextmanager
async def channels(folder: Path) -> AsyncIterator[tuple[ZmqChannels, str, list[Message]]]:
    """Yield bound sockets, the address of the shell channel, and the requests that have arrived."""
    _, connection = write_connection_file(str(folder / "kernel.json"), ip=str(folder / "k"), transport="ipc", key=b"k")
    received: list[Message] = []
    bound = ZmqChannels(connection, lambda _, message: received.append(message))
    bound.start()
    try:
        yield bound, f"ipc://{folder}/k-{connection['shell_port']}", received
    finally:
        await bound.close()


def connect(context: Any, address: str) -> Any:
    client = context.socket(zmq.DEALER)
    client.linger = 0
    client.identity = _IDENTITY
    client.connect(address)
    return client


def test_answers_wait_for_a_client_that_connects_later(tmp_path: Path) -> None:
    """A replaced proxy may have the answers of a kernel before the clients have connected to it."""

    async def run() -> None:
        context = zmq.asyncio.Context()
        async with channels(tmp_path) as (bound, address, _):
            wire = bound.wire
            for number in range(3):
                bound.send("shell", wire.create_message("execute_reply", {"number": number}), [_IDENTITY])
            await asyncio.sleep(0.2)
            client = connect(context, address)
            async with asyncio.timeout(30):
                answers = [wire.read(await client.recv_multipart()) for _ in range(3)]
            assert [answer and json.loads(answer.frames[3]) for answer in answers] == [
                {"number": number} for number in range(3)
            ]
            # Afterwards, answers are sent at once.
            bound.send("shell", wire.create_message("execute_reply", {"number": 3}), [_IDENTITY])
            async with asyncio.timeout(30):
                answer = wire.read(await client.recv_multipart())
            assert answer is not None
            assert json.loads(answer.frames[3]) == {"number": 3}
            client.close()
        context.term()

    asyncio.run(run())


def test_the_sockets_close_while_an_answer_waits_for_its_client(tmp_path: Path) -> None:
    async def run() -> None:
        async with channels(tmp_path) as (bound, _, _received):
            bound.send("control", bound.wire.create_message("interrupt_reply", {}), [_IDENTITY])

    asyncio.run(run())
