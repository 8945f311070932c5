"""HTTP application of the agent: access control, checks of requests, and forms of answers.

:mod:`jupyter_slurm.agent.api.routes` produces the answers, :mod:`jupyter_slurm.agent.api.http_server` sends them.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote_to_bytes

from jupyter_slurm._version import __version__
from jupyter_slurm.agent.api.http_server import Connection
from jupyter_slurm.agent.api.schema import Document, Operation
from jupyter_slurm.agent.json_encoding import MAX_BODY_BYTES, TOO_LARGE, encode, encode_in_slices
from jupyter_slurm.errors import SlurmError, UsageError

if TYPE_CHECKING:
    from jupyter_slurm.agent.api.schema import QueryValues
    from jupyter_slurm.errors import ProblemDocument

__all__ = ["MAX_BODY_BYTES", "AccessCheck", "Call", "Exchange", "HttpError", "Reply", "create_app", "problem"]

_log = logging.getLogger(__name__)

_DRAIN_FACTOR = 4  # times MAX_BODY: beyond this the connection is closed

# Operations that may wait for Slurm and change nothing in the agent, and one that continues by itself. Others continue
# after their client has gone.
_ENDS_WITH_CLIENT = frozenset(
    {"actOnJobs", "downloadFile", "examineCluster", "getJob", "getOutput", "getScript", "runCommand"}
)

# Caches must not store the answers, and browsers must not guess their types.
_HEADERS = {
    "Server": f"jupyter-slurm/{__version__}",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}

_TITLES = {
    400: ("usage", "The request is malformed."),
    403: ("agent-refused", "The request is refused."),
    404: ("not-found", "There is nothing at this address."),
    405: ("method", "This address does not know that method."),
    413: ("too-large", TOO_LARGE),
    415: ("media-type", "The request body must be application/json."),
    421: ("agent-refused", "The request names another host."),
}


class HttpError(Exception):
    """A request that cannot be answered, with its HTTP status, and words for the user instead of the usual ones."""

    def __init__(self, status: int, message: str = "", hint: str = "") -> None:
        super().__init__(f"HTTP {status}")
        self.status, self.message, self.hint = status, message, hint


@dataclass(frozen=True)
class Call:
    """A parsed and checked request."""

    path: Mapping[str, str]
    query: QueryValues
    body: Any
    exchange: Exchange


@dataclass(frozen=True)
class Reply:
    """An answer. ``content``: JSON if a dict or list, else bytes; None if the answer was streamed."""

    content: Any
    status: int = 200
    media_type: str = "application/octet-stream"
    headers: Mapping[str, str] = field(default_factory=dict)


Answer = Callable[[Call], Awaitable[Reply]]


@dataclass(frozen=True)
class AccessCheck:
    """Access control for requests.

    Browsers do not talk to the agent itself. So a request with an Origin is refused, and so is a request for another
    host name (DNS rebinding). ``secret`` is empty on a Unix socket.
    """

    hosts: frozenset[str]
    secret: str = ""

    def check(self, headers: Mapping[str, str]) -> None:
        """Raise HttpError 403 or 421 unless the request is allowed; names of headers are in lower case."""
        if "origin" in headers or "sec-fetch-site" in headers:
            raise HttpError(403)
        if headers.get("host", "").lower() not in self.hosts:
            raise HttpError(421)
        given = headers.get("authorization", "").encode("utf-8", "replace")
        if self.secret and not hmac.compare_digest(given, f"Bearer {self.secret}".encode()):
            raise HttpError(403)


def problem(error: BaseException) -> tuple[int, ProblemDocument]:
    """Return status and problem document for an exception; an unexpected exception shows no internals."""
    if isinstance(error, HttpError):
        code, detail = _TITLES[error.status]
        return error.status, {
            "type": f"urn:jupyter-slurm:error:{code}",
            "title": detail,
            "status": error.status,
            "detail": error.message or detail,
            "hint": error.hint or "GET /v1/openapi.yaml describes what is accepted.",
            "details": {},
        }
    if not isinstance(error, SlurmError):
        error = SlurmError(
            f"The agent met an unexpected error ({type(error).__name__}).",
            hint="See `jupyter slurm agent logs`, and report the error.",
        )
    return error.status, error.to_problem()


class Exchange:
    """A request and its answer."""

    def __init__(self, application: AgentApplication, connection: Connection) -> None:
        self.connection = connection
        self._application = application
        self._headers = dict(_HEADERS)
        self._body, self._size = bytearray(), 0
        self._method = self._path = self._query = ""
        self._operations: Mapping[str, Operation] = {}
        self._values: Mapping[str, str] = {}
        self._has_started = self._is_over = False
        self._serving: asyncio.Future[None] | None = None
        self._answer_task: asyncio.Future[Reply] | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # Called by the connection -----------------------------------------------------------------------------------

    def headers_received(self, method: str, target: str, headers: Mapping[str, str]) -> None:
        """Refuse a request before its body is read."""
        self._method = method
        self._path, _, self._query = target.partition("?")
        try:
            self._prepare(headers)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            self._fail(error)

    def data_received(self, chunk: bytes) -> None:
        """Collect the body up to the limit. A larger body is refused at its end, or at once if far too large."""
        self._body += chunk[: MAX_BODY_BYTES + 1 - len(self._body)]
        self._size += len(chunk)
        if self._size > _DRAIN_FACTOR * MAX_BODY_BYTES:
            self.disconnect()

    def finish(self) -> None:
        """Answer the complete request."""
        self._serving = asyncio.ensure_future(self._serve())

    def refuse(self) -> None:
        """Answer input that is not HTTP."""
        self._fail(HttpError(400))

    def on_connection_close(self) -> None:
        """Cancel the operation if it only reads, because the client has gone."""
        self._resolve()
        if self._answer_task is not None:
            self._answer_task.cancel()

    # Called by a streamed answer --------------------------------------------------------------------------------

    def set_header(self, name: str, value: str) -> None:
        """Set a header of the answer, before its first piece."""
        self._headers[name] = value

    @property
    def is_started(self) -> bool:
        """Return whether a piece of a streamed answer was sent."""
        return self._has_started

    async def send(self, piece: bytes) -> None:
        """Send a piece, and wait until it is written.

        Raises
        ------
        OSError
            The client has gone.
        """
        self._has_started = True
        await self.connection.send(self._headers, piece)

    def end(self) -> None:
        """End the streamed answer."""
        self._is_over = True
        self.connection.end()
        self._resolve()

    def disconnect(self) -> None:
        """Close the connection of a client that reads nothing."""
        self._is_over = True
        self.connection.disconnect()
        self._resolve()

    # Internal ---------------------------------------------------------------------------------------------------

    def _prepare(self, headers: Mapping[str, str]) -> None:
        application = self._application
        application.gate.check(headers)
        self._operations, self._values = application.route(self._path)
        application.on_request()
        operation = self._operations.get(self._method)
        if operation is None:
            raise HttpError(405)
        self._operation = operation
        length = headers.get("content-length") or "0"
        if re.fullmatch("[0-9]+", length) is None:
            raise HttpError(400)
        if headers.get("transfer-encoding") or int(length[:20]):
            media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
            if operation.body_schema is not None and media_type != "application/json":
                raise HttpError(415)
        if int(length[:20]) > MAX_BODY_BYTES:
            raise HttpError(413)

    async def _serve(self) -> None:
        try:
            reply = await self._reply()
            if reply is None or reply.content is None:
                return
            self._headers.update(reply.headers)
            if isinstance(reply.content, bytes):
                self._complete(reply.status, reply.media_type, reply.content)
            else:
                self._complete(reply.status, "application/json", await encode_in_slices(reply.content))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            self._fail(error)

    async def _reply(self) -> Reply | None:
        if len(self._body) > MAX_BODY_BYTES:
            raise HttpError(413)
        operation = self._operation
        values = self._values
        if (name := operation.find_invalid(values)) is not None:
            from jupyter_slurm.agent.api.value_words import missing_words  # rarely used

            raise HttpError(404, *missing_words(name, values[name]))
        query = _read_query(self._query) if self._query else {}
        body = operation.read_body(bytes(self._body)) if operation.body_schema is not None else None
        answer = self._application.answers[operation.operation_id](
            Call(values, operation.read_query(query), body, self)
        )
        if operation.operation_id not in _ENDS_WITH_CLIENT:
            return await answer
        self._answer_task = asyncio.ensure_future(answer)
        try:
            return await self._answer_task
        except asyncio.CancelledError:
            if self.closed.done():
                return None  # the client has gone
            raise

    def _fail(self, error: Exception) -> None:
        """Answer with a problem document; expected errors are answers, and are not logged as failures."""
        if not isinstance(error, (SlurmError, HttpError)):
            _log.error("%s %s", self._method, self._path, exc_info=error)
        if self._has_started:  # an incomplete answer must not look complete
            if not self._is_over:
                self.disconnect()
            return
        status, document = problem(error)
        if status == 405:
            self.set_header("Allow", ", ".join(sorted(self._operations)))
        if "retry_after" in document["details"]:
            self.set_header("Retry-After", str(document["details"]["retry_after"]))
        self._complete(status, "application/problem+json", encode(document))

    def _complete(self, status: int, media_type: str, content: bytes) -> None:
        if not self.closed.done():
            self.set_header("Content-Type", media_type)
            self.set_header("Content-Length", str(len(content)))
            self._has_started = self._is_over = True
            self.connection.answer(status, self._headers, None if self._method == "HEAD" else content)
            self._resolve()
        level = logging.WARNING if status >= 500 else logging.DEBUG
        _log.log(level, "%s %s %d", self._method, self._path, status)

    def _resolve(self) -> None:
        if not self.closed.done():
            self.closed.set_result(None)


class AgentApplication:
    """The document's operations, each with its coroutine."""

    def __init__(
        self, document: Document, answers: Mapping[str, Answer], gate: AccessCheck, on_request: Callable[[], None]
    ) -> None:
        self.answers, self.gate, self.on_request = answers, gate, on_request
        # By the number of parts of the path. Patterns would take a twentieth of the agent's start.
        self._rules: dict[int, list[tuple[Sequence[str], Mapping[str, Operation]]]] = {}
        for path, operations in document.operations.items():
            parts = path.split("/")
            self._rules.setdefault(len(parts), []).append((parts, operations))

    def create_exchange(self, connection: Connection) -> Exchange:
        """Return the handler of a new request."""
        return Exchange(self, connection)

    def route(self, path: str) -> tuple[Mapping[str, Operation], dict[str, str]]:
        """Return the operations at a path, and the values in the path; HttpError 404 or 400."""
        given = path.split("/")
        for parts, operations in self._rules.get(len(given), ()):
            if (found := _path_values(parts, given)) is not None:
                try:
                    values = {name: unquote_to_bytes(text).decode() for name, text in found.items()}
                except UnicodeDecodeError:
                    raise HttpError(400) from None
                return operations, values
        raise HttpError(404)


def create_app(
    document: Document, answers: Mapping[str, Answer], gate: AccessCheck, on_request: Callable[[], None] = lambda: None
) -> AgentApplication:
    """Return the application.

    Raises
    ------
    KeyError
        The document has an operation without an answer.
    """
    for operations in document.operations.values():
        for operation in operations.values():
            answers[operation.operation_id]
    return AgentApplication(document, answers, gate, on_request)


def _path_values(parts: Sequence[str], given: Sequence[str]) -> dict[str, str] | None:
    """Return the values of the ``{names}`` among the parts of a path; None if another part differs."""
    values = {}
    for part, text in zip(parts, given, strict=True):
        if part.startswith("{") and text:
            values[part[1:-1]] = text
        elif part != text:
            return None
    return values


def _read_query(text: str) -> dict[str, list[str]]:
    try:
        return parse_qs(text, keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise UsageError("A query parameter is not UTF-8 text.", hint="Encode it as UTF-8.") from None
    except ValueError:  # more fields than any client sends
        raise HttpError(400) from None
