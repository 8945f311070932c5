"""Tests of the delays between connections: short after a long-lived connection, increasing after broken ones."""

from __future__ import annotations

import asyncio
import socket

import pytest

from jupyter_slurm.kernels.channels.keeper_connection import KeeperConnection, PeerRejected, ReconnectDelays
from jupyter_slurm.runner.link.handshake import KeeperHandshake

SECRET = b"s" * 32


def test_a_connection_that_has_held_is_followed_by_the_next_one_at_once() -> None:
    pauses = ReconnectDelays()
    told = [pauses.after(0.0) for _ in range(10)]
    assert told == sorted(told)
    assert told[-1] == told[-2] == 5.0
    assert pauses.after(60.0) == told[0] == 0.1
    assert pauses.after(1.0) == told[1], "one that breaks at once changes nothing"


@pytest.mark.parametrize("secret", [SECRET, b"x" * 32])
async def test_it_is_known_how_long_a_connection_has_held(secret: bytes) -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    carrier, loop = KeeperConnection(SECRET, lambda parcel: None, 0, lambda number: None), asyncio.get_running_loop()
    carrying = asyncio.create_task(carrier.over(near))
    keeper = KeeperHandshake(secret, lambda who: 0)
    while not keeper.is_done and (said := await loop.sock_recv(far, 512)):
        await loop.sock_sendall(far, keeper.feed(said))
    far.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionError if secret == SECRET else PeerRejected):
        await carrying
    assert (carrier.held > 0) == (secret == SECRET)
    far.close()
