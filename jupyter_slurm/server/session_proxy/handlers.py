"""Proxy of a session in the Jupyter server, for a browser that cannot reach its local port: pages and WebSockets.

The agent returns the session's address by key, for each request: no host and no port come from a request. This proxy
adds the session's token, so that no browser has it. No credentials of this server reach the session, and its pages get
another origin than this server (``isolation.py``).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from datetime import UTC, datetime
from html import escape
from typing import Any

import httpx
from jupyter_core.utils import ensure_async
from jupyter_server.base.handlers import JupyterHandler
from tornado import httpclient, httputil, web
from tornado.iostream import StreamClosedError
from tornado.websocket import WebSocketClientConnection, WebSocketError, WebSocketHandler

from jupyter_slurm.errors import JobError, JobNotFound, SlurmError, TunnelUnproven
from jupyter_slurm.server.agent_access import AgentAccess
from jupyter_slurm.server.session_proxy.http_client import SessionHttpClient, page_of
from jupyter_slurm.server.session_proxy.isolation import (
    TICKET_HEADERS,
    Tickets,
    isolated_headers,
    isolated_page,
    preflight_headers,
)
from jupyter_slurm.server.session_proxy.login import Login
from jupyter_slurm.server.session_route import (
    Headers,
    SessionRoute,
    request_headers,
    response_headers,
    without_token,
)

__all__ = ["SESSIONS", "SessionHandler"]

SESSIONS = r"jupyter-slurm/([0-9]{8}-[0-9]{6}-[0-9a-f]{8,32})(~[0-9A-Za-z_-]+)?(/.*)?"
"""The addresses of sessions, below that of the server: key, ticket and path."""

_PING_INTERVAL_S = 30.0
_RETRY_AFTER_S = 3  # seconds until a browser repeats the request for a session that is almost ready
_NO_ANSWER_TEXT = "The session does not answer."
_FOREIGN_TEXT = "The request came from a page of another site."
_LACKING_TEXT = "Open the page of the session first: only its own page can send this request."
_DOCUMENTS = ("document", "iframe", "frame", "embed", "object")
_PAGE_KINDS = ("text/html", "application/xhtml+xml")
_XSRF = re.compile(r"(?:^|;) *_xsrf=")
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Session</title></head>
<body><h1>{message}</h1><p>{hint}</p>{link}</body></html>
"""
_GONE_TEXT = "This session has ended or is not yours."


