"""HTTP/1.1 server of the agent: h11 parses, an asyncio protocol writes.

No library's server is used, because a cell and its ``sbatch`` wait for an exchange. It costs the agent 0.10 ms of
processor time, 0.13 ms with Tornado's server, and 0.15 ms if h11 writes, too. An event of a stream costs 3 µs, 9 µs
and 6 µs.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from email.utils import formatdate
from http.client import responses
from typing import Protocol, cast

import h11

from jupyter_slurm.runner.refusals import RefusalCount
from jupyter_slurm.transport.peer_credentials import is_same_user, peer_uid

__all__ = ["AgentServer", "Connection", "Request"]

_log = logging.getLogger(__name__)

_MAX_HEAD_BYTES = 65536
_MAX_JOINED_BODY_BYTES = 65536  # bytes that are copied rather than sent on their own
_CLOSE_TIMEOUT_S = 5.0  # seconds for answers to be sent when the server ends


class Request(Protocol):
    """Handler of one request, as it arrives."""

    def headers_received(self, method: str, target: str, headers: Mapping[str, str]) -> None:
        """Receive the head; names of headers are in lower case."""

    def data_received(self, chunk: bytes) -> None:
        """Receive a piece of the body."""

    def finish(self) -> None:
        """Handle the end of the request."""

    def refuse(self) -> None:
        """Answer input that is not HTTP."""

    def on_connection_close(self) -> None:
        """Handle the end of the client's connection."""


