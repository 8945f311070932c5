"""Frequency of attempts to reconnect to a host that refuses connections, counted by a listener in its place."""

from __future__ import annotations

import asyncio
import itertools
import random
import time

import pytest

from jupyter_slurm.errors import TransportError
from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig
from jupyter_slurm.transport.ssh.protocols import LinkLost
from jupyter_slurm.transport.ssh.via_paramiko.connection import HostVerifier
from jupyter_slurm.transport.ssh.via_paramiko.paramiko_link import ParamikoLink

_PAUSE = 0.01
_GROWING = 6  # steps until the pauses grow no more


def _nobody(*_: object) -> None:
    raise TransportError("nobody logs in here")


async def test_it_is_tried_in_growing_steps_that_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the longest pauses; random ones are shorter, so that laptops do not reconnect at the same time."""
    monkeypatch.setattr(random, "uniform", lambda low, high: high)
    tries: list[float] = []

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tries.append(time.monotonic())
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    link = ParamikoLink(
        [HostConfig("gone", "127.0.0.1", port, "me", strict="yes")], HostVerifier(_nobody, _nobody), pause=_PAUSE
    )
    link.generation = 1  # was connected before
    try:
        with pytest.raises(LinkLost, match="no connection to gone yet"):
            await link.wait_ready(0.001)
        async with asyncio.timeout(60):
            while len(tries) < _GROWING + 5:
                await asyncio.sleep(0.05)
    finally:
        link.close()
        server.close()
    gaps = [after - before for before, after in itertools.pairwise(tries)]
    for number, gap in enumerate(gaps):  # a busy machine makes the gaps longer
        assert gap > 0.5 * _PAUSE * 2 ** min(number, _GROWING - 1)
    assert min(gaps[_GROWING + 2 :]) < 2 * gaps[_GROWING], gaps