class SessionHandler(WebSocketHandler, JupyterHandler):
    """Forwards a request to a session, and streams the answer back."""

    auth_resource = "jupyter-slurm"

    def initialize(self, access: AgentAccess, caller: SessionHttpClient, tickets: Tickets | None) -> None:
        """Initialize the handler (Tornado's constructor); no tickets: pages of sessions share this server's origin."""
        self._access, self._caller, self._tickets = access, caller, tickets
        self._ticket = ""
        self._task: asyncio.Future[None] | None = None
        self._remote_socket: WebSocketClientConnection | None = None

    async def prepare(self) -> None:  # type: ignore[override]  # with the option of JupyterHandler's it has another form
        """Check that the user may run programs on this server, and that no page of another site sends the request."""
        if self.path_args[1]:
            await self._use_ticket(self.path_args[0], self.path_args[1][1:])
        else:
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
            raise web.HTTPError(403, _FOREIGN_TEXT)

    async def _use_ticket(self, key: str, ticket: str) -> None:
        """Take the user from the ticket in the address; without a valid one, lead a browser to the login."""
        self._ticket = ticket
        self.request.uri = self._plain_path + without_token(self.request.query)  # the log does not get the ticket
        user = await self._tickets.use(ticket, key, self) if self._tickets is not None else None
        self.current_user = self._jupyter_current_user = user
        if not self.check_host() or (user and not self.check_origin()):
            raise web.HTTPError(403, _FOREIGN_TEXT)
        # A script in a sandboxed page cannot follow to the login, nor read where that fails.
        is_script = self._is_websocket or self.request.headers.get("Sec-Fetch-Mode") == "cors"
        if user is None and (self.request.method not in ("GET", "HEAD") or is_script):
            raise web.HTTPError(403, "The server does not know this page any more. Reload it.")
        if user is None:
            self.set_header("Cache-Control", "no-store")
            self.redirect(self.request.uri)

    @web.authenticated
    async def get(  # type: ignore[override]  # the decorator returns an awaitable
        self, key: str, ticket: str | None, rest: str | None
    ) -> None:
        """Forward a GET request, or open a WebSocket."""
        if not self._is_websocket:
            await self._serve(key, rest)
            return
        if not self.check_origin():
            raise web.HTTPError(403, _FOREIGN_TEXT)
        route = await self._find(key)
        if self._lacks_ticket:
            raise web.HTTPError(403, _LACKING_TEXT)
        await self._connect(route)
        try:
            await super().get(key, ticket, rest)
        finally:
            self.on_close()

    @web.authenticated
    async def head(self, key: str, ticket: str | None, rest: str | None) -> None:
        """Forward a HEAD request."""
        await self._serve(key, rest)

    @web.authenticated
    async def post(self, key: str, ticket: str | None, rest: str | None) -> None:
        """Forward a POST request."""
        await self._serve(key, rest)

    @web.authenticated
    async def put(self, key: str, ticket: str | None, rest: str | None) -> None:
        """Forward a PUT request."""
        await self._serve(key, rest)

    @web.authenticated
    async def patch(self, key: str, ticket: str | None, rest: str | None) -> None:
        """Forward a PATCH request."""
        await self._serve(key, rest)

    @web.authenticated
    async def delete(self, key: str, ticket: str | None, rest: str | None) -> None:
        """Forward a DELETE request."""
        await self._serve(key, rest)

    @web.authenticated
    async def options(self, key: str, ticket: str | None, rest: str | None) -> None:
        """Forward an OPTIONS request, or permit a page of the session its requests; no other page gets permissions."""
        if self._ticket and "Access-Control-Request-Method" in self.request.headers:
            self.set_status(204)
            asked = self.request.headers.get("Access-Control-Request-Headers", "")
            self._add_headers([*TICKET_HEADERS, *preflight_headers(asked)])
            return
        await self._serve(key, rest)

    def check_origin(self, origin: str = "") -> bool:
        """Return whether a page of this server sends the request, or with a ticket a sandboxed page."""
        if self._ticket:
            return bool(self.request.headers.get("Origin", "null") == "null")
        return JupyterHandler.check_origin(self)

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
        self._add_headers(TICKET_HEADERS if self._ticket else [])
        hint = getattr(cause, "hint", "")
        if isinstance(cause, JobNotFound) and cause.details.get("path") is None:  # commands help nobody in a browser
            said, hint = _GONE_TEXT, ""
        link = f'<p><a href="{escape(self.base_url)}">Open the launcher</a></p>' if status_code in (404, 410) else ""
        self.finish(_PAGE.format(message=escape(str(said)), hint=escape(hint), link=link))

    # Pages ------------------------------------------------------------------------------------------------------

    async def _serve(self, key: str, rest: str | None) -> None:
        way = await self._find(key)
        if self._lacks_ticket:
            self._lead_to_ticket(key, way)
            return
        if rest is None:
            self.redirect(way.path)
            return
        self._record_activity()
        # A separate task can be cancelled; a cancelled task of Tornado is logged as a failure.
        self._task = asyncio.ensure_future(self._pass_on(way))
        await asyncio.wait({self._task})
        with contextlib.suppress(asyncio.CancelledError, StreamClosedError):  # the client has disconnected
            self._task.result()

    def _lead_to_ticket(self, key: str, route: SessionRoute) -> None:
        """Redirect to the address with a ticket, which a sandboxed page needs."""
        user = self.current_user
        if self.request.method not in ("GET", "HEAD") or self._tickets is None or user is None:
            raise web.HTTPError(403, _LACKING_TEXT)
        rest = self.request.path.removeprefix(route.path.rstrip("/")).lstrip("/")
        path = route.with_ticket(self._tickets.issue(key, user, Login(self.request, self.application))).path
        self.set_header("Cache-Control", "no-store")
        self.redirect(path + rest + without_token(self.request.query))

    def end(self) -> None:
        """End the request or the WebSocket: the user has logged out."""
        if self._task is not None:
            self._task.cancel()
        if self._is_websocket:
            self.close(1008, "Logged out.")  # a violation of the policy (RFC 6455, 7.4.1)

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
                self.request.connection.stream.close()  # type: ignore[union-attr]  # it is that of a server
                return
            await self._find(self.path_args[0], newer=True)  # raises if the session has ended meanwhile
            raise web.HTTPError(502, _NO_ANSWER_TEXT) from error

    async def _pass_back(self, route: SessionRoute, answer: httpx.Response) -> None:
        assert isinstance(answer.stream, httpx.AsyncByteStream)
        self.set_status(answer.status_code, answer.reason_phrase or None)
        self._headers = httputil.HTTPHeaders()  # the session decides on the policies of its pages
        # Byte for byte, as Tornado sends them; httpx would decode them as UTF-8 if possible.
        headers = response_headers(((n.decode("latin-1"), v.decode("latin-1")) for n, v in answer.headers.raw), route)
        self._add_headers(headers if self._tickets is None else isolated_headers(headers))
        self._add_headers(TICKET_HEADERS if self._ticket else [])
        if answer.status_code == 204:
            self.clear_header("Content-Length")  # the answer has no body, whatever the header says (RFC 9110, 8.6)
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if self.request.method == "GET" and (kind in _PAGE_KINDS or (self._ticket and self._has_addresses(kind))):
            self._show(route, await page_of(answer.stream))
            return
        await web.RequestHandler.flush(self)
        async for chunk in answer.stream:
            self.write(chunk)
            await web.RequestHandler.flush(self)

    def _show(self, route: SessionRoute, page: bytes) -> None:
        """Answer with a page without the token that JupyterLab writes into it: a ticket or a cookie stands for it."""
        if self._ticket:
            is_document = self.request.headers.get("Sec-Fetch-Dest", "document") in _DOCUMENTS
            page = isolated_page(page, self.path_args[0], route, is_document=is_document)
        else:
            assert self.xsrf_token  # sets the cookie with the token, if it is missing: scripts send it
            if len(_XSRF.findall(self.request.headers.get("Cookie", ""))) > 1:
                # The session may have set one from its local port: cookies ignore ports, and scripts would use it.
                self.clear_cookie("_xsrf", path=route.path)
        self.clear_header("Content-Length")
        self.write(page.replace(route.token.encode(), b"") if route.token else page)

    def _has_addresses(self, kind: str) -> bool:
        """Return whether an answer of Jupyter's API contains addresses that a page loads as they are: logos."""
        return kind == "application/json" and (self.path_args[2] or "").startswith("/api/kernelspecs")

    def _add_headers(self, headers: Headers) -> None:
        for name, value in headers:
            self.add_header(name, value)

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
            await self._find(self.path_args[0], newer=True)
            raise web.HTTPError(502, _NO_ANSWER_TEXT) from error

    def select_subprotocol(self, subprotocols: list[str]) -> str | None:
        """Return the subprotocol that the session has chosen."""
        return self._remote_socket.selected_subprotocol if self._remote_socket is not None else None

    @property
    def ping_interval(self) -> float:
        """Return the seconds between two pings to a browser: proxies close silent connections."""
        return _PING_INTERVAL_S

    async def open(self, key: str, ticket: str | None, rest: str | None) -> None:
        """Start returning messages."""
        self._task = asyncio.ensure_future(self._pass_messages_back())

    async def on_message(self, message: str | bytes) -> None:
        """Forward a message; the next one is read after its transmission."""
        self._record_activity()
        if self._ticket and self._tickets is not None:
            await self._tickets.use(self._ticket, self.path_args[0], self)
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

    def _record_activity(self) -> None:
        """Count as activity of this server, so that it does not stop because of idleness."""
        self.settings.setdefault("last_activity_times", {})["jupyter-slurm"] = datetime.now(UTC)

    @property
    def _is_websocket(self) -> bool:
        headers: httputil.HTTPHeaders = self.request.headers
        return self.request.method == "GET" and headers.get("Upgrade", "").lower() == "websocket"

    @property
    def _plain_path(self) -> str:
        """Return the path of the request without its ticket."""
        path: str = self.request.path
        return path.replace(f"~{self._ticket}", "", 1) if self._ticket else path

    @property
    def _lacks_ticket(self) -> bool:
        """Return whether the request needs a ticket: that of a browser, not of a program with the server's token."""
        is_program = bool(self.token_authenticated) and self.request.headers.get("Sec-Fetch-Mode") != "navigate"
        return self._tickets is not None and not self._ticket and not is_program

    def _is_foreign(self) -> bool:
        """Return whether a page of another site sends the request for its own use; navigation by a link is allowed."""
        if self._ticket:
            return False  # a sandboxed page is another site; its Origin was checked
        site, use = (self.request.headers.get(f"Sec-Fetch-{what}") for what in ("Site", "Dest"))
        is_foreign = site in ("cross-site", "same-site") and use != "document"
        return is_foreign and not bool(self.token_authenticated)

    async def _find(self, key: str, *, newer: bool = False) -> SessionRoute:
        """Return the route to a session; a session launched for another server's address is not shown."""
        try:
            way = await self._access.session_route(key, newer=newer)
            self._check_address(way.path)
            way = way.with_ticket(self._ticket) if self._ticket else way
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
        if not (self._plain_path + "/").startswith(path):
            raise JobNotFound(
                f"This server cannot show the session: its URL is {path}, as it was launched.",
                hint="Open it on its local port (`jupyter slurm open`), or launch a session from this Jupyter server.",
                path=path,
            )
