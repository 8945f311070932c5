"""Handler of the API: Jupyter authorizes, the agent answers. Bytes pass unchanged."""

# `authorized` is typed for plain functions only.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import asyncio
import json
import os
import posixpath
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from jupyter_server.auth.decorator import authorized
from jupyter_server.utils import url_path_join
from tornado import web
from tornado.iostream import StreamClosedError

from jupyter_slurm.agent.api.schema import Operation
from jupyter_slurm.agent.json_encoding import MAX_BODY_BYTES, TOO_LARGE
from jupyter_slurm.client.event_loop import cancel_reader
from jupyter_slurm.errors import SlurmError, UsageError
from jupyter_slurm.server.agent_access import AgentAccess
from jupyter_slurm.server.allowed_paths import ApiPath, find_address, fits_sessions
from jupyter_slurm.server.problem_handler import ProblemHandler

if TYPE_CHECKING:
    from jupyter_slurm.agent.client.agent_client import AgentClient
    from jupyter_slurm.client.clusters.cluster import Cluster
    from jupyter_slurm.domain import api_types as api

__all__ = ["AgentHandler", "completed", "surrounded"]

_API = "jupyter-slurm/api"


@web.stream_request_body
class AgentHandler(ProblemHandler):
    """Forwards a request to the agent, and its answer to the client.

    Each verb is a method of its own: ``authorized`` remembers the action of the first request to a function. With one
    function for two verbs, a user who may read could also write.
    """

    def initialize(self, access: AgentAccess) -> None:
        """Initialize the handler (Tornado's constructor)."""
        self._access = access
        self._task: asyncio.Future[None] | None = None
        self._body, self._size, self._is_whole = bytearray(), 0, False
        # A tab that shows jobs is not user activity: it must not keep a hub from ending an idle server.
        self._track_activity = self.request.method not in ("GET", "HEAD")

    @web.authenticated
    @authorized("read")
    async def get(self) -> None:
        """Forward a query."""
        await self._forward()

    @web.authenticated
    @authorized("read")
    async def head(self) -> None:
        """Forward a query for the headers."""
        await self._forward()

    @web.authenticated
    @authorized("write")
    async def post(self) -> None:
        """Forward a submission, a cancellation or a command."""
        await self._forward()

    @web.authenticated
    @authorized("write")
    async def put(self) -> None:
        """Forward a request that the present API lacks; the agent refuses it."""
        await self._forward()

    @web.authenticated
    @authorized("write")
    async def patch(self) -> None:
        """Forward a request that the present API lacks; the agent refuses it."""
        await self._forward()

    @web.authenticated
    @authorized("write")
    async def delete(self) -> None:
        """Forward a request that the present API lacks; the agent refuses it."""
        await self._forward()

    @web.authenticated
    @authorized("read")
    async def options(self) -> None:  # type: ignore[override]  # theirs lets anybody in
        """Answer a preflight request: other origins get no permissions."""
        await self._forward()

    def data_received(self, chunk: bytes) -> None:
        """Collect the body up to the limit of the API; Jupyter's own limit is many times larger."""
        self._size += len(chunk)
        self._body += chunk[: MAX_BODY_BYTES - len(self._body)]

    def on_connection_close(self) -> None:
        """End the request to the agent after a disconnection of the browser."""
        if self._task is not None:
            cancel_reader(self._task)
        super().on_connection_close()

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer with a problem document."""
        if not self._is_whole:  # Tornado closes a connection with an unread body
            self.set_header("Connection", "close")
        super().write_error(status_code, **kwargs)

    async def _forward(self) -> None:
        self._is_whole = True
        address = find_address(self._access.document(), self._api_path())
        if address is None:
            raise web.HTTPError(404, "This URL does not exist.")
        # A separate task can be cancelled; a cancelled task of Tornado is logged as a failure.
        self._task = asyncio.ensure_future(self._pass_on(address))
        await asyncio.wait({self._task})
        try:
            self._task.result()
        except (asyncio.CancelledError, StreamClosedError):
            return  # the client has disconnected
        except SlurmError as error:
            self.send_problem(error)

    def _api_path(self) -> str:
        prefix = url_path_join(self.base_url, _API)
        path = self.request.path
        return path.removeprefix(prefix) if path.startswith(prefix + "/") else ""

    async def _pass_on(self, address: ApiPath) -> None:
        method = self.request.method or ""
        operation = address.operations.get(method)
        body = b"" if operation is None else self._read(operation)
        if operation is not None and operation.operation_id == "listClusters":
            await self._access.register()
        client = await self._access.client()
        if operation is not None and operation.operation_id in ("launchSession", "resubmitJob", "submitJob"):
            body = await self._completed(client, address, operation, body)
        query = address.query(method, self.request.query_arguments)
        headers = dict(self.request.headers)
        async with client.forward(method, address.path, query=query, headers=headers, body=body) as answer:
            self.set_status(answer.status)
            for name, value in answer.headers.items():
                self.set_header(name, value)
            self.set_header("X-Accel-Buffering", "no")  # a proxy in front of Jupyter must not delay events
            await self.flush()  # the client of an event stream needs the headers before the first event
            async for chunk in answer.chunks:
                self.write(chunk)
                await self.flush()
        await self.finish(set_content_type=answer.headers.get("content-type", "application/octet-stream"))

    def _read(self, operation: Operation) -> bytes:
        """Return the validated body: a body that is not valid or too large does not reach the agent."""
        if self._size > MAX_BODY_BYTES:
            raise web.HTTPError(413, TOO_LARGE)
        if operation.body_schema is None:
            return b""
        operation.read_body(bytes(self._body))
        return bytes(self._body)

    async def _completed(self, client: AgentClient, address: ApiPath, operation: Operation, body: bytes) -> bytes:
        """Add the fields that a browser cannot know to a request; a session is then shown below this server."""
        # Needed by a notebook, not by a server that shows jobs.

        cluster, folder = unquote(address.path.split("/")[3]), self.settings.get("server_root_dir") or "."
        asked = json.loads(body)
        if operation.operation_id == "launchSession":
            asked = await completed(client, cluster, asked, base_url=self.base_url, folder=folder)
        else:
            # The panel gives the path of a script: below the root folder, or absolute on the cluster. The job starts in
            # the folder of the script.
            below, name = posixpath.split(str(asked.get("script_name") or ""))
            on_cluster = below if below.startswith("/") else None
            if below:
                asked = {**asked, "script_name": name}
            if below and on_cluster is None:
                folder = os.path.join(folder, below)
                _check_folder(folder, below)
            if below or operation.operation_id == "resubmitJob":
                asked = await surrounded(client, cluster, asked, folder=folder, cwd=on_cluster)
        return json.dumps(asked).encode("ascii")

    def send_problem(self, error: SlurmError) -> None:
        """Answer with an error; a started answer is aborted, so that a part does not look complete."""
        if self._headers_written:
            self.request.connection.stream.close()  # type: ignore[union-attr]
        else:
            super().send_problem(error)


async def completed(
    client: AgentClient, cluster: str, requested: api.Launch, *, base_url: str, folder: str
) -> api.Launch:
    """Return a launch with the missing fields, as a notebook of this server would send it.

    Parameters
    ----------
    client : AgentClient
        Client of the agent.
    cluster : str
        Cluster of the session.
    requested : mapping
        The API's ``Launch``.
    base_url, folder : str
        Of this server: the session is shown below the URL, and starts in the folder unless its cluster is remote.
    """
    from jupyter_slurm.client.submission.submit import python_named

    told: api.Launch = {**requested}
    if not told.get("prefix") and fits_sessions(base_url):
        told["prefix"] = base_url
    if "context" in told and (told.get("python") or told.get("default_python")):
        return told
    there = await _place(client, cluster)
    if "context" not in told:
        told["context"] = _context(there, folder)
    if not told.get("python") and not told.get("default_python"):
        python = await asyncio.to_thread(python_named, None, there)  # it may ask the agent, which may run in this loop
        told["default_python" if told.get("env") else "python"] = python
    return told


def _check_folder(folder: str, name: str) -> None:
    if not os.path.isdir(os.path.expanduser(folder)):
        raise UsageError(f"The folder {name} does not exist.", hint="Choose a script of the file browser.")


async def surrounded(
    client: AgentClient, cluster: str, requested: Mapping[str, object], *, folder: str, cwd: str | None = None
) -> dict[str, object]:
    """Return a request with the context of a notebook of this server, unless it has a context.

    Parameters
    ----------
    client : AgentClient
        Client of the agent.
    cluster : str
        Cluster of the job.
    requested : mapping
        The request.
    folder : str
        Folder of this computer in which the job starts unless its cluster is remote.
    cwd : str, optional
        Absolute path of a directory of the cluster in which the job starts instead.
    """
    if "context" in requested:
        return dict(requested)
    around = _context(await _place(client, cluster), folder)
    return {**requested, "context": around if cwd is None else {**around, "cwd": cwd}}


async def _place(client: AgentClient, cluster: str) -> Cluster:
    from jupyter_slurm.client.clusters.cluster import Cluster  # not at the start of the server, which a user awaits

    known = await client.aget(f"/v1/clusters/{quote(cluster, safe='')}")
    is_remote = known.get("connection") is not None
    return Cluster(client, cluster, is_remote=is_remote, python=str(known.get("python") or "python3"))


def _context(cluster: Cluster, folder: str) -> api.Context:
    """Return the context of a notebook in the server's root folder, in Jupyter's notation."""
    from jupyter_slurm.client.clusters.cluster import context

    around, path = context(cluster), os.path.abspath(os.path.expanduser(folder))
    if not cluster.is_remote and os.path.isdir(path):
        around["cwd"] = path
    return around
