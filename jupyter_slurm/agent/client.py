"""What every front door uses to talk to the agent.

Importing this module costs next to nothing; httpx and the rest come with the first call.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from jupyter_slurm.errors import AgentError, AgentUnreachable, from_problem

if TYPE_CHECKING:
    import httpx

    from jupyter_slurm.agent.endpoint import Endpoint
    from jupyter_slurm.agent.forwarding import Forwarded
    from jupyter_slurm.config import Settings

__all__ = ["AgentClient"]

_T = TypeVar("_T")

_ANSWER_TIMEOUT = 120.0
# A stream gives a sign of life every 15 s (jupyter_slurm.agent.sse.HEARTBEAT); three missed ones are a broken link.
_STREAM_TIMEOUT = 50.0


@dataclass(frozen=True)
class _Link:
    """A connection to one agent, and what that said about itself."""

    endpoint: Endpoint
    http: httpx.Client
    info: dict[str, Any]


class AgentClient:
    """A connection to the agent of this user and machine. Thread safe, also after a fork.

    It finds the agent again, or starts a new one, when the old one has ended; a call that was under way is repeated
    where that is safe (GET, and POST that the agent makes idempotent), and raises AgentUnreachable otherwise.

    Every method raises what the agent's problem document stands for (a class of :mod:`jupyter_slurm.errors`).
    """

    def __init__(self, settings: Settings, *, start: bool = True) -> None:
        self.settings = settings
        self._start = start
        self._lock = threading.RLock()
        self._current: _Link | None = None
        self._pid = os.getpid()
        self._registered: dict[bytes, None] = {}

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
            There is none, or none could be started.
        AgentRefused
            What listens there is not ours, or speaks another version of the API.
        """
        if settings is None:
            from jupyter_slurm.config import load_settings

            settings = load_settings()
        client = cls(settings, start=start)
        client._link()
        return client

    @classmethod
    async def connect_in_server(cls, settings: Settings) -> AgentClient:
        """Connect from the Jupyter server: call it in the server's loop, which becomes the agent's where that is right.

        Call ``jupyter_slurm.agent.hosting.leave_server()`` when the server stops.
        """
        from jupyter_slurm.agent.hosting import enter_server

        enter_server()
        return await asyncio.to_thread(cls.connect, settings)

    @property
    def info(self) -> dict[str, Any]:
        """What the agent said about itself when we connected: version, api, capabilities, pid, host …"""
        return self._link().info

    def get(
        self, path: str, *, params: Mapping[str, Any] | None = None, timeout: float | None = _ANSWER_TIMEOUT
    ) -> Any:
        """GET a path ("/v1/…") and return the JSON answer. ``timeout`` in seconds."""
        return json.loads(self._call("GET", path, params=params, timeout=timeout).content)

    def post(
        self,
        path: str,
        *,
        json: Any = None,
        params: Mapping[str, Any] | None = None,
        timeout: float | None = _ANSWER_TIMEOUT,
        idempotent: bool | None = None,
    ) -> Any:
        """POST to a path ("/v1/…") and return the JSON answer.

        ``idempotent``: whether it may be sent again when the agent ended on the way; by default a submission (it has
        a key) and a registration may.
        """
        from jupyter_slurm.agent.link import encode

        content = encode({} if json is None else json)
        if idempotent is None:
            idempotent = path == "/v1/clusters" or path.endswith("/jobs")
        answer = self._call("POST", path, params=params, timeout=timeout, content=content, repeat=idempotent).json()
        if path == "/v1/clusters":
            self._registered[content] = None
        return answer

    def get_bytes(
        self, path: str, params: Mapping[str, Any] | None = None, *, timeout: float | None = _ANSWER_TIMEOUT
    ) -> tuple[bytes, int]:
        """GET bytes, and the size of the whole (``X-Total-Size``), or of the answer where there is none."""
        response = self._call("GET", path, params=params, timeout=timeout)
        return response.content, int(response.headers.get("X-Total-Size", len(response.content)))

    def stream(self, path: str, params: Mapping[str, Any] | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Receive server-sent events as (event, data), until the stream ends.

        Raises
        ------
        AgentUnreachable
            The link broke; what was received is valid, and the caller may ask again from there.
        """
        import httpx_sse

        from jupyter_slurm.agent.link import as_error, check_peer, exchange, timeouts

        http = self._link().http
        with (
            exchange(lambda: self._drop(http), "GET", path, _STREAM_TIMEOUT),
            http.stream(
                "GET", path, params=params, timeout=timeouts(_STREAM_TIMEOUT), extensions={"trace": check_peer}
            ) as response,
        ):
            if response.status_code >= 400:
                raise as_error(response.status_code, response.read())
            for event in httpx_sse.EventSource(response).iter_sse():
                yield _received(event.event, event.data)

    async def astream(
        self, path: str, params: Mapping[str, Any] | None = None
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Do the same in a loop."""
        import httpx_sse

        from jupyter_slurm.agent.link import as_error, async_client, check_peer_async, exchange, timeouts

        link = await asyncio.to_thread(self._link)
        with exchange(lambda: self._drop(link.http), "GET", path, _STREAM_TIMEOUT):
            async with (
                async_client(link.endpoint) as client,
                client.stream(
                    "GET",
                    path,
                    params=params,
                    timeout=timeouts(_STREAM_TIMEOUT),
                    extensions={"trace": check_peer_async},
                ) as response,
            ):
                if response.status_code >= 400:
                    raise as_error(response.status_code, await response.aread())
                async for event in httpx_sse.EventSource(response).aiter_sse():
                    yield _received(event.event, event.data)

    @asynccontextmanager
    async def forward(
        self, method: str, path: str, *, query: str = "", headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> AsyncIterator[Forwarded]:
        """Pass a request on as it is and stream the answer: what the server extension exposes is this and nothing else.

        ::

            async with client.forward("GET", "/v1/events", query="", headers=self.request.headers) as answer:
                self.set_status(answer.status)
                for name, value in answer.headers.items():
                    self.set_header(name, value)
                async for chunk in answer.chunks:
                    self.write(chunk)
                    await self.flush()

        Parameters
        ----------
        method : str
            Any; the agent knows which it has.
        path : str
            Percent-encoded as it came, beginning with ``/v1/``.
        query : str
            What stood after the question mark, as it came.
        headers : mapping
            Of these only Accept and Content-Type travel: no cookie, no token, no Origin, no Host.
        body : bytes
            As it came.

        Raises
        ------
        AgentUnreachable
            No agent answers and none could be started, or it ended on the way (also out of ``chunks``). Everything that
            the agent itself refuses is an answer with its status and problem document, not an exception.
        """
        from jupyter_slurm.agent.forwarding import forward

        async def once() -> Forwarded:
            link = await asyncio.to_thread(self._link)
            try:
                return await stack.enter_async_context(forward(link.endpoint, method, path, query, headers or {}, body))
            except AgentUnreachable:
                self._drop(link.http)
                raise

        async with AsyncExitStack() as stack:
            yield await self._again_async(once, repeat=method == "GET")

    def stop_agent(self, *, only_idle: bool = False) -> None:
        """Ask the agent to end and forget it; with ``only_idle`` an AgentError says what it holds."""
        self.post("/v1/agent/stop", json={"only_idle": only_idle})
        self.close()

    def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        with self._lock:
            link, self._current = self._current, None
        if link is not None:
            link.http.close()

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
        params: Mapping[str, Any] | None,
        timeout: float | None,
        content: bytes | None = None,
        repeat: bool = True,
    ) -> httpx.Response:
        from jupyter_slurm.agent.link import as_error

        def once() -> httpx.Response:
            http = self._link().http
            return self._exchange(http, method, path, params=params, timeout=timeout, content=content)

        response = self._again(once, repeat)
        if response.status_code >= 400:
            raise as_error(response.status_code, response.content)
        return response

    def _exchange(
        self,
        http: httpx.Client,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        timeout: float | None = _ANSWER_TIMEOUT,
        content: bytes | None = None,
    ) -> httpx.Response:
        from jupyter_slurm.agent.link import LinkLost, check_peer, exchange, timeouts

        try:
            with exchange(lambda: self._drop(http), method, path, timeout):
                return http.request(
                    method,
                    path,
                    params=params,
                    content=content,
                    headers=None if content is None else {"Content-Type": "application/json"},
                    timeout=timeouts(timeout),
                    extensions={"trace": check_peer},
                )
        except RuntimeError as error:  # another thread has just seen the agent end, and closed this client
            if not http.is_closed:
                raise
            raise LinkLost("The agent ended.", sent=False) from error

    @staticmethod
    def _again(call: Callable[[], _T], repeat: bool) -> _T:
        from tenacity import Retrying

        from jupyter_slurm.agent.link import repetition

        return Retrying(**repetition(repeat))(call)

    @staticmethod
    async def _again_async(call: Callable[[], Awaitable[_T]], repeat: bool) -> _T:
        from tenacity import AsyncRetrying

        from jupyter_slurm.agent.link import repetition

        return await AsyncRetrying(**repetition(repeat))(call)

    def _link(self) -> _Link:
        """Return the link to the agent that is there, finding or starting one if need be."""
        with self._lock:
            if self._pid != os.getpid():  # a fork: the connections belong to the parent
                self._current, self._pid = None, os.getpid()
            if self._current is None:
                self._current = self._again(lambda: self._handshake(may_retire=self._start), repeat=True)
            return self._current

    def _handshake(self, *, may_retire: bool) -> _Link:
        from jupyter_slurm.agent import launch
        from jupyter_slurm.agent.link import as_error, sync_client
        from jupyter_slurm.agent.versions import check_version, is_older

        endpoint = launch.find_or_start(self.settings) if self._start else launch.find(self.settings)
        if endpoint is None:
            raise AgentUnreachable(
                "No agent is running.", hint="It starts with the first magic or `jupyter slurm jobs`."
            )
        http = sync_client(endpoint)
        try:
            response = self._exchange(http, "GET", "/v1/agent", timeout=30.0)
            if response.status_code >= 400:
                raise as_error(response.status_code, response.content)
            link = _Link(endpoint, http, response.json())
            check_version(link.info)
            for body in self._registered:  # the clusters that we named are not on disk before their first job
                self._exchange(http, "POST", "/v1/clusters", content=body)
            has_left = may_retire and is_older(link.info["version"]) and self._retire(link)
        except BaseException:
            http.close()
            raise
        if not has_left:
            return link
        http.close()
        return self._handshake(may_retire=False)

    def _retire(self, link: _Link) -> bool:
        """Ask an older agent to make room; False when it holds something, and is used as it is."""
        from jupyter_slurm.agent import launch
        from jupyter_slurm.agent.link import encode

        body = encode({"only_idle": True})
        try:
            answer = self._exchange(link.http, "POST", "/v1/agent/stop", content=body, timeout=10.0)
        except AgentError:
            return True
        return answer.status_code == 202 and launch.has_left(link.endpoint)

    def _drop(self, http: httpx.Client) -> None:
        """Forget a client whose agent has ended, unless another thread has already found a new one."""
        with self._lock:
            if self._current is not None and self._current.http is http:
                self._current = None
        http.close()


def _received(event: str, data: str) -> tuple[str, dict[str, Any]]:
    value = json.loads(data)
    if event == "error":
        raise from_problem(value)
    return event, value