class Connection(asyncio.Protocol):
    """A connection to the agent: requests and their answers, one after the other.

    Parameters
    ----------
    server : AgentServer
        Server of the connection.
    """

    def __init__(self, server: AgentServer) -> None:
        self._server = server
        self._parser = _new_parser()  # of one request
        self._loop = asyncio.get_running_loop()
        self._request: Request | None = None  # the request whose answer is not complete
        self._has_read = self._has_started = self._is_chunked = False
        self._is_last = False  # no further request is accepted
        self._drained: asyncio.Future[None] | None = None
        self.ended: asyncio.Future[None] = self._loop.create_future()

    # Called by asyncio ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept a connection, or close it: the peer's user is checked before a byte is read."""
        self._transport = cast(asyncio.Transport, transport)
        self.socket: socket.socket = transport.get_extra_info("socket")
        self._server.connections.add(self)
        if is_same_user(self.socket):
            self._transport.set_write_buffer_limits(high=0)  # drain waits until all data is sent
            return
        uid = peer_uid(self.socket)
        if uid != -1 and (told := self._server.refused.add()):
            _log.warning("refused a connection of user %s%s", uid, told)
        self.disconnect()

    def data_received(self, data: bytes) -> None:
        """Parse received data. A request sent before the previous answer is complete gets no answer."""
        if self._is_last if self._request is None else self._has_read:
            self._is_last = True
            return
        if self._has_read:
            self._has_read, self._parser = False, _new_parser()
        try:
            self._parser.receive_data(data)
            while (event := self._parser.next_event()) is not h11.NEED_DATA:
                if event is h11.PAUSED:  # more data, or a request for another protocol, of which none is supported
                    self._is_last = True
                    return
                self._handle(event)
        except h11.RemoteProtocolError:
            self._refuse()

    def pause_writing(self) -> None:
        """Handle a full write buffer."""
        self._drained = self._loop.create_future()

    def resume_writing(self) -> None:
        """Handle an emptied write buffer."""
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    def connection_lost(self, error: Exception | None) -> None:
        """Handle the end of the connection."""
        self._is_last = True
        self.resume_writing()
        if self._request is not None:
            self._request.on_connection_close()
            self._request = None
        self._server.connections.discard(self)
        self._server.on_closed(self)
        self.ended.set_result(None)

    # Called by an answer ----------------------------------------------------------------------------------------

    def answer(self, status: int, headers: Mapping[str, str], content: bytes | None) -> None:
        """Send a complete answer; None: an answer to HEAD, without a body."""
        head, content = self._head(status, headers), content or b""
        if len(content) <= _MAX_JOINED_BODY_BYTES:
            self._transport.write(head + content)
        else:
            self._transport.write(head)
            self._transport.write(content)
        self._end()

    async def send(self, headers: Mapping[str, str], piece: bytes) -> None:
        """Send a piece of an answer, the first with the head, and wait until it is written.

        Raises
        ------
        ConnectionResetError
            The client has gone.
        """
        if not self._has_started:
            coding = {"Transfer-Encoding": "chunked"} if self._is_chunked else {}
            self._transport.write(self._head(200, {**headers, **coding}))
        self._transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if self._is_chunked else piece)
        if self._drained is not None:
            await asyncio.shield(self._drained)
        if self._transport.is_closing():
            raise ConnectionResetError("the client has gone")

    def end(self) -> None:
        """End the streamed answer."""
        if self._is_chunked:
            self._transport.write(b"0\r\n\r\n")
        self._end()

    def disconnect(self) -> None:
        """Close the connection at once; a partly sent answer stays incomplete."""
        self._is_last = True
        self._transport.abort()

    def close(self) -> None:
        """Close the connection after all data is sent."""
        self._is_last = True
        self._transport.close()

    # Internal ---------------------------------------------------------------------------------------------------

    def _handle(self, event: object) -> None:
        """Pass on a part of a request."""
        if isinstance(event, h11.Request):
            self._begin(event)
        elif self._request is not None:
            if isinstance(event, h11.Data):
                self._request.data_received(event.data)
            elif isinstance(event, h11.EndOfMessage):
                self._has_read = True
                self._request.finish()

    def _begin(self, head: h11.Request) -> None:
        """Pass on the head; repeated headers are joined."""
        headers: dict[str, str] = {}
        for name, value in head.headers:
            known, text = name.decode("ascii"), value.decode("latin-1")
            headers[known] = f"{headers[known]},{text}" if known in headers else text
        is_old = head.http_version == b"1.0"
        if not (is_old or head.http_version == b"1.1") or headers.keys() >= {"content-length", "transfer-encoding"}:
            self._refuse()
            return
        self._is_last = is_old or "close" in headers.get("connection", "").lower()
        self._has_started, self._is_chunked = False, not is_old
        self._request = request = self._server.create_exchange(self)
        request.headers_received(head.method.decode("ascii"), head.target.decode("ascii"), headers)
        if self._request is request and self._parser.they_are_waiting_for_100_continue:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _head(self, status: int, headers: Mapping[str, str]) -> bytes:
        self._has_started = True
        self._is_last = self._is_last or not self._has_read
        lines = [f"HTTP/1.1 {status} {responses.get(status, 'Unknown')}", f"Date: {formatdate(usegmt=True)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if self._is_last:
            lines.append("Connection: close")
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("a header of more than one line")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def _end(self) -> None:
        self._request = None
        if self._is_last:
            self._transport.close()

    def _refuse(self) -> None:
        """Answer input that is not HTTP, unless an answer is in progress; no more input is read."""
        if self._request is None:
            self._request = request = self._server.create_exchange(self)
            self._has_read = self._has_started = False
            request.refuse()
        elif self._has_started or self._has_read:
            self._is_last = True
        else:
            self._request.refuse()


def _new_parser() -> h11.Connection:
    return h11.Connection(h11.SERVER, _MAX_HEAD_BYTES)


class AgentServer:
    """The agent's server and its connections.

    Parameters
    ----------
    create_exchange : callable
        Creates the handler of a request.
    on_closed : callable
        Called with every connection that has ended.
    connections : set
        The open connections, which :meth:`close` closes, also those of a predecessor.
    """

    def __init__(
        self,
        create_exchange: Callable[[Connection], Request],
        on_closed: Callable[[object], None],
        connections: set[Connection],
    ) -> None:
        self.create_exchange, self.on_closed, self.connections = create_exchange, on_closed, connections
        self.refused = RefusalCount()  # connections of other users
        self._listening: asyncio.Server | None = None

    async def listen(self, listener: socket.socket) -> None:
        """Accept connections."""
        self._listening = await asyncio.get_running_loop().create_server(lambda: Connection(self), sock=listener)

    def stop(self) -> None:
        """Accept no more connections."""
        if self._listening is not None:
            self._listening.close()

    async def close(self) -> None:
        """Accept no more connections, and close the existing ones."""
        self.stop()
        for connection in tuple(self.connections):
            connection.close()
        if ends := [connection.ended for connection in self.connections]:
            await asyncio.wait(ends, timeout=_CLOSE_TIMEOUT_S)
        for connection in tuple(self.connections):
            connection.disconnect()
