"""The five local sockets of a kernel, for its clients."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import zmq
import zmq.asyncio

from jupyter_slurm.kernels.channels.messages import Frames, Message, MessageFraming

if TYPE_CHECKING:
    from jupyter_client.connect import KernelConnectionInfo

    from jupyter_slurm.client.jupyter_types import MessagePart

__all__ = ["ZmqChannels"]

log = logging.getLogger(__name__)

_MAX_QUEUED_MESSAGES = 200_000  # messages that a slow client may be behind on iopub before it loses some
_LARGE_MESSAGE_BYTES = 1 << 14  # bytes of a message that counts as large
_MAX_UNREAD_BYTES = 1 << 30  # bytes of unread large messages; above, large messages are not published
_LINGER_MS = 2000  # milliseconds in which the last messages are still sent
_REQUEST_CHANNELS = ("shell", "control", "stdin")
_CLIENT_RETURN_TIMEOUT_S = 10.0  # seconds for a client to connect to a replacement of a proxy
_CLIENT_CHECK_INTERVAL_S = 0.05  # seconds between two attempts to send to a client that is not connected
_ESSENTIAL_MESSAGES = (
    "status",
    "execute_input",
    "execute_result",
    "error",
    "shutdown_reply",
)  # essential for a front end
_SUBSCRIBES = b"\1"  # https://rfc.zeromq.org/spec/29/


class ZmqChannels:
    """The bound sockets of a connection file, which receive requests and send answers.

    Parameters
    ----------
    connection : mapping
        The content of the connection file.
    receive : callable
        ``take(channel, message)`` is called with each message of a client, in order.

    Raises
    ------
    zmq.ZMQError
        A port is in use.
    """

    def __init__(self, connection: KernelConnectionInfo, receive: Callable[[str, Message], None]) -> None:
        self._connection, self._receive = connection, receive
        key = str(connection.get("key", "")).encode()
        self.wire = MessageFraming(key, connection.get("signature_scheme") or "hmac-sha256")
        self._context = zmq.Context()
        self._loops: list[asyncio.Task[None]] = []
        self._undelivered: dict[tuple[str, bytes], deque[list[bytes]]] = {}  # by channel and client, in order
        self._sockets: dict[str, zmq.asyncio.Socket] = {}
        kinds = {"shell": zmq.ROUTER, "control": zmq.ROUTER, "stdin": zmq.ROUTER, "hb": zmq.REP, "iopub": zmq.XPUB}
        around = zmq.asyncio.Context(self._context)
        for name, kind in kinds.items():
            self._sockets[name] = self._bind(around.socket(kind), name)
        self._has_listener = asyncio.Event()
        self._unread: deque[tuple[zmq.MessageTracker, int]] = deque()
        self._unread_bytes = 0

    def _bind(self, socket: Any, name: str) -> Any:
        given: Mapping[str, object] = self._connection
        port = given[f"{name}_port"]
        socket.linger = _LINGER_MS
        if name == "iopub":
            socket.sndhwm = _MAX_QUEUED_MESSAGES
        elif name != "hb":
            socket.rcvhwm = socket.sndhwm = 0  # requests of clients wait and are not lost
            socket.router_handover = True  # a reconnecting client keeps its identity
            socket.router_mandatory = True  # a message to a client that is not connected is an error, not lost silently
        if given.get("curve_secretkey"):
            socket.curve_secretkey, socket.curve_publickey = (
                str(given[name]).encode() for name in ("curve_secretkey", "curve_publickey")
            )
            socket.curve_server = True
        is_path = given.get("transport") == "ipc"
        socket.bind(f"ipc://{given['ip']}-{port}" if is_path else f"tcp://{given['ip']}:{port}")
        return socket

    def start(self) -> None:
        """Start listening."""
        self._loops = [asyncio.create_task(self._listen(name), name=name) for name in _REQUEST_CHANNELS]
        self._loops.append(asyncio.create_task(self._beat(), name="heartbeat"))
        self._loops.append(asyncio.create_task(self._subscribe(), name="iopub"))

    async def wait_for_subscriber(self) -> None:
        """Wait briefly for a subscriber: without one, published messages are lost."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLIENT_RETURN_TIMEOUT_S):
                await self._has_listener.wait()

    async def close(self) -> None:
        """Send the remaining messages, and release the ports."""
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        for socket in self._sockets.values():
            socket.close()
        await asyncio.to_thread(self._context.term)

    async def _listen(self, name: str) -> None:
        while True:
            message = self.wire.read(await self._sockets[name].recv_multipart())
            if message is None:
                log.warning("what came on %s is no message, or not signed with the key", name)
                continue
            try:
                self._receive(name, message)
            except Exception:
                log.exception("a message of kind %s", message.kind)

    async def _beat(self) -> None:
        socket = self._sockets["hb"]
        while True:
            await socket.send_multipart(await socket.recv_multipart())

    async def _subscribe(self) -> None:
        while True:
            if (await self._sockets["iopub"].recv()).startswith(_SUBSCRIBES):
                self._has_listener.set()

    # Sending ----------------------------------------------------------------------------------------------------

    def send(self, channel: str, frames: Frames, idents: Sequence[bytes]) -> None:
        """Send a message to a client. If the client is not connected, wait briefly for it; then the message is lost."""
        parts = self.wire.parts(frames, idents)
        client = channel, parts[0]
        if client in self._undelivered:
            self._undelivered[client].append(parts)
        elif not self._send_now(channel, parts):
            self._undelivered[client] = deque([parts])
            self._loops = [loop for loop in self._loops if not loop.done()]
            self._loops.append(asyncio.create_task(self._deliver(client), name=f"undelivered {channel}"))

    def _send_now(self, channel: str, parts: list[bytes]) -> bool:
        """Send a message; return whether its client is connected."""
        # The future is already done: these sockets have no limit at which they wait.
        error = asyncio.ensure_future(self._sockets[channel].send_multipart(parts)).exception()
        if isinstance(error, zmq.ZMQError) and error.errno == zmq.EHOSTUNREACH:
            return False
        if error is not None:
            raise error
        return True

    async def _deliver(self, client: tuple[str, bytes]) -> None:
        """Send the messages of a client in order once the client is connected."""
        waiting = self._undelivered[client]
        try:
            async with asyncio.timeout(_CLIENT_RETURN_TIMEOUT_S):
                while waiting:
                    if self._send_now(client[0], waiting[0]):
                        waiting.popleft()
                    else:
                        await asyncio.sleep(_CLIENT_CHECK_INTERVAL_S)
        except TimeoutError:
            log.info("%d messages on %s are lost: their client has not returned", len(waiting), client[0])
        finally:
            del self._undelivered[client]

    def publish(self, frames: Frames, kind: str) -> bool:
        """Send a message to all clients; False: too large, given the unread messages of a slow client."""
        parts: list[Any] = self.wire.parts(frames, [f"kernel.{kind}".encode()])
        large = {
            at: zmq.Frame(part, copy=False, track=True)
            for at, part in enumerate(parts)
            if len(part) >= _LARGE_MESSAGE_BYTES
        }
        size = sum(map(len, large.values()))
        while self._unread and self._unread[0][0].done:
            self._unread_bytes -= self._unread.popleft()[1]
        if large and self._unread_bytes + size > _MAX_UNREAD_BYTES and kind not in _ESSENTIAL_MESSAGES:
            return False
        if large:
            self._unread.append((zmq.MessageTracker(*large.values()), size))
            self._unread_bytes += size
        self._sockets["iopub"].send_multipart([large.get(at, part) for at, part in enumerate(parts)], copy=not large)
        return True

    def answer(self, channel: str, to: Message, content: MessagePart) -> None:
        """Answer a request."""
        kind = to.kind.removesuffix("_request") + "_reply"
        self.send(channel, self.wire.create_message(kind, content, to.header), to.idents)

    def publish_message(self, kind: str, content: MessagePart, parent: MessagePart | None = None) -> None:
        """Publish a message of the proxy."""
        self.publish(self.wire.create_message(kind, content, parent), kind)
