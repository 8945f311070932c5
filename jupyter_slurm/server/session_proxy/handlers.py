"""Proxy of a session in the Jupyter server, for a browser that cannot reach its local port: pages and WebSockets.

The agent returns the session's address by key, for each request: no host and no port come from a request. This proxy
adds the session's token, so that no browser has it. No credentials of this server reach the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from html import escape
from typing import Any

import httpx
from jupyter_core.utils import ensure_async
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server_proxy.handlers import ProxyHandler
from tornado import httpclient, httputil, web
from tornado.iostream import StreamClosedError
from tornado.websocket import WebSocketClientConnection, WebSocketError

from jupyter_slurm.errors import JobError, JobNotFound, SlurmError, TunnelUnproven
from jupyter_slurm.server.agent_access import AgentAccess
from jupyter_slurm.server.session_proxy.http_client import SessionHttpClient
from jupyter_slurm.server.session_route import SessionRoute, request_headers, response_headers

__all__ = ["SESSIONS", "SessionHandler"]

SESSIONS = r"jupyter-slurm/([0-9]{8}-[0-9]{6}-[0-9a-f]{8,32})(/.*)?"
"""The addresses of sessions, below that of the server."""

_PING_INTERVAL_S = 30.0
_RETRY_AFTER_S = 3  # seconds until a browser repeats the request for a session that is almost ready
_NO_ANSWER_TEXT = "The session does not answer."
_XSRF = re.compile(r"(?:^|;) *_xsrf=")
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Session</title></head>
<body><h1>{message}</h1><p>{hint}</p></body></html>
"""


