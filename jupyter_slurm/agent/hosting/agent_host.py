"""The agent host, and the three places where an agent can live: a process, the Jupyter server's loop, a thread.

The object is the same in all places. Only a separate process ends by itself; the others end with their process.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Literal

from jupyter_slurm import _version
from jupyter_slurm.agent.api.app import AccessCheck, create_app
from jupyter_slurm.agent.api.http_server import AgentServer, Connection
from jupyter_slurm.agent.api.routes import CAPABILITIES, Routes
from jupyter_slurm.agent.api.schema import load_document
from jupyter_slurm.agent.hosting import discovery, log_file
from jupyter_slurm.agent.hosting.leader_election import LeaderElsewhere, Leadership
from jupyter_slurm.domain.slurm_values import counted
from jupyter_slurm.errors import AgentError, AgentUnreachable

if TYPE_CHECKING:
    from jupyter_slurm.config import Settings
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.services.agent_core import Core

__all__ = [
    "AgentHost",
    "Hosting",
    "ThreadedAgent",
    "enter_server",
    "leave_server",
    "serve_in_loop",
    "serve_in_thread",
    "server_loop",
]

_log = logging.getLogger(__name__)

Hosting = Literal["daemon", "server", "inprocess"]

_CHECK_INTERVAL_S = 5.0
_FIRST_OPERATIONS = ("registerCluster", "submitJob")


class AgentHost:
    """A leading agent: lock, core, HTTP server, and the decision to end.

    Parameters
    ----------
    settings : Settings
        The user's settings.
    hosting : "daemon", "server" or "inprocess"
        Place of the agent.
    core : Core, optional
        The core, which does the work; by default :class:`jupyter_slurm.services.agent_core.Core`.
    """

    def __init__(self, settings: Settings, hosting: Hosting, core: Core | None = None) -> None:
        self.settings = settings
        self.hosting = hosting
        self._core: Core = core or _default_core(settings)
        self._started = time.time()
        self._last_request = time.monotonic()
        self._leadership: Leadership | None = None
        self._server: AgentServer | None = None
        self._connections: set[Connection] = set()  # those of all its servers
        self._routes: Routes | None = None
        self._leaving = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Become the leader and begin to answer.

        Raises
        ------
        LeaderElsewhere
            Another agent is the leader; nothing was started.
        """
        self._leadership = await Leadership.acquire(self.settings)
        try:
            await self._core.start()
        except BaseException:
            self._leadership.release()
            raise
        try:
            self._document = load_document()
            self._routes = Routes(self._core, self._document, self.describe, self._on_stop)
            await self._listen()
        except BaseException:
            await self.stop()
            raise
        self._watcher = asyncio.ensure_future(self._watch())
        _log.info("agent %s leads (%s, pid %d)", _version.__version__, self.hosting, os.getpid())

    async def _listen(self) -> None:
        """Listen, and publish the record. After an error, :meth:`stop` closes what was opened."""
        assert self._routes is not None
        assert self._leadership is not None
        leadership, kind = self._leadership, self.settings.agent_socket
        listener = leadership.listen("tcp" if kind == "tcp" else "unix")
        port = leadership.port
        names = ("jupyter-slurm", "localhost") if port is None else (f"127.0.0.1:{port}", f"localhost:{port}")
        gate = AccessCheck(frozenset(names), leadership.secret)
        app = create_app(self._document, self._routes.answers(), gate, self._on_request)
        self._server = AgentServer(app.create_exchange, self._routes.presence.remove_connection, self._connections)
        await self._server.listen(listener)
        machine = discovery.machine_identity()
        leadership.write_record({**self.describe(), **machine, "hosting": self.hosting})
        self._prepare_validators()

    def _prepare_validators(self) -> None:
        """Generate the validators of a first submission in a thread: the agent was probably started for one."""
        operations = [one for methods in self._document.operations.values() for one in methods.values()]
        for operation in operations:
            if operation.operation_id in _FIRST_OPERATIONS:
                asyncio.get_running_loop().run_in_executor(None, operation.prepare)

    def describe(self) -> api.Agent:
        """Return the answer to ``GET /v1/agent``."""
        return {
            "name": "jupyter-slurm",
            "version": _version.__version__,
            "api": {"major": discovery.API_MAJOR, "minor": discovery.API_MINOR},
            "capabilities": list(CAPABILITIES),
            "pid": os.getpid(),
            "host": self.hosting,
            "started": self._started,
            "holds": self._count_holders(),
            "log": log_file.log_path(self.settings) if self.hosting == "daemon" else None,
            "warnings": self._warnings(),
        }

    def _warnings(self) -> list[str]:
        log, usual = log_file.log_path(self.settings), log_file.usual_log_path(self.settings)
        moved = f"{usual} cannot be written. The log of the agent is {log}." if log != usual else ""
        return [*([moved] if moved and self.hosting == "daemon" else []), *self._core.warnings()]

    def _count_holders(self) -> dict[str, int]:
        streams = self._routes.streams if self._routes else 0
        return {**self._core.count_holders(), "streams": streams}

    async def wait(self) -> None:
        """Wait until the agent must stop: on request, when idle, or if another agent is the leader."""
        await self._leaving.wait()

    def leave(self) -> None:
        """Request a stop. May be called from a signal handler of the loop."""
        self._leaving.set()

    async def stop(self) -> None:
        """End streams and connections, stop the core, and release the lock last."""
        self._leaving.set()
        if self._watcher is not None:
            self._watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watcher
        if self._routes is not None:
            await self._routes.close_streams()
        if self._server is not None:
            await self._server.close()
        try:
            await self._core.stop()
        finally:
            if self._leadership is not None:
                self._leadership.release()
        _log.info("agent has left (pid %d)", os.getpid())

    def _on_request(self) -> None:
        self._last_request = time.monotonic()

    def _on_stop(self, only_idle: bool) -> None:
        holds = {kind: number for kind, number in self._count_holders().items() if number}
        if only_idle and (holds or self.hosting != "daemon"):
            error = AgentError(
                "The agent holds " + (", ".join(counted(n, kind) for kind, n in holds.items()) or "its process") + ".",
                hint="Wait until it is idle, or stop it with `jupyter slurm agent stop`.",
                holds=holds,
            )
            error.status = 409  # type: ignore[misc]
            raise error
        # The answer is sent first.
        asyncio.get_running_loop().call_later(0.05, self.leave)

    def _is_idle(self) -> bool:
        quiet = time.monotonic() - self._last_request
        return quiet >= self.settings.agent_idle_exit and not any(self._count_holders().values())

    async def _watch(self) -> None:
        """Leave when idle; take the lock again if a logout or a cleaner removed the agent's files."""
        interval = min(_CHECK_INTERVAL_S, max(0.05, self.settings.agent_idle_exit / 4))
        while True:
            await asyncio.sleep(interval)
            if self.hosting == "daemon" and self._is_idle():
                _log.info("idle: leaving")
                self.leave()
                return
            if self._leadership is not None and not self._leadership.is_intact():
                await self._retry_leadership()

    async def _retry_leadership(self) -> None:
        assert self._leadership is not None
        assert self._server is not None
        _log.warning("the files of the socket are gone: taking the lead again")
        self._server.stop()
        self._leadership.close()
        try:
            self._leadership = await Leadership.acquire(self.settings)
            await self._listen()
        except (AgentError, OSError) as error:
            _log.warning("another agent leads now, or none can: %s", error)
            self.leave()


