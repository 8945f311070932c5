"""HTTP client of sessions: requests to a local port, after a check that the port belongs to the user."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar

import httpx
from tornado.http1connection import HTTP1Connection
from tornado.httpclient import HTTPRequest
from tornado.httputil import HTTPHeaders
from tornado.iostream import IOStream
from tornado.web import HTTPError
from tornado.websocket import WebSocketClientConnection, WebSocketProtocol

from jupyter_slurm.agent.client.async_client import check_peer, refuse_stranger
from jupyter_slurm.errors import AgentRefused, TunnelUnproven

__all__ = ["SessionHttpClient", "page_of"]

_CONNECT_TIMEOUT_S = 30.0  # a tunnel accepts a connection at once
_HANDSHAKE_TIMEOUT_S = 90.0  # Jupyter accepts a kernel's WebSocket after the start of the kernel, which may take 60 s
_MAX_MESSAGE_BYTES = 256 << 20  # bytes of a WebSocket message: figures and buffers of widgets are large
_MAX_PAGE_BYTES = 64 << 20  # bytes of a page, which is changed as a whole: those of notebooks with figures are large
_TOO_BIG = 1009  # close code of a WebSocket (RFC 6455, 7.4.1)
# Shorter than the keep-alive of servers: gunicorn 2 s, uvicorn and Node.js 5 s.
_CONNECTION_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=1.0)


_is_asking = ContextVar("_is_asking", default=False)
_log = logging.getLogger(__name__)
# At DEBUG the library logs the headers of answers: those of a session contain a login cookie.
_library_log = logging.getLogger("httpcore.http11")


class SessionHttpClient:
    """HTTP client with short-lived idle connections, without cookies and redirections."""

    def __init__(self) -> None:
        self._transport = httpx.AsyncHTTPTransport(verify=False, trust_env=False, limits=_CONNECTION_LIMITS)
        _library_log.addFilter(_may_be_logged)

    @asynccontextmanager
    async def request(
        self, port: int, method: str, target: str, *, headers: Sequence[tuple[str, str]], body: bytes
    ) -> AsyncIterator[httpx.Response]:
        """Send a request, and yield the answer before its body.

        Raises
        ------
        httpx.TransportError
            The session does not answer, or the connection was lost.
        TunnelUnproven
            A program of another user listens on the port; nothing was sent to it.
        """
        request = httpx.Request(
            method,
            httpx.URL(scheme="http", host="127.0.0.1", port=port, raw_path=target.encode("latin-1")),
            headers=[(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers],
            content=body or None,
            extensions={"timeout": httpx.Timeout(None, connect=_CONNECT_TIMEOUT_S).as_dict(), "trace": check_peer},
        )
        before = _is_asking.set(True)
        try:
            with _named_errors(port):
                answer = await self._transport.handle_async_request(request)
        finally:
            _is_asking.reset(before)
        try:
            yield answer
        finally:
            await answer.aclose()

    async def connect(
        self, port: int, target: str, *, headers: Sequence[tuple[str, str]], subprotocols: list[str] | None
    ) -> WebSocketClientConnection:
        """Open a WebSocket.

        Raises
        ------
        tornado.httpclient.HTTPError
            The session refuses, with the status of its answer; or no answer came in time.
        OSError, tornado.websocket.WebSocketError
            The port does not answer, or not with a WebSocket.
        TunnelUnproven
            A program of another user listens on the port; nothing was sent to it.
        """
        sent = HTTPHeaders()
        for name, value in headers:
            sent.add(name, value)
        url = f"ws://127.0.0.1:{port}{target}"
        request = HTTPRequest(
            url, headers=sent, connect_timeout=_CONNECT_TIMEOUT_S, request_timeout=_HANDSHAKE_TIMEOUT_S
        )
        channel = _Channel(request, max_message_size=_MAX_MESSAGE_BYTES, subprotocols=subprotocols)
        with _named_errors(port):
            return await channel.connect_future

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.aclose()


class _Channel(WebSocketClientConnection):
    """A WebSocket that sends its request only to a program of the user: the request contains the session's token."""

    _is_too_big = False

    def _create_connection(self, stream: IOStream) -> HTTP1Connection:  # Tornado's step between connecting and sending
        refuse_stranger(stream.socket)
        return super()._create_connection(stream)

    def get_websocket_protocol(self) -> WebSocketProtocol:
        """Return the protocol; the browser is told if it closes the connection because of a message's size."""
        protocol = super().get_websocket_protocol()
        close = protocol.close

        def close_noted(code: int | None = None, reason: str | None = None) -> None:
            self._is_too_big = self._is_too_big or code == _TOO_BIG
            close(code, reason)

        protocol.close = close_noted  # type: ignore[method-assign]
        return protocol

    def on_ws_connection_close(self, close_code: int | None = None, close_reason: str | None = None) -> None:
        """Keep the reason of the end."""
        if self._is_too_big:
            close_code, close_reason = _TOO_BIG, f"A message is larger than {_MAX_MESSAGE_BYTES >> 20} MiB."
            _log.warning("A WebSocket of a session was closed. %s Save large data to a file instead.", close_reason)
        super().on_ws_connection_close(close_code, close_reason)


async def page_of(chunks: AsyncIterable[bytes]) -> bytes:
    """Return a page that the session sends.

    Raises
    ------
    tornado.web.HTTPError
        The page is too large to be held in memory.
    """
    page = bytearray()
    async for chunk in chunks:
        page += chunk
        if len(page) > _MAX_PAGE_BYTES:
            raise HTTPError(
                502, f"The page is larger than {_MAX_PAGE_BYTES >> 20} MiB. Open the session on its local port instead."
            )
    return bytes(page)


def _may_be_logged(_: logging.LogRecord) -> bool:
    return not _is_asking.get()


@contextlib.contextmanager
def _named_errors(port: int) -> Iterator[None]:
    """Add the address to an error about a foreign program."""
    try:
        yield
    except AgentRefused as error:
        raise TunnelUnproven(
            f"Port {port} of this computer, which the session used, now belongs to another program. Nothing was sent.",
            hint="Load the page again when the port is free. The session keeps running.",
        ) from error