class SessionHandler(ProxyHandler):  # type: ignore[misc]  # it has no types
    """Forwards a request to a session, and streams the answer back."""

    auth_resource = "jupyter-slurm"

    def initialize(self, access: AgentAccess, caller: SessionHttpClient) -> None:
        """Initialize the handler (Tornado's constructor)."""
        self._access, self._caller = access, caller
        self._task: asyncio.Future[None] | None = None
        self._remote_socket: WebSocketClientConnection | None = None

    async def prepare(self) -> None:
        """Check that the user may run programs on this server, and that no page of another site sends the request."""
        await JupyterHandler.prepare(self, _redirect_to_login=not self._is_websocket)
        if self._finished:
            return  # redirected to the login
        user = self.current_user
        if not user and self._is_websocket:
            raise web.HTTPError(403)
        if not user:
            return  # the methods answer
        if not await ensure_async(self.authorizer.is_authorized(self, user, "execute", self.auth_resource)):
            raise web.HTTPError(403, "User is not authorized to execute on resource: jupyter-slurm.")
        if self._is_foreign():
            raise web.HTTPError(403, "The request came from a page of another site.")

    @web.authenticated
    async def get(self, key: str, rest: str | None) -> None:
        """Forward a GET request, or open a WebSocket."""
        if not self._is_websocket:
            await self._serve(key, rest)
            return
        if not self.check_origin():
            raise web.HTTPError(403, "The request came from a page of another site.")
        await self._connect(await self._find(key))
        try:
            await super().get(key, rest)
        finally:
            self.on_close()

    @web.authenticated
    async def head(self, key: str, rest: str | None) -> None:
        """Forward a HEAD request."""
        await self._serve(key, rest)

    @web.authenticated
    async def post(self, key: str, rest: str | None) -> None:
        """Forward a POST request."""
        await self._serve(key, rest)

    @web.authenticated
    async def put(self, key: str, rest: str | None) -> None:
        """Forward a PUT request."""
        await self._serve(key, rest)

    @web.authenticated
    async def patch(self, key: str, rest: str | None) -> None:
        """Forward a PATCH request."""
        await self._serve(key, rest)

    @web.authenticated
    async def delete(self, key: str, rest: str | None) -> None:
        """Forward a DELETE request."""
        await self._serve(key, rest)

    @web.authenticated
    async def options(self, key: str, rest: str | None) -> None:
        """Forward an OPTIONS request; pages of other origins get no permissions."""
        await self._serve(key, rest)

    def check_xsrf_cookie(self) -> None:
        """Check that a page of this server sends the request: by the XSRF token, or by Fetch Metadata."""
        if self.request.headers.get("Sec-Fetch-Site") != "same-origin":
            JupyterHandler.check_xsrf_cookie(self)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer with an error page; for a temporary error, the browser repeats the request."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        cause = getattr(error, "__cause__", None)
        said = getattr(cause, "message", None) or getattr(error, "log_message", None) or "The session cannot be shown."
        if isinstance(cause, JobError) and status_code == 503:
            self.set_header("Refresh", str(_RETRY_AFTER_S))
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Content-Security-Policy", "default-src 'none'; frame-ancestors 'self'")
        self.set_header("Cache-Control", "no-store")
        self.finish(_PAGE.format(message=escape(str(said)), hint=escape(getattr(cause, "hint", ""))))

    # Pages ------------------------------------------------------------------------------------------------------

    async def _serve(self, key: str, rest: str | None) -> None:
        way = await self._find(key)
        if rest is None:
            self.redirect(way.path)
            return
        self._record_activity()
        # A separate task can be cancelled; a cancelled task of Tornado is logged as a failure.
        self._task = asyncio.ensure_future(self._pass_on(way))
        await asyncio.wait({self._task})
        with contextlib.suppress(asyncio.CancelledError, StreamClosedError):  # the client has disconnected
            self._task.result()

    def on_connection_close(self) -> None:
        """End the request to the session after a disconnection of the browser."""
        if self._task is not None:
            self._task.cancel()
        super().on_connection_close()

    async def _pass_on(self, route: SessionRoute) -> None:
        target = route.target(self.request.path, self.request.query)
        try:
            async with self._caller.request(
                route.port,
                self.request.method or "",
                target,
                headers=request_headers(self.request.headers.get_all(), route),
                body=self.request.body,
            ) as answer:
                await self._pass_back(route, answer)
        except (httpx.TransportError, TunnelUnproven) as error:
            if self._headers_written:  # a partial answer must not look complete
                self.request.connection.stream.close()
                return
            raise web.HTTPError(502, _NO_ANSWER_TEXT) from error

    async def _pass_back(self, route: SessionRoute, answer: httpx.Response) -> None:
        assert isinstance(answer.stream, httpx.AsyncByteStream)
        self.set_status(answer.status_code, answer.reason_phrase or None)
        self._headers = httputil.HTTPHeaders()  # the session decides on the policies of its pages
        # Byte for byte, as Tornado sends them; httpx would decode them as UTF-8 if possible.
        for name, value in response_headers(
            ((n.decode("latin-1"), v.decode("latin-1")) for n, v in answer.headers.raw), route
        ):
            self.add_header(name, value)
        if answer.status_code == 204:
            self.clear_header("Content-Length")  # the answer has no body, whatever the header says (RFC 9110, 8.6)
        if self.request.method == "GET" and answer.headers.get("content-type", "").startswith("text/html"):
            self._show(route, b"".join([chunk async for chunk in answer.stream]))
            return
        await web.RequestHandler.flush(self)
        async for chunk in answer.stream:
            self.write(chunk)
            await web.RequestHandler.flush(self)

    def _show(self, route: SessionRoute, page: bytes) -> None:
        """Answer with a page without the token that JupyterLab writes into it: scripts send the XSRF token instead."""
        assert self.xsrf_token  # sets the cookie with the token, if it is missing
        if len(_XSRF.findall(self.request.headers.get("Cookie", ""))) > 1:
            # The session may have set one from its local port: cookies ignore ports, and scripts would use that cookie.
            self.clear_cookie("_xsrf", path=route.path)
        self.clear_header("Content-Length")
        self.write(page.replace(route.token.encode(), b"") if route.token else page)

    # WebSockets -------------------------------------------------------------------------------------------------

    async def _connect(self, route: SessionRoute) -> None:
        """Connect to the session first: the browser gets the subprotocol that the session has chosen."""
        asked = self.request.headers.get("Sec-WebSocket-Protocol")
        target = route.target(self.request.path, self.request.query)
        try:
            self._remote_socket = await self._caller.connect(
                route.port,
                target,
                headers=request_headers(self.request.headers.get_all(), route),
                subprotocols=[name.strip() for name in asked.split(",")] if asked else None,
            )
        except httpclient.HTTPError as error:
            raise web.HTTPError(error.code if 400 <= error.code < 500 else 502, _NO_ANSWER_TEXT) from None
        except (OSError, WebSocketError, TunnelUnproven) as error:
            raise web.HTTPError(502, _NO_ANSWER_TEXT) from error

    def select_subprotocol(self, subprotocols: list[str]) -> str | None:
        """Return the subprotocol that the session has chosen."""
        return self._remote_socket.selected_subprotocol if self._remote_socket is not None else None

    @property
    def ping_interval(self) -> float:
        """Return the seconds between two pings to a browser: proxies close silent connections."""
        return _PING_INTERVAL_S

    async def open(self, key: str, rest: str | None) -> None:
        """Start returning messages."""
        self._task = asyncio.ensure_future(self._pass_messages_back())

    async def on_message(self, message: str | bytes) -> None:
        """Forward a message; the next one is read after its transmission."""
        self._record_activity()
        if self._remote_socket is not None:
            with contextlib.suppress(StreamClosedError, WebSocketError):
                await self._remote_socket.write_message(message, binary=isinstance(message, bytes))

    def on_ping(self, data: bytes) -> None:
        """Ignore a ping: Tornado has answered it."""

    async def _pass_messages_back(self) -> None:
        assert self._remote_socket is not None
        with contextlib.suppress(StreamClosedError, WebSocketError):
            while (message := await self._remote_socket.read_message()) is not None:
                await self.write_message(message, binary=isinstance(message, bytes))
        self.close(self._remote_socket.close_code, self._remote_socket.close_reason)

    def on_close(self) -> None:
        """Close the connection to the session."""
        if self._remote_socket is not None:
            self._remote_socket.close()

    # Helpers ----------------------------------------------------------------------------------------------------

    @property
    def _is_websocket(self) -> bool:
        headers: httputil.HTTPHeaders = self.request.headers
        return self.request.method == "GET" and headers.get("Upgrade", "").lower() == "websocket"

    def _is_foreign(self) -> bool:
        """Return whether a page of another site sends the request for its own use; navigation by a link is allowed."""
        site, use = (self.request.headers.get(f"Sec-Fetch-{what}") for what in ("Site", "Dest"))
        is_foreign = site in ("cross-site", "same-site") and use != "document"
        return is_foreign and not bool(self.token_authenticated)

    async def _find(self, key: str) -> SessionRoute:
        """Return the route to a session; a session launched for another server's address is not shown."""
        try:
            way = await self._access.session_route(key)
            self._check_address(way.path)
        except JobNotFound as error:
            raise web.HTTPError(404) from error
        except SlurmError as error:
            try:
                self._check_address(str(error.details.get("path", self.request.path)))
            except JobNotFound as elsewhere:
                raise web.HTTPError(404) from elsewhere
            raise web.HTTPError(410 if error.details.get("state") == "ended" else 503) from error
        return way

    def _check_address(self, path: str) -> None:
        if not (self.request.path + "/").startswith(path):
            raise JobNotFound(
                f"This server cannot show the session: its URL is {path}, as it was launched.",
                hint="Open it on its local port (`jupyter slurm open`), or launch a session from this Jupyter server.",
            )
