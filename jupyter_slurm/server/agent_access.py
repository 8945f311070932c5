"""Access of the server to the agent: one connection, made at first use."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from traitlets.config import Config

from jupyter_slurm.client.event_loop import cancel_reader
from jupyter_slurm.errors import JobNotFound, SlurmError
from jupyter_slurm.retry_delays import RetryDelays
from jupyter_slurm.server.session_route import SessionRoute

if TYPE_CHECKING:
    from jupyter_slurm.agent.api.schema import Document
    from jupyter_slurm.agent.client.agent_client import AgentClient
    from jupyter_slurm.config import Settings

__all__ = ["AgentAccess"]

_log = logging.getLogger(__name__)

_RETRY_DELAYS_S = 0.2, 30.0  # seconds between two attempts to connect to the event stream: first, and longest
_MAX_ROUTE_AGE_S = 1.0  # seconds for which a route is used again: JupyterLab loads a hundred files within a few


class AgentAccess:
    """Connects to the agent for all requests of a Jupyter server.

    Parameters
    ----------
    config : traitlets Config
        Configuration of the Jupyter server; it overrides jupyter_slurm's own files.
    on_event : callable
        Receives the agent's events, ``told(event, data)``, from the first use on, and those of each later agent.
    """

    def __init__(self, config: Config, on_event: Callable[[str, Any], None]) -> None:
        self._config, self._on_event = config, on_event
        self._following: asyncio.Task[None] | None = None
        self._session_request = asyncio.Event()
        self._connecting = asyncio.Lock()
        self._client: AgentClient | None = None
        self._document: Document | None = None
        self._routes: dict[str, tuple[float, SessionRoute]] = {}  # time of the agent's answer, and the route, by key
        self._is_closed = False

    def document(self) -> Document:
        """Return the API document; requests outside it are not forwarded."""
        if self._document is None:
            from jupyter_slurm.agent.api.schema import load_document

            self._document = load_document()
        return self._document

    async def client(self) -> AgentClient:
        """Return the client of an agent, which is found or started.

        Raises
        ------
        AgentError
            No agent is running, and none could be started.
        ConfigError
            A configuration file cannot be read.
        """
        from jupyter_slurm.agent.client.agent_client import AgentClient
        from jupyter_slurm.config import load_settings

        async with self._connecting:
            if self._client is None:
                settings = load_settings(self._config)
                self._client = await AgentClient.connect_in_server(settings)
                self._following = asyncio.create_task(self._follow(settings), name="events of Slurm")
            self._session_request.set()
            return self._client

    async def _follow(self, settings: Settings) -> None:
        """Forward the agent's events. This subscription neither keeps the agent alive nor starts one.

        After the end of an agent, the next one is searched: at once after a request, which starts an agent, else at
        increasing intervals.
        """
        from jupyter_slurm.agent.client.agent_client import AgentClient

        clock, delays = asyncio.get_running_loop().time, RetryDelays(*_RETRY_DELAYS_S)
        with AgentClient(settings, start=False) as client:
            while True:
                self._session_request.clear()
                begun = clock()
                try:
                    async for event, data in client.astream("/v1/events", {"holds": "false"}):
                        self._handle_event(event, data)
                except SlurmError as error:
                    _log.debug("jupyter_slurm: the agent tells no more: %s", error.message)
                except Exception as error:  # noqa: BLE001  a task's error would be seen by nobody
                    level = logging.WARNING if delays.upcoming == _RETRY_DELAYS_S[0] else logging.DEBUG
                    _log.log(level, "jupyter_slurm: the agent is heard no more, asking again: %r", error)
                self._routes.clear()  # nothing tells that they change
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(delays.next(lasted=clock() - begun)):
                        await self._session_request.wait()
                    delays.reset()

    def _handle_event(self, event: str, data: Any) -> None:
        if event == "job" and isinstance(data, dict):
            self._routes.pop(str(data.get("key")), None)
        try:
            self._on_event(event, data)
        except Exception as error:  # noqa: BLE001  one that is not understood must not end the others
            _log.warning("jupyter_slurm: an event of the agent (%s) was lost: %s", event, type(error).__name__)

    async def register(self) -> None:
        """Register the cluster of this server's environment with the agent, as every kernel does.

        Otherwise a user who has not yet run a cell would see no jobs. The agent registers the same cluster only once.
        Without Slurm on the PATH there is no cluster to register.
        """
        if shutil.which("squeue") is None:
            return
        address = {"slurm_conf": os.environ.get("SLURM_CONF") or None, "path": os.environ.get("PATH") or None}
        client = await self.client()
        try:
            await asyncio.to_thread(client.post, "/v1/clusters", json=address)
        except SlurmError as error:  # the list of clusters is useful nevertheless
            _log.warning("jupyter_slurm: the cluster of this server is not known to the agent: %s", error)

    async def session_route(self, key: str, *, newer: bool = False) -> SessionRoute:
        """Return the route to a session. The agent is asked again after a second, after a change, and if ``newer``.

        Raises
        ------
        JobNotFound
            The agent knows no session with this key.
        JobError
            The session is not ready, or finished.
        """
        at, known = self._routes.pop(key, (0.0, None))
        asked = time.monotonic()
        if known is not None and not newer and asked - at < _MAX_ROUTE_AGE_S:
            self._routes[key] = at, known
            return known
        client = await self.client()
        try:
            told = await client.aget(f"/v1/sessions/{key}/way")
        except JobNotFound:
            await self.register()  # a restarted agent knows no cluster before its registration
            told = await client.aget(f"/v1/sessions/{key}/way")
        route = SessionRoute(told["port"], told["path"], told["base_url"], told["token"], told.get("scheme", "token"))
        self._routes[key] = asked, route
        return route

    async def house(self) -> None:
        """Run the agent in this server, if so configured."""
        from jupyter_slurm.agent.hosting.agent_host import enter_server
        from jupyter_slurm.agent.hosting.launcher import choose_hosting
        from jupyter_slurm.config import load_settings

        try:
            enter_server()
            if not self._is_closed and choose_hosting(load_settings(self._config), os.environ) == "server":
                await self.client()
        except (
            SlurmError
        ) as error:  # the Jupyter server must start in any case; later requests will raise the same error again
            _log.warning("jupyter_slurm: no agent in this server: %s", error)

    async def close(self) -> None:
        """Close the connection, and end the agent if it runs in this server."""
        from jupyter_slurm.agent.hosting.agent_host import leave_server

        self._is_closed = True
        following, self._following = self._following, None
        if following is not None:
            cancel_reader(following)
            await asyncio.gather(following, return_exceptions=True)
        client, self._client = self._client, None
        if client is not None:
            client.close()
        await leave_server()