def _default_core(settings: Settings) -> Core:
    from jupyter_slurm.services.agent_core import Core

    return Core(settings, folder=discovery.place_to_start(settings).folder)


class _Server:
    """State of the Jupyter server in this process, as far as the agent needs it; loop is None in any other process."""

    loop: asyncio.AbstractEventLoop | None = None
    task: asyncio.Task[None] | None = None


def server_loop() -> asyncio.AbstractEventLoop | None:
    """Return the loop of the Jupyter server of this process, or None."""
    return _Server.loop


def enter_server() -> None:
    """Record that this process is a Jupyter server and that the running loop is its loop."""
    _Server.loop = asyncio.get_running_loop()


async def serve_in_loop(settings: Settings, core: Core | None = None) -> AgentHost | None:
    """Run an agent in the running loop; None if another agent is already the leader.

    Raises
    ------
    AgentError
        The agent could not be started.
    """
    host = AgentHost(settings, "server", core)
    try:
        await host.start()
    except LeaderElsewhere:
        return None
    except OSError as error:
        raise _not_started(error) from error
    _Server.task = asyncio.ensure_future(_wait_until_stopped(host))
    return host


async def leave_server() -> None:
    """Stop the agent in this server, if any. Call this function when the server stops."""
    task, _Server.loop, _Server.task = _Server.task, None, None
    if task is not None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _wait_until_stopped(host: AgentHost) -> None:
    try:
        await host.wait()
    finally:
        await host.stop()


def serve_in_thread(settings: Settings, core: Core | None = None, *, timeout: float = 60.0) -> ThreadedAgent | None:
    """Run an agent in a thread of this process until it ends; None if another agent is already the leader.

    Raises
    ------
    AgentError
        The agent could not be started.
    """
    agent = ThreadedAgent(settings, core)
    agent.start(timeout)
    if isinstance(agent.error, LeaderElsewhere):
        return None
    if agent.error is not None:
        raise _not_started(agent.error) from agent.error
    atexit.register(agent.stop)
    return agent


def _not_started(error: BaseException) -> AgentUnreachable:
    return AgentUnreachable(
        f"The agent could not be started in this process: {error}",
        hint="See the error above. To run the agent as another process, set c.JupyterSlurm.agent_host = 'daemon'.",
    )


class ThreadedAgent:
    """An agent with its own loop and thread. The thread never delays the interpreter's exit."""

    def __init__(self, settings: Settings, core: Core | None = None) -> None:
        self.error: BaseException | None = None
        self._settings, self._core = settings, core
        self._ready = threading.Event()
        self._host: AgentHost | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="jupyter-slurm-agent", daemon=True)

    def start(self, timeout: float) -> None:
        """Start the agent, and wait until it answers or has failed (``error``)."""
        self._thread.start()
        if not self._ready.wait(timeout):
            raise AgentUnreachable(
                f"The agent in this process did not start within {timeout:.0f} s.",
                hint="Try again, or check the load of this computer.",
            )

    def stop(self, timeout: float = 10.0) -> None:
        """Stop the agent, and wait for its end."""
        if self._loop is not None and self._host is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop has just ended
                self._loop.call_soon_threadsafe(self._host.leave)
            self._thread.join(timeout)
        atexit.unregister(self.stop)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - told to the thread that waits
            self.error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._host = AgentHost(self._settings, "inprocess", self._core)
        await self._host.start()
        self._ready.set()
        await _wait_until_stopped(self._host)
