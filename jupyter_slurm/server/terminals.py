"""Terminals of clusters in JupyterLab: start one, and a WebSocket in the protocol of Jupyter's own terminals.

The messages are lists (https://github.com/jupyter/terminado): ``["stdin", text]`` and ``["set_size", rows, columns]``
of the browser, and ``["setup", {}]``, ``["stdout", text]`` and ``["disconnect", exit_code]`` of the server. The agent
carries the terminal; a connection that breaks is made again while the browser stays.
"""

# `authorized` is typed for plain functions only.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import JupyterHandler
from tornado import web
from tornado.iostream import StreamClosedError
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from jupyter_slurm.agent.api.schema import Operation
from jupyter_slurm.errors import AgentUnreachable, NotConnected, SlurmError, TransportError
from jupyter_slurm.retry_delays import RetryDelays
from jupyter_slurm.server.agent_access import AgentAccess
from jupyter_slurm.server.problem_handler import ProblemHandler

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["HANDLERS"]

_CLUSTER: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_COLUMNS, _ROWS = 80, 24  # until the browser sends its size
_PING_INTERVAL_S: Final = 30.0
_RETRY_DELAYS_S = 0.2, 10.0  # seconds between two attempts to attach: first, and longest
_RECEIVED_BYTES: Final = 1 << 16
_RESET: Final = "\x1bc"  # the output so far comes once more
_BROKEN_TEXT: Final = "\r\n[The connection broke. Attaching again…]"
_START_TERMINAL: Final = Operation(
    "startTerminal",
    "POST",
    "/terminals",
    parameters=(),
    body_schema={
        "type": "object",
        "additionalProperties": False,
        "required": ["job"],
        "properties": {
            "job": {"type": ["string", "null"], "pattern": "^[^\\x00-\\x20\\x7f-][^\\x00-\\x1f\\x7f]{0,199}$"},
            "host": {"type": "boolean"},
        },
    },
    needs_body=True,
    schemas={},
)


class TerminalsHandler(ProblemHandler):
    """The terminals of a cluster."""

    def initialize(self, access: AgentAccess) -> None:
        """Initialize the handler (Tornado's constructor)."""
        self._access = access

    @web.authenticated
    @authorized("execute")
    async def get(self, cluster: str) -> None:
        """Return the terminals that are open."""
        try:
            client = await self._access.client()
            found = await asyncio.to_thread(client.get, _path(cluster))
        except SlurmError as error:
            self.send_problem(error)
            return
        self.finish(json.dumps(found))

    @web.authenticated
    @authorized("execute")
    async def post(self, cluster: str) -> None:
        """Start a terminal on the login node, or inside a running job."""
        try:
            asked = _START_TERMINAL.read_body(self.request.body)
            client = await self._access.client()
            size: api.StartTerminalRequest = {"job": asked["job"], "columns": _COLUMNS, "rows": _ROWS}
            size["host"] = asked.get("host", False)
            made = await asyncio.to_thread(client.post, _path(cluster), json=size, timeout=None)
        except SlurmError as error:
            self.send_problem(error)
            return
        self.set_status(201)
        self.finish(json.dumps(made))


