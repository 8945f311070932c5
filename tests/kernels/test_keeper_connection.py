"""Tests of the lifetime of a connection to a keeper."""

from __future__ import annotations

import asyncio
import socket

import pytest

from jupyter_slurm.kernels.channels.keeper_connection import KeeperConnection, PeerRejected
from jupyter_slurm.runner.link.handshake import KeeperHandshake

SECRET = b"s" * 32


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
