"""Link to a keeper, over successive connections."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict

from jupyter_slurm.kernels.channels.messages import Frames
from jupyter_slurm.runner.link import resumable_link
from jupyter_slurm.runner.link.handshake import GREETING_TIMEOUT_S, PeerRejected, PeerReplaced, ProxyHandshake
from jupyter_slurm.runner.link.resumable_link import Message as Parcel

if TYPE_CHECKING:
    from jupyter_slurm.client.jupyter_types import MessagePart

__all__ = ["KeeperConnection", "KeeperNote", "Parcel", "PeerRejected", "PeerReplaced"]

_READ_BYTES = 256 << 10  # bytes of one read
_CHECK_INTERVAL_S = 1.0  # seconds between two checks of the other end


class KeeperNote(TypedDict, total=False):
    """A note of the keeper: its ``event``, and the fields of that event."""

    event: str
    kernel_info: MessagePart
    begun: bool
    why: str
    hint: str
    signal: int
    log: str
    bytes: int
    parent: MessagePart


class KeeperConnection:
    """Transfers messages between a proxy and a keeper; messages lost with a connection are sent again.

    Parameters
    ----------
    secret : bytes
        Secret shared by both.
    receive : callable
        Called with each received message, once.
    received : int
        Number of the last message that this proxy, or the one before it, received.
    on_received : callable
        Called with that number.
    """

    def __init__(
        self, secret: bytes, receive: Callable[[Parcel], None], received: int, on_received: Callable[[int], None]
    ) -> None:
        self._secret, self._receive, self._on_received = secret, receive, on_received
        self._connection_id, self._link = os.urandom(8), resumable_link.Link()
        self._link.received = received
        self._wake = asyncio.Event()
        self.note_count = 0  # number of receptions
        self._since = 0.0
        self.held = 0.0  # seconds of the last connection

    @property
    def is_attached(self) -> bool:
        """Return whether a connection exists now."""
        return self._link.is_attached

    @property
    def is_clear(self) -> bool:
        """Return whether the keeper has all sent messages."""
        return self._link.is_clear

    def send(self, channel: int, frames: Frames) -> None:
        """Queue a message for sending."""
        self._link.send(channel, frames)
        self._wake.set()

    def send_note(self, **told: Any) -> None:
        """Queue a note for sending."""
        self._link.send_note(**told)
        self._wake.set()

    async def over(self, connection: socket.socket) -> None:
        """Exchange messages over a connection until it breaks.

        Raises
        ------
        PeerRejected, PeerReplaced
            The peer does not know the secret, or has a newer proxy.
        ConnectionError
            The connection is broken: another one is needed.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(GREETING_TIMEOUT_S):
                greeting = await self._greet(loop, connection)
            self.note_count += 1
            self._since = loop.time()
            self._pass_on(self._link.attach(greeting.received, greeting.rest))
            self._wake.set()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read(loop, connection))
                group.create_task(self._write(loop, connection))
                group.create_task(self._watch())
        except (ExceptionGroup, resumable_link.LinkBroken, OSError) as error:
            first = _first(error)
            if isinstance(first, (resumable_link.LinkBroken, OSError)):
                raise ConnectionError(str(first)) from error
            raise first from None
        finally:
            self.held = loop.time() - self._since if self._link.is_attached else 0.0
            self._link.detach()
            connection.close()

    async def _greet(self, loop: asyncio.AbstractEventLoop, connection: socket.socket) -> ProxyHandshake:
        greeting = ProxyHandshake(self._secret, self._connection_id, self._link.received)
        await loop.sock_sendall(connection, greeting.first)
        while not greeting.is_done:
            answer = greeting.feed(await _received(loop, connection))
            if answer:
                await loop.sock_sendall(connection, answer)
        return greeting

    async def _read(self, loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
        while True:
            data = await _received(loop, connection)
            self.note_count += 1
            self._pass_on(self._link.feed(data))
            self._wake.set()  # sends at least an acknowledgement

    async def _write(self, loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
        while True:
            self._wake.clear()
            while data := self._link.pending():
                await loop.sock_sendall(connection, data)
                self._link.written(len(data))
            await self._wake.wait()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_INTERVAL_S)
            self._link.tick()
            self._wake.set()

    def _pass_on(self, messages: list[Parcel]) -> None:
        if self._link.is_replaced:
            raise PeerReplaced("another front has taken this kernel over")
        for message in messages:
            self._receive(message)
        self._link.confirm()
        if messages:
            self._on_received(self._link.received)


async def _received(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> bytes:
    data = await loop.sock_recv(connection, _READ_BYTES)
    if not data:
        raise ConnectionResetError("the other end has closed it")
    return data


def _first(error: BaseException) -> BaseException:
    """Return an error; of an error group, the first one."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
