"""The Tornado application: who may ask, what a request must look like, and how an answer travels.

What the answers are stands in :mod:`jupyter_slurm.agent.routes`.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tornado import web
from tornado.escape import json_encode
from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream

from jupyter_slurm._version import __version__
from jupyter_slurm.agent.schema import Document, Operation
from jupyter_slurm.errors import SlurmError, UsageError
from jupyter_slurm.transport.peers import is_ours, peer_uid

__all__ = ["MAX_BODY", "AgentServer", "Call", "Gate", "Reply", "make_app", "problem"]

_log = logging.getLogger(__name__)

MAX_BODY = 16 * 1024 * 1024
"""Bytes of the largest request body: a cell, its options and an environment."""

# What may stand in line for Slurm and changes nothing of ours. Others go on without their client.
_ENDS_WITH_CLIENT = frozenset({"getJob", "getOutput", "getScript", "runCommand"})

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
    handler: OperationHandler


@dataclass(frozen=True)
class Reply:
    """One answer. ``content``: JSON when a dict or list, else bytes; None when the handler has already written."""

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

    def handle_stream(self, stream: IOStream, address: Any) -> None:
        """Take over an accepted connection, or close it."""
        if is_ours(stream.socket):
            super().handle_stream(stream, address)
        else:
            uid = peer_uid(stream.socket)
            _log.log(logging.DEBUG if uid == -1 else logging.WARNING, "refused a connection of user %s", uid)
            stream.close()


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


@web.stream_request_body
class OperationHandler(web.RequestHandler):
    """All methods of one path."""

    application: AgentApplication

    def initialize(self, operations: Mapping[str, Operation]) -> None:
        """Tornado's constructor."""
        self._operations = operations
        self._body = bytearray()
        self._has_read = False
        self._asking: asyncio.Future[Reply] | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def set_default_headers(self) -> None:
        """Nothing of ours is to be kept by a cache or guessed at by a browser."""
        self.set_header("Server", f"jupyter-slurm/{__version__}")
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")

    def compute_etag(self) -> None:
        """Nothing is cached, so nothing needs a hash."""

    def prepare(self) -> None:
        """Refuse before the body is read."""
        self.application.gate.check(self.request.headers)
        self.application.on_request()
        operation = self._operations.get(self.request.method or "")
        if operation is None:
            raise web.HTTPError(405)
        self._operation = operation
        length = self.request.headers.get("Content-Length") or "0"
        if re.fullmatch("[0-9]+", length) is None:
            raise web.HTTPError(400)
        if self.request.headers.get("Transfer-Encoding") or int(length[:20]):
            media_type = self.request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            if operation.body_schema is not None and media_type != "application/json":
                raise web.HTTPError(415)
        if int(length[:20]) > MAX_BODY:
            raise web.HTTPError(413)

    def data_received(self, chunk: bytes) -> None:
        """Collect the body, up to the limit; what goes beyond is refused when it has been read."""
        self._body += chunk[: MAX_BODY + 1 - len(self._body)]

    async def _serve(self, **path: str) -> None:
        self._has_read = True
        if len(self._body) > MAX_BODY:
            raise web.HTTPError(413)
        values = self._operation.read_path(path)
        if values is None:
            raise web.HTTPError(404)
        query = {name: [_text(value) for value in given] for name, given in self.request.query_arguments.items()}
        body = self._operation.read_body(bytes(self._body)) if self._operation.body_schema is not None else None
        call = Call(values, self._operation.read_query(query), body, self)
        reply = await self._answer(call)
        if reply is None or reply.content is None:
            return
        self.set_status(reply.status)
        for name, value in reply.headers.items():
            self.set_header(name, value)
        if isinstance(reply.content, bytes):
            self.set_header("Content-Type", reply.media_type)
            self.finish(reply.content)
        else:
            self.set_header("Content-Type", "application/json")
            self.finish(json_encode(reply.content))

    async def _answer(self, call: Call) -> Reply | None:
        """Return the answer; None when nobody is there any more to hear it."""
        name = self._operation.operation_id
        answer = self.application.answers[name](call)
        if name not in _ENDS_WITH_CLIENT:
            return await answer
        self._asking = asyncio.ensure_future(answer)
        try:
            return await self._asking
        except asyncio.CancelledError:
            if self.closed.done():
                return None
            raise

    get = post = put = patch = delete = head = options = _serve

    def on_connection_close(self) -> None:
        """The client has gone: what it only asked for ends too."""
        self._resolve()
        if self._asking is not None:
            self._asking.cancel()

    def on_finish(self) -> None:
        """The answer is complete."""
        self._resolve()

    def disconnect(self) -> None:
        """Close the connection of a client that takes nothing."""
        self.detach().close()
        self._resolve()

    def _resolve(self) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer with a problem document."""
        error = kwargs["exc_info"][1] if "exc_info" in kwargs else web.HTTPError(status_code)
        status, document = problem(error)
        self.set_status(status)
        if status == 405:
            self.set_header("Allow", ", ".join(sorted(self._operations)))
        if not self._has_read:  # Tornado then closes the connection, and does not say so
            self.set_header("Connection", "close")
        if "retry_after" in document["details"]:
            self.set_header("Retry-After", str(document["details"]["retry_after"]))
        self.set_header("Content-Type", "application/problem+json")
        self.finish(json_encode(document))

    def log_exception(self, typ: Any, value: BaseException | None, tb: Any) -> None:
        """Our own errors are answers, not accidents; addresses are logged without their query."""
        if not isinstance(value, (SlurmError, web.HTTPError, asyncio.CancelledError)):
            _log.error("%s %s", self.request.method, self.request.path, exc_info=(typ, value, tb))  # type: ignore[arg-type]


class NowhereHandler(OperationHandler):
    """Every other address."""

    def prepare(self) -> None:
        """Refuse strangers, then say that there is nothing."""
        self.application.gate.check(self.request.headers)
        raise web.HTTPError(404)


class AgentApplication(web.Application):
    """The document's operations, each with the coroutine that answers it."""

    def __init__(
        self, document: Document, answers: Mapping[str, Answer], gate: Gate, on_request: Callable[[], None]
    ) -> None:
        self.answers, self.gate, self.on_request = answers, gate, on_request
        rules = [
            (_as_regex(path), OperationHandler, {"operations": operations})
            for path, operations in document.operations.items()
        ]
        super().__init__(
            rules,
            default_handler_class=NowhereHandler,
            default_handler_args={"operations": {}},
            log_function=_log_request,
        )


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


def _log_request(handler: web.RequestHandler) -> None:
    level = logging.WARNING if handler.get_status() >= 500 else logging.DEBUG
    request = handler.request
    _log.log(
        level, "%s %s %d %.0f ms", request.method, request.path, handler.get_status(), 1000 * request.request_time()
    )