class TerminalSocketHandler(WebSocketHandler, JupyterHandler):
    """Viewer of a terminal, which stays after the viewer's end."""

    auth_resource = "jupyter-slurm"

    def initialize(self, access: AgentAccess) -> None:
        """Initialize the handler (Tornado's constructor)."""
        self._access = access
        self._task: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._size = _COLUMNS, _ROWS

    async def prepare(self) -> None:  # type: ignore[override]  # with the option of JupyterHandler's it has another form
        """Check that the user may run programs on this server."""
        await JupyterHandler.prepare(self, _redirect_to_login=False)
        if not (user := self.current_user):
            raise web.HTTPError(403)
        if not await ensure_async(self.authorizer.is_authorized(self, user, "execute", self.auth_resource)):
            raise web.HTTPError(403, "User is not authorized to execute on resource: jupyter-slurm.")

    @web.authenticated
    async def get(self, cluster: str, terminal: str) -> None:  # type: ignore[override]  # the decorator returns an awaitable
        """Open a WebSocket."""
        if not self.check_origin():
            raise web.HTTPError(403, "The request came from a page of another site.")
        await super().get(cluster, terminal)

    def check_origin(self, origin: str = "") -> bool:
        """Return whether a page of this server, or no page, sends the request."""
        return JupyterHandler.check_origin(self, origin)

    @property
    def ping_interval(self) -> float:
        """Return the seconds between two pings to a browser: proxies close silent connections."""
        return _PING_INTERVAL_S

    async def open(self, cluster: str, terminal: str) -> None:
        """Attach to the terminal."""
        self._task = asyncio.create_task(self._show(cluster, terminal))

    async def on_message(self, message: str | bytes) -> None:
        """Send input or a size to the terminal; the next message is read after its transmission."""
        from jupyter_slurm.client.clusters.terminal import input_frames, resize_frame

        self.settings.setdefault("last_activity_times", {})["jupyter-slurm"] = datetime.now(UTC)
        try:
            kind, *content = json.loads(message)
            if kind == "stdin":
                await self._send(input_frames(str(content[0]).encode("utf-8", "replace")))
            elif kind == "set_size":
                self._size = int(content[1]), int(content[0])
                await self._send(resize_frame(*self._size))
        except (ValueError, TypeError, IndexError, OverflowError):
            self.close(1003, "Not a message of a terminal.")  # RFC 6455, 7.4.1

    def on_close(self) -> None:
        """Detach; the terminal stays."""
        if self._task is not None:
            self._task.cancel()

    async def _send(self, frames: bytes) -> None:
        """Send frames. While the connection is broken, input is dropped."""
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.write(frames)
                await self._writer.drain()

    async def _tell(self, *message: object) -> None:
        with contextlib.suppress(StreamClosedError, WebSocketClosedError):
            await self.write_message(json.dumps(message))

    async def _show(self, cluster: str, terminal: str) -> None:
        """Show the terminal until its end; attach again when the connection breaks."""
        delays, clock = RetryDelays(*_RETRY_DELAYS_S), asyncio.get_running_loop().time
        is_told = False
        await self._tell("setup", {})
        while True:
            began = clock()
            try:
                code = await self._view(cluster, terminal)
            except (AgentUnreachable, NotConnected, OSError, TransportError) as error:
                if isinstance(error, SlurmError) and error.details.get("why") == "no-session":
                    await self._end(str(error), 1)
                    return
                if not is_told or clock() - began > _RETRY_DELAYS_S[1]:
                    await self._tell("stdout", _BROKEN_TEXT)
                is_told = True
                await asyncio.sleep(delays.next(lasted=clock() - began))
            except SlurmError as error:
                await self._end(error.message, 1)
                return
            else:
                text = "The terminal has ended." if code is None else f"The terminal has ended: exit code {code}."
                await self._end(text, code or 0)
                return

    async def _end(self, text: str, code: int) -> None:
        shown = "".join(c if c.isprintable() else " " for c in text)
        await self._tell("stdout", f"\r\n[{shown}]\r\n")
        await self._tell("disconnect", code)
        self.close()

    async def _view(self, cluster: str, terminal: str) -> int | None:
        """Return messages until the end of the terminal, and return its exit code, if it is known."""
        from jupyter_slurm.client.clusters.cluster import is_local_id
        from jupyter_slurm.client.clusters.terminal import FrameReader, exit_code, resize_frame

        client = await self._access.client()
        if not is_local_id(cluster):  # an agent that was started again does not know it
            await asyncio.to_thread(client.post, "/v1/clusters", json={"profile": cluster})
        told: api.TerminalSocket = await asyncio.to_thread(client.post, f"{_path(cluster)}/{terminal}/attach")
        reader, writer = await asyncio.open_unix_connection(told["socket"])
        frames, text = FrameReader(), codecs.getincrementaldecoder("utf-8")("replace")
        try:
            self._writer = writer
            await self._send(resize_frame(*self._size))
            begin = _RESET
            while data := await reader.read(_RECEIVED_BYTES):
                for kind, content in frames.feed(data):
                    if kind == b"x":
                        return exit_code(content)
                    await self._tell("stdout", begin + text.decode(content))
                    begin = ""
            raise ConnectionResetError("the connection broke")
        finally:
            self._writer = None
            writer.close()


def _path(cluster: str) -> str:
    return f"/v1/clusters/{quote(cluster, safe='')}/terminals"


HANDLERS: Final[list[tuple[str, Any]]] = [
    (rf"jupyter-slurm/api/server/clusters/({_CLUSTER})/terminals", TerminalsHandler),
    (rf"jupyter-slurm/api/server/clusters/({_CLUSTER})/terminals/websocket/([0-9a-f]{{8}})", TerminalSocketHandler),
]
"""The addresses of the handlers, below that of the server."""
