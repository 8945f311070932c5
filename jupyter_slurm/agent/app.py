"""The agent on Tornado's HTTP server: who may ask, what a request must look like, and how an answer travels.

What the answers are stands in :mod:`jupyter_slurm.agent.routes`. It stands on the server itself and not on Tornado's
``RequestHandler``: a cell waits for its answer, and half of what an exchange costs was spent there.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http.client import responses
from typing import Any
from urllib.parse import unquote_to_bytes

from tornado import httputil, web
from tornado.escape import parse_qs_bytes
from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream

from jupyter_slurm._version import __version__
from jupyter_slurm.agent.schema import Document, Operation
from jupyter_slurm.errors import SlurmError, UsageError
from jupyter_slurm.transport.peers import is_ours, peer_uid

__all__ = ["MAX_BODY", "AgentServer", "Call", "Exchange", "Gate", "Reply", "make_app", "problem"]

_log = logging.getLogger(__name__)

MAX_BODY = 16 * 1024 * 1024
"""Bytes of the largest request body: a cell, its options and an environment."""

# What may stand in line for Slurm and changes nothing of ours. Others go on without their client.
_ENDS_WITH_CLIENT = frozenset({"examineCluster", "getJob", "getOutput", "getScript", "runCommand"})

# Nothing of ours is to be kept by a cache or guessed at by a browser.
_HEADERS = {
    "Server": f"jupyter-slurm/{__version__}",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}

_HTTP_TITLES = {
    400: ("usage", "The request is malformed."),
    403: ("agent-refused", "The request is refused."),
    404: ("not-found", "There is nothing at this address."),
    405: ("method", "This address does not know that method."),
    413: ("too-large", f"The request body is larger than {MAX_BODY} bytes."),
    415: ("media-type", "The request body must be application/json."),
    421: ("agent-refused", "The request names another host."),
}


@dataclass(frozen=True)
class Call:
    """One request, read and checked."""

    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Any
    exchange: Exchange


@dataclass(frozen=True)
class Reply:
    """One answer. ``content``: JSON when a dict or list, else bytes; None when it was sent piece by piece."""

    content: Any
    status: int = 200
    media_type: str = "application/octet-stream"
    headers: Mapping[str, str] = field(default_factory=dict)


Answer = Callable[[Call], Awaitable[Reply]]


@dataclass(frozen=True)
class Gate:
    """Who may ask.

    No browser talks to the agent itself, so a request with an Origin is refused, and one for another host name (DNS
    rebinding) too.
    ``secret`` is empty on a Unix socket.
    """

    hosts: frozenset[str]
    secret: str = ""

    def check(self, headers: Mapping[str, str]) -> None:
        """Raise HTTPError 403 or 421 unless the request may pass."""
        if "Origin" in headers or "Sec-Fetch-Site" in headers:
            raise web.HTTPError(403, "a browser's request")
        if headers.get("Host", "").lower() not in self.hosts:
            raise web.HTTPError(421, "another host")
        given = headers.get("Authorization", "").encode("utf-8", "replace")
        if self.secret and not hmac.compare_digest(given, f"Bearer {self.secret}".encode()):
            raise web.HTTPError(403, "no secret or a wrong one")


class AgentServer(HTTPServer):
    """An HTTP server that answers its own user only: who is at the other end is asked before a byte is read."""

    gone: Callable[[object], None] = staticmethod(lambda stream: None)
    """Is told of every connection that has ended."""

    def handle_stream(self, stream: IOStream, address: Any) -> None:
        """Take over an accepted connection, or close it."""
        if is_ours(stream.socket):
            super().handle_stream(stream, address)
        else:
            uid = peer_uid(stream.socket)
            _log.log(logging.DEBUG if uid == -1 else logging.WARNING, "refused a connection of user %s", uid)
            stream.close()

    def on_close(self, server_conn: Any) -> None:
        """Hear that a connection has ended, and pass it on."""
        super().on_close(server_conn)
        self.gone(server_conn.stream)


def problem(error: BaseException) -> tuple[int, dict[str, Any]]:
    """Return status and problem document for whatever was raised; what we did not foresee shows no inside."""
    if isinstance(error, web.HTTPError):
        code, detail = _HTTP_TITLES.get(error.status_code, ("http", error.reason or "The request failed."))
        return error.status_code, {
            "type": f"urn:jupyter-slurm:error:{code}",
            "title": error.reason or detail,
            "status": error.status_code,
            "detail": detail,
            "hint": "GET /v1/openapi.yaml describes what is accepted.",
            "details": {},
        }
    if not isinstance(error, SlurmError):
        error = SlurmError(
            f"The agent met an error that it did not foresee ({type(error).__name__}).",
            hint="`jupyter slurm agent logs` shows it; please report it.",
        )
    return error.status, error.to_problem()


class Exchange(httputil.HTTPMessageDelegate):
    """One request and its answer."""

    def __init__(self, application: AgentApplication, connection: Any) -> None:
        self._application, self._connection = application, connection
        self._headers = httputil.HTTPHeaders(_HEADERS)
        self._body = bytearray()
        self._method = self._path = self._query = ""
        self._operations: Mapping[str, Operation] = {}
        self._values: Mapping[str, str] = {}
        self._has_read = self._has_begun = self._is_over = False
        self._serving: asyncio.Future[None] | None = None
        self._asking: asyncio.Future[Reply] | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def stream(self) -> IOStream:
        """The connection that it came by."""
        stream: IOStream = self._connection.stream
        return stream

    # What Tornado's connection calls ----------------------------------------------------------------------------

    def headers_received(
        self, start_line: httputil.RequestStartLine | httputil.ResponseStartLine, headers: httputil.HTTPHeaders
    ) -> None:
        """Refuse before the body is read."""
        assert isinstance(start_line, httputil.RequestStartLine)
        self._method = start_line.method
        self._path, _, self._query = start_line.path.partition("?")
        try:
            self._prepare(headers)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            self._fail(error)

    def data_received(self, chunk: bytes) -> None:
        """Collect the body, up to the limit; what goes beyond is refused when it has been read."""
        self._body += chunk[: MAX_BODY + 1 - len(self._body)]

    def finish(self) -> None:
        """Answer: the request is complete."""
        self._has_read = True
        self._connection.set_close_callback(self.on_connection_close)
        self._serving = asyncio.ensure_future(self._serve())

    def on_connection_close(self) -> None:
        """The client has gone: what it only asked for ends too."""
        self._resolve()
        if self._asking is not None:
            self._asking.cancel()

    # What an answer that comes piece by piece calls -------------------------------------------------------------

    def set_header(self, name: str, value: str) -> None:
        """Say something about the answer, before its first piece."""
        self._headers[name] = value

    async def send(self, piece: bytes) -> None:
        """Send a piece; it waits until it is out.

        Raises
        ------
        OSError
            The client has gone.
        """
        if self._has_begun:
            await self._connection.write(piece)
        else:
            await self._begin(200, piece)

    def end(self) -> None:
        """Say that it was the last piece."""
        self._is_over = True
        self._connection.finish()
        self._resolve()

    def disconnect(self) -> None:
        """Close the connection of a client that takes nothing."""
        self._is_over = True
        self._connection.detach().close()
        self._resolve()

    # Beneath ----------------------------------------------------------------------------------------------------

    def _prepare(self, headers: httputil.HTTPHeaders) -> None:
        application = self._application
        application.gate.check(headers)
        self._operations, self._values = application.route(self._path)
        application.on_request()
        operation = self._operations.get(self._method)
        if operation is None:
            raise web.HTTPError(405)
        self._operation = operation
        length = headers.get("Content-Length") or "0"
        if re.fullmatch("[0-9]+", length) is None:
            raise web.HTTPError(400)
        if headers.get("Transfer-Encoding") or int(length[:20]):
            media_type = headers.get("Content-Type", "").partition(";")[0].strip().lower()
            if operation.body_schema is not None and media_type != "application/json":
                raise web.HTTPError(415)
        if int(length[:20]) > MAX_BODY:
            raise web.HTTPError(413)

    async def _serve(self) -> None:
        try:
            reply = await self._reply()
            if reply is None or reply.content is None:
                return
            for name, value in reply.headers.items():
                self.set_header(name, value)
            if isinstance(reply.content, bytes):
                self._complete(reply.status, reply.media_type, reply.content)
            else:
                self._complete(reply.status, "application/json", json.dumps(reply.content).encode("ascii"))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            self._fail(error)

    async def _reply(self) -> Reply | None:
        if len(self._body) > MAX_BODY:
            raise web.HTTPError(413)
        operation = self._operation
        values = operation.read_path(self._values)
        if values is None:
            raise web.HTTPError(404)
        given = parse_qs_bytes(self._query, keep_blank_values=True) if self._query else {}
        query = {name: [_text(value) for value in values] for name, values in given.items()}
        body = operation.read_body(bytes(self._body)) if operation.body_schema is not None else None
        answer = self._application.answers[operation.operation_id](
            Call(values, operation.read_query(query), body, self)
        )
        if operation.operation_id not in _ENDS_WITH_CLIENT:
            return await answer
        self._asking = asyncio.ensure_future(answer)
        try:
            return await self._asking
        except asyncio.CancelledError:
            if self.closed.done():
                return None  # nobody is there any more to hear it
            raise

    def _fail(self, error: Exception) -> None:
        """Answer with a problem document; our own errors are answers, not accidents."""
        if not isinstance(error, (SlurmError, web.HTTPError)):
            _log.error("%s %s", self._method, self._path, exc_info=error)
        if self._has_begun:  # half an answer must not look like a whole one
            if not self._is_over:
                self.disconnect()
            return
        status, document = problem(error)
        if status == 405:
            self.set_header("Allow", ", ".join(sorted(self._operations)))
        if not self._has_read:  # Tornado then closes the connection, and does not say so
            self.set_header("Connection", "close")
        if "retry_after" in document["details"]:
            self.set_header("Retry-After", str(document["details"]["retry_after"]))
        self._complete(status, "application/problem+json", json.dumps(document).encode("ascii"))

    def _complete(self, status: int, media_type: str, content: bytes) -> None:
        if not self.closed.done():
            self.set_header("Content-Type", media_type)
            self.set_header("Content-Length", str(len(content)))
            _ignore(self._begin(status, None if self._method == "HEAD" else content))
            self.end()
        level = logging.WARNING if status >= 500 else logging.DEBUG
        _log.log(level, "%s %s %d", self._method, self._path, status)

    def _begin(self, status: int, piece: bytes | None) -> asyncio.Future[None]:
        self._has_begun = True
        self.set_header("Date", httputil.format_timestamp(time.time()))
        start_line = httputil.ResponseStartLine("", status, responses.get(status, "Unknown"))
        written: asyncio.Future[None] = self._connection.write_headers(start_line, self._headers, piece)
        return written

    def _resolve(self) -> None:
        if not self.closed.done():
            self.closed.set_result(None)


class AgentApplication(httputil.HTTPServerConnectionDelegate):
    """The document's operations, each with the coroutine that answers it."""

    def __init__(
        self, document: Document, answers: Mapping[str, Answer], gate: Gate, on_request: Callable[[], None]
    ) -> None:
        self.answers, self.gate, self.on_request = answers, gate, on_request
        self._rules = [(re.compile(_as_regex(path)), operations) for path, operations in document.operations.items()]

    def start_request(self, server_conn: object, request_conn: httputil.HTTPConnection) -> Exchange:
        """Return what takes a new request."""
        return Exchange(self, request_conn)

    def route(self, path: str) -> tuple[Mapping[str, Operation], dict[str, str]]:
        """Return what there is at an address, and the values in it; HTTPError 404 or 400."""
        for rule, operations in self._rules:
            if (found := rule.fullmatch(path)) is not None:
                try:
                    values = {name: unquote_to_bytes(text).decode() for name, text in found.groupdict().items()}
                except UnicodeDecodeError:
                    raise web.HTTPError(400) from None
                return operations, values
        raise web.HTTPError(404)


def make_app(
    document: Document, answers: Mapping[str, Answer], gate: Gate, on_request: Callable[[], None] = lambda: None
) -> AgentApplication:
    """Return the application.

    Raises
    ------
    KeyError
        The document has an operation that nothing answers.
    """
    for operations in document.operations.values():
        for operation in operations.values():
            answers[operation.operation_id]
    return AgentApplication(document, answers, gate, on_request)


def _as_regex(path: str) -> str:
    parts = re.split(r"\{(\w+)\}", path)
    return "".join(f"(?P<{part}>[^/]+)" if index % 2 else re.escape(part) for index, part in enumerate(parts))


def _text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError("A query parameter is not UTF-8.", hint="Encode it as UTF-8.") from None


def _ignore(written: asyncio.Future[None]) -> None:
    """Let a write be: whoever has gone meanwhile does not want to know."""
    written.add_done_callback(lambda done: None if done.cancelled() else done.exception() and None)
