"""Client through which every front end uses the agent.

The import costs almost nothing. Dependencies are imported by the first call, httpx only by a stream.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from jupyter_slurm.errors import AgentError, AgentUnreachable, from_problem

if TYPE_CHECKING:
    from jupyter_slurm.agent.client.http_client import HttpAnswer, HttpClient, HttpConnection, QueryParameters
    from jupyter_slurm.agent.client.request_forwarding import ForwardedAnswer
    from jupyter_slurm.agent.hosting.endpoint import Endpoint
    from jupyter_slurm.config import Settings
    from jupyter_slurm.domain import api_types as api

__all__ = ["AgentClient"]

_ANSWER_TIMEOUT_S = 120.0
# A stream sends a heartbeat every 15 s (agent.api.sse.HEARTBEAT_S); three missing ones mean a broken link.
_STREAM_TIMEOUT_S = 50.0
_REPEATABLE = ("/jobs", "/connect", "/disconnect")


@dataclass(frozen=True)
class _AgentConnection:
    """A connection to an agent, and the agent's information about itself."""

    endpoint: Endpoint
    wire: HttpClient
    info: api.Agent


class WaitLimits(Protocol):
    """Actions during a call without an answer."""

    def __call__(self) -> None:
        """Run the action; called every second or two."""

    def interrupted(self) -> KeyboardInterrupt:
        """Return the exception for an interrupted call."""
        ...


class AgentClient:
    """A connection to the agent of this user and machine. Thread safe, also after a fork.

    If the agent has ended, the client finds another agent, or starts one. An interrupted call is repeated if that is
    safe (GET, and POST that the agent makes idempotent), and raises AgentUnreachable otherwise.

    Every method raises the error of the agent's problem document (a class of :mod:`jupyter_slurm.errors`).

    Attributes
    ----------
    while_waiting : callable, optional
        Called with the path of each call; returns the action to run while the call has no answer.
    """

    def __init__(self, settings: Settings, *, start: bool = True) -> None:
        self.settings = settings
        self._start = start
        self._lock = threading.RLock()
        self._current: _AgentConnection | None = None
        self._pid = os.getpid()
        self._registered: dict[bytes, None] = {}
        self.create_wait_limits: Callable[[str], WaitLimits | None] | None = None

    @classmethod
    def connect(cls, settings: Settings | None = None, *, start: bool = True) -> AgentClient:
        """Find an agent, or start one, and agree on the version of the API.

        Parameters
        ----------
        settings : Settings, optional
            By default those of the configuration files.
        start : bool
            Start an agent if there is none, now and later.

        Raises
        ------
        AgentUnreachable
            No agent exists, or none could be started.
        AgentRefused
            The listener belongs to another user, or has another version of the API.
        """
        if settings is None:
            from jupyter_slurm.config import load_settings

            settings = load_settings()
        client = cls(settings, start=start)
        client._link()
        return client

    @classmethod
    async def connect_in_server(cls, settings: Settings) -> AgentClient:
        """Connect from the Jupyter server, in whose loop it must be called. The loop then hosts the agent if
        appropriate.

        Call ``jupyter_slurm.agent.hosting.agent_host.leave_server()`` when the server stops.
        """
        from jupyter_slurm.agent.hosting.agent_host import enter_server

        enter_server()
        return await asyncio.to_thread(cls.connect, settings)

    @property
    def info(self) -> api.Agent:
        """Return the agent's information at the time of connection: version, api, capabilities, pid, host …"""
        return self._link().info

    def get(
        self, path: str, *, params: QueryParameters | None = None, timeout: float | None = _ANSWER_TIMEOUT_S
    ) -> Any:
        """GET a path ("/v1/…") and return the JSON answer. ``timeout`` in seconds."""
        return self._call("GET", path, params=params, timeout=timeout).json()

    async def aget(self, path: str) -> Any:
        """GET a path in a loop and return the JSON answer."""
        from jupyter_slurm.agent.client.client_errors import as_error

        async with self.forward("GET", path) as answer:
            content = b"".join([chunk async for chunk in answer.chunks])
        if answer.status >= 400:
            raise as_error(answer.status, content)
        return json.loads(content)

    def post(
        self,
        path: str,
        *,
        json: Any = None,
        params: QueryParameters | None = None,
        timeout: float | None = _ANSWER_TIMEOUT_S,
        idempotent: bool | None = None,
    ) -> Any:
        """POST to a path ("/v1/…") and return the JSON answer.

        ``idempotent``: whether the call may be repeated if the agent ended meanwhile. By default a submission (which
        has a key), a registration and a login may.
        """
        from jupyter_slurm.agent.json_encoding import encode

        content = encode({} if json is None else json)
        if idempotent is None:
            idempotent = path == "/v1/clusters" or path.endswith(_REPEATABLE)
        answer = self._call("POST", path, params=params, timeout=timeout, content=content, repeat=idempotent).json()
        if path == "/v1/clusters":
            self._registered[content] = None
        return answer

    def post_events(self, path: str, json: Any) -> Iterator[tuple[str, Any]]:
        """POST to a path, and yield the server-sent events of the answer, in this thread.

        Only connecting is repeated, never the request.
        """
        from jupyter_slurm.agent.client.event_stream import post_events
        from jupyter_slurm.agent.client.repetition import call_repeatedly
        from jupyter_slurm.agent.json_encoding import encode

        return post_events(lambda: call_repeatedly(self._open_connection, False), path, encode(json))

    def get_bytes(
        self, path: str, params: QueryParameters | None = None, *, content: bytes | None = None
    ) -> tuple[bytes, int]:
        """GET bytes, or POST a question for them; return them and the total size (``X-Total-Size``), else their own."""
        method = "POST" if content else "GET"
        answer = self._call(method, path, params=params, timeout=_ANSWER_TIMEOUT_S, content=content)
        return answer.content, int(answer.headers.get("x-total-size", len(answer.content)))

    async def astream(self, path: str, params: QueryParameters | None = None) -> AsyncIterator[tuple[str, Any]]:
        """Receive server-sent events as (event, data), until the stream ends.

        Raises
        ------
        AgentUnreachable
            The link broke. The received events are valid, and the caller may continue after them.
        """
        from jupyter_slurm.agent.client.async_client import async_client, check_peer, exchange, timeouts
        from jupyter_slurm.agent.client.client_errors import as_error
        from jupyter_slurm.agent.client.event_parser import EventParser

        link = await asyncio.to_thread(self._link)
        with exchange(lambda: self._drop(link.wire), "GET", path, _STREAM_TIMEOUT_S):
            async with (
                async_client(link.endpoint) as client,
                client.stream(
                    "GET",
                    path,
                    params=params,
                    timeout=timeouts(_STREAM_TIMEOUT_S),
                    extensions={"trace": check_peer},
                ) as response,
            ):
                if response.status_code >= 400:
                    raise as_error(response.status_code, await response.aread())
                parser = EventParser()
                async for piece in response.aiter_bytes():
                    for event, data in parser.feed(piece):
                        yield _received(event, data)

    @asynccontextmanager
    async def forward(
        self, method: str, path: str, *, query: str = "", headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> AsyncIterator[ForwardedAnswer]:
        """Forward a request unchanged and stream the answer: the server extension exposes only this.

        ::

            async with client.forward("GET", "/v1/events", query="", headers=self.request.headers) as answer:
                async for chunk in answer.chunks:
                    self.write(chunk)

        Parameters
        ----------
        method : str
            Any method; the agent checks it.
        path : str
            Percent-encoded as received, beginning with ``/v1/``.
        query : str
            Text after the question mark, as received.
        headers : mapping
            Only Accept and Content-Type are forwarded: no cookie, no token, no Origin, no Host.
        body : bytes
            As received.

        Raises
        ------
        AgentUnreachable
            No agent answers and none could be started, or the agent ended meanwhile (also raised by ``chunks``). A
            refusal by the agent is an answer with its status and problem document, not an exception.
        """
        from jupyter_slurm.agent.client.repetition import call_repeatedly_async
        from jupyter_slurm.agent.client.request_forwarding import forward

        async def once() -> ForwardedAnswer:
            link = await asyncio.to_thread(self._link)
            try:
                return await stack.enter_async_context(forward(link.endpoint, method, path, query, headers or {}, body))
            except AgentUnreachable:
                self._drop(link.wire)
                raise

        async with AsyncExitStack() as stack:
            yield await call_repeatedly_async(once, method == "GET")

    def stop_agent(self, *, only_idle: bool = False) -> None:
        """Ask the agent to end, and forget it; with ``only_idle``, an AgentError lists the agent's remaining work."""
        self.post("/v1/agent/stop", json={"only_idle": only_idle})
        self.close()

    def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        with self._lock:
            link, self._current = self._current, None
        if link is not None:
            link.wire.close()

    def __enter__(self) -> AgentClient:
        """Close at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self.close()

    def _call(
        self,
        method: str,
        path: str,
        *,
        params: QueryParameters | None,
        timeout: float | None,
        content: bytes | None = None,
        repeat: bool = True,
    ) -> HttpAnswer:
        from jupyter_slurm.agent.client.client_errors import as_error
        from jupyter_slurm.agent.client.repetition import call_repeatedly

        asked: dict[str, object] = {"params": params, "timeout": timeout, "content": content}
        waits = None if self.create_wait_limits is None else self.create_wait_limits(path)
        if waits is not None:
            asked["on_wait"] = waits

        lost: list[AgentUnreachable] = []

        def once() -> HttpAnswer:
            return self._exchange(self._link().wire, method, path, lost, **asked)

        try:
            answer = call_repeatedly(once, repeat)
        except KeyboardInterrupt:
            if waits is None or method != "GET":
                raise  # the action has raised an exception, which says more
            raise waits.interrupted() from None
        if answer.status >= 400:
            raise as_error(answer.status, answer.content, is_repetition=bool(lost))
        return answer

    def _exchange(
        self, wire: HttpClient, method: str, path: str, lost: list[AgentUnreachable] | None = None, **asked: Any
    ) -> HttpAnswer:
        """Exchange a request and its answer; note in ``lost`` that an agent may have carried the request out."""
        from jupyter_slurm.agent.client.client_errors import LinkLost

        try:
            return wire.request(method, path, **asked)
        except LinkLost as error:
            if error.sent and lost is not None:
                lost.append(error)
            self._drop(wire)
            raise

    def _open_connection(self) -> HttpConnection:
        """Return a new connection to the agent, for one stream."""
        from jupyter_slurm.agent.client.client_errors import LinkLost

        wire = self._link().wire
        try:
            return wire.open_connection()
        except LinkLost:
            self._drop(wire)
            raise

    def _link(self) -> _AgentConnection:
        """Return the link to the existing agent; find or start one if necessary."""
        from jupyter_slurm.agent.client.repetition import call_repeatedly

        with self._lock:
            if self._pid != os.getpid():  # after a fork: the connections belong to the parent
                self._current, self._pid = None, os.getpid()
            if self._current is None:
                self._current = call_repeatedly(lambda: self._handshake(may_retire=self._start), True)
            return self._current

    def _handshake(self, *, may_retire: bool) -> _AgentConnection:
        from jupyter_slurm.agent.client.client_errors import as_error, show_warnings
        from jupyter_slurm.agent.client.http_client import HttpClient
        from jupyter_slurm.agent.hosting import launcher
        from jupyter_slurm.agent.hosting.discovery import check_version, is_older

        endpoint = launcher.find_or_start(self.settings) if self._start else launcher.find(self.settings)
        if endpoint is None:
            raise AgentUnreachable(
                "No agent is running.", hint="Use a magic, or run `jupyter slurm jobs`, to start it."
            )
        wire = HttpClient(endpoint)
        try:
            answer = self._exchange(wire, "GET", "/v1/agent", timeout=30.0)
            if answer.status >= 400:
                raise as_error(answer.status, answer.content)
            link = _AgentConnection(endpoint, wire, answer.json())
            check_version(link.info)
            for body in self._registered:  # registered clusters are not on disk before their first job
                self._exchange(wire, "POST", "/v1/clusters", content=body, timeout=_ANSWER_TIMEOUT_S)
            has_left = may_retire and is_older(link.info["version"]) and self._retire(link)
        except BaseException:
            wire.close()
            raise
        if not has_left:
            show_warnings(link.info)
            return link
        wire.close()
        return self._handshake(may_retire=False)

    def _retire(self, link: _AgentConnection) -> bool:
        """Ask an older agent to end; False if it still has work, and is used as it is."""
        from jupyter_slurm.agent.hosting import launcher
        from jupyter_slurm.agent.json_encoding import encode

        body = encode({"only_idle": True})
        try:
            answer = self._exchange(link.wire, "POST", "/v1/agent/stop", content=body, timeout=10.0)
        except AgentError:
            return True
        return answer.status == 202 and launcher.wait_ended(link.endpoint)

    def _drop(self, wire: HttpClient) -> None:
        """Forget a client whose agent has ended, unless another thread has already found a new agent."""
        with self._lock:
            if self._current is not None and self._current.wire is wire:
                self._current = None
        wire.close()


def _received(event: str, data: str) -> tuple[str, Any]:
    value = json.loads(data)
    if event == "error":
        raise from_problem(value)
    return event, value
