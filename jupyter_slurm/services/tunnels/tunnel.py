"""One tunnel: a local port, and the connection to the user's own program behind it, restored as often as necessary."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as NotInTime
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.queries.cluster import expand_hosts
from jupyter_slurm.errors import (
    JobError,
    NotConnected,
    SlurmError,
    TransportError,
    TunnelError,
    TunnelUnproven,
    UsageError,
)
from jupyter_slurm.services.elapsed_time import elapsed
from jupyter_slurm.services.jobdir.job_json_model import JobRecordFile
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.lookup import JobLookup, check_not_suspended
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.slurm.client import SlurmClient
from jupyter_slurm.services.slurm.poller import Poller
from jupyter_slurm.services.tunnels.login_routes import RouteTarget
from jupyter_slurm.services.tunnels.node_routes import NodeRoutes
from jupyter_slurm.transport.base import Route, Stream
from jupyter_slurm.transport.ssh.link.threads import DaemonThreadPool

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.transport.tunnel.forwarder import Forwarder

__all__ = ["ReachedCluster", "Tunnel", "TunnelCluster", "TunnelSpec", "route_target"]

log = logging.getLogger(__name__)

_RESERVED_LOOKUPS = 3  # immediate queries about one job that are left to other callers
_ROUTE_TIMEOUT_S = 60.0  # seconds that a connection waits for the SSH connection, the login on a node, or a step
_DIAL_TIMEOUT_S = 20.0
_PROOF_AGE_S = 15.0  # seconds for which the owner of a port is remembered


class TunnelCluster(Protocol):
    """Cluster of a tunnel: :class:`jupyter_slurm.services.clusters.cluster.Cluster`."""

    @property
    def id(self) -> str: ...  # noqa: D102
    @property
    def client(self) -> SlurmClient: ...  # noqa: D102
    @property
    def tracker(self) -> Tracker: ...  # noqa: D102
    @property
    def poller(self) -> Poller: ...  # noqa: D102
    @property
    def jobs(self) -> JobLookup: ...  # noqa: D102


class ReachedCluster(NamedTuple):
    """Reachable cluster, and the routes to its nodes."""

    cluster: TunnelCluster
    reach: NodeRoutes


@dataclass(frozen=True)
class TunnelSpec:
    """Purpose of a tunnel, in its stored form.

    Attributes
    ----------
    id, cluster : str
    job : str
        Key or Slurm ID; empty: a host on the route.
    submitted : float or None
        Submission time of the job: IDs are reused.
    node : str
        One of the job's nodes (empty: the first), or the host on the route (empty: the login node).
    port : int
        Port on the node.
    local_port : int or None
    socket : str or None
        Local socket on which the tunnel listens.
    since : float
        Seconds since the epoch.
    """

    id: str
    cluster: str
    job: str
    submitted: float | None
    node: str
    port: int
    local_port: int | None
    socket: str | None
    since: float


_PREPARING = "The route to the port is being prepared. If a question about a host is open, answer it."


class _Ready(NamedTuple):
    """Proof of the listener's owner from ``since``; ``era``: no program on the port is known to have ended in it."""

    goal: RouteTarget
    route: Route
    address: str
    since: float
    era: object


class Tunnel:
    """Forward the connections of a listener.

    Parameters
    ----------
    spec : TunnelSpec
    listener : socket or TunnelError
        The error is the reason for a missing listener; :meth:`listen` sets one.
    find_cluster : callable
        Returns the cluster; raises NotConnected if not connected.
    on_leave : callable, optional
        Called with the former destination after a requeue to another node.
    """

    def __init__(
        self,
        spec: TunnelSpec,
        listener: socket.socket | TunnelError,
        find_cluster: Callable[[], ReachedCluster],
        on_leave: Callable[[RouteTarget], None] = lambda goal: None,
    ) -> None:
        self.spec, self._cluster, self._on_leave = spec, find_cluster, on_leave
        self._loop = asyncio.get_running_loop()
        self._preparing, self._threads = asyncio.Lock(), DaemonThreadPool()
        self._ready: _Ready | None = None
        self._era = object()
        self._error: SlurmError | None = None
        self._is_proven = False
        self._is_closed = False
        self.goal = RouteTarget(spec.node, spec.job)
        self._forwarder: Forwarder | None = None
        if isinstance(listener, TunnelError):
            self._error = listener
        else:
            self.listen(listener)

    def listen(self, listener: socket.socket) -> None:
        """Forward the connections of a listener."""
        from jupyter_slurm.transport.tunnel.forwarder import Forwarder

        if self.spec.socket is None:
            self.spec = replace(self.spec, local_port=listener.getsockname()[1])
        self._error = None
        self._forwarder = Forwarder(listener, self._dial, on_error=self._on_change, on_remote_end=self._on_program_end)

    def redirect(self, port: int) -> None:
        """Redirect to another remote port."""
        self.spec = replace(self.spec, port=port)
        self._ready, self._era = None, object()

    @property
    def listens(self) -> bool:
        """Return whether this tunnel has the local port, not another program."""
        return self._forwarder is not None

    async def prepare(self, *, is_requested: bool = True) -> None:
        """Find the route and the owner of the remote port; ``asked``: for a waiting user, who may be prompted.

        Raises
        ------
        SlurmError
            The tunnel cannot be used now; the message gives the reason.
        """
        # After an error, a proof from before it says nothing: the error would stay although the tunnel works.
        stale = self._ready if self._error is not None else None
        await self._prepare(stale, is_requested=is_requested)
        self._era = object()  # at the next connection it may be another program

    def close(self) -> None:
        """Close the local port and the connections."""
        self._is_closed = True
        if self._forwarder is not None:
            self._forwarder.close()
        self._threads.close()

    @property
    def is_broken(self) -> bool:
        """Return whether the last use failed; the tunnel may work again."""
        return not self._is_closed and self._error is not None

    def as_dict(self) -> api.Tunnel:
        """Return the tunnel in the form of the API."""
        asked = self.spec
        try:
            reach = self._cluster().reach
            kind, failed = reach.kind(self.goal), reach.failed(self.goal)
        except SlurmError:
            kind, failed = "", {}
        return {
            "id": asked.id,
            "cluster": asked.cluster,
            "port": asked.port,
            "local_port": asked.local_port,
            "socket": asked.socket,
            "since": asked.since,
            "job": self.goal.job or None,
            "node": self.goal.node or None,
            "url": f"http://127.0.0.1:{asked.local_port}/" if asked.local_port else None,
            "way": kind or None,
            "failed": failed,
            "proven": self._is_proven,
            "state": self._state(),
            "message": self._error.message if self._error is not None else _PREPARING if self._is_preparing() else "",
            "connections": self._forwarder.connections if self._forwarder is not None else 0,
        }

    def _is_preparing(self) -> bool:
        """Return whether the first search for a route is not over: a question to the user may be open."""
        return self._ready is None and self._error is None and self._preparing.locked()

    def _state(self) -> str:
        if self._is_closed:
            return "closed"
        if self._error is not None:
            return "broken"
        return "preparing" if self._is_preparing() else "open"

    # -- in the event loop

    async def _prepare(self, stale: _Ready | None, *, is_requested: bool = False) -> _Ready:
        began = elapsed()
        async with self._preparing:  # all waiting connections share one login and one proof
            ready = self._ready
            is_usable = ready is not None and ready is not stale and ready.route.is_alive and not is_requested
            if ready is not None and is_usable and (ready.since > began or self._is_current(ready)):
                return ready
            try:
                return await self._find(is_requested)
            except SlurmError as error:
                self._ready, self._error, self._is_proven = None, error, False
                raise

    async def _find(self, is_requested: bool) -> _Ready:
        cluster, reach = self._cluster()
        goal = await self._goal(cluster)
        if self._is_closed:  # nobody would close its route
            raise TunnelError("The tunnel was closed.", hint="Open the tunnel again.")
        if goal != self.goal:
            former, self.goal, self._ready = self.goal, goal, None
            if former.node and former.node != goal.node:  # requeued
                self._on_leave(former)
        way = await reach.find_route(goal, is_requested=is_requested)
        since, era = elapsed(), self._era
        try:
            address = await self._threads.call(lambda: way.find(self.spec.port))
            self._is_proven = True
        except TunnelUnproven as error:
            if error.details.get("why") != "unproven" or not reach.trusts_unproven:
                raise
            address, self._is_proven = "127.0.0.1", False
        self._ready = _Ready(goal, way, address, since, era)
        self._error = None
        return self._ready

    async def _goal(self, cluster: TunnelCluster) -> RouteTarget:
        asked = self.spec
        if not asked.job:
            return RouteTarget(asked.node)
        entry = await cluster.jobs.find_task(asked.job)
        if not (entry.is_finished or _nodes(entry)):
            await cluster.poller.wait_fresh()  # this agent is new, and the queue shows the node of the job
            entry = await cluster.jobs.find_task(asked.job)
        if not (entry.is_finished or _nodes(entry) or entry.id is None) and cluster.client.singles.is_ready(
            _RESERVED_LOOKUPS
        ):
            # The job has just started: its output, or its runner, was faster than the next query of the queue.
            with contextlib.suppress(SlurmError):
                await cluster.tracker.update_from_slurm(entry, await cluster.client.describe(entry.id))
        await check_not_suspended(cluster.tracker, entry.id, "no program in it answers")
        goal, is_running = route_target(entry), entry.state.is_running and not entry.is_finished
        if goal is None:
            why = "Slurm has not reported its node yet" if is_running else f"it is not running ({entry.state.name})"
            raise JobError(
                f"Job {entry.id or asked.job}: {why}.",
                hint="Open the tunnel again when the job is running.",
                state=entry.state.name,
            )
        given = _nodes(entry) or ""
        if asked.node and asked.node not in expand_hosts(given):
            raise UsageError(f"Job {entry.id} does not run on {asked.node}.", hint=f"It runs on {given}.")
        return replace(goal, node=asked.node or goal.node)

    def _is_current(self, ready: _Ready) -> bool:
        """Return whether a proof is still valid.

        With an open connection it is valid for some seconds: a proof takes ten times as long as a connection. So a
        foreign program is reached only if it listens within a round trip of the program's end. The other case: within
        those seconds, while another process continues one of the program's connections.
        """
        is_fresh = ready.era is self._era and elapsed() < ready.since + _PROOF_AGE_S
        return ready.route.is_alive and (is_fresh or ready.route.proof_lasts)

    # -- in threads

    def _on_program_end(self) -> None:
        """Record that the program may have ended, or may end unseen: any user may then take the port."""
        self._era = object()

    def _dial(self) -> Stream:
        deadline = time.monotonic() + _ROUTE_TIMEOUT_S
        stale, again = None, False
        while True:
            ready, is_known = self._ready, False
            try:
                if ready is None or ready is stale or not ready.route.is_alive:
                    ready = self._wait(self._prepare(stale), deadline)
                is_known = True
                stream = ready.route.dial(ready.address, self.spec.port, _DIAL_TIMEOUT_S)
                if self._is_current(ready):
                    return stream
                is_known = False
                return self._proven(stream, ready, deadline)
            except TransportError as error:
                # The program or the route has ended: the next listener must prove its owner again.
                is_final = isinstance(error, NotConnected if is_known else NotConnected | TunnelError)
                if again or is_final or time.monotonic() > deadline:
                    raise
                stale, again = ready, True

    def _proven(self, stream: Stream, ready: _Ready, deadline: float) -> Stream:
        """Return a stream without data sent, once the owner of its other end is proven."""
        try:
            now = self._wait(self._prepare(ready), deadline)
            if (now.route, now.address) != (ready.route, ready.address):
                raise TransportError(
                    "Another program listens on the port now.", hint="Open the tunnel again if the program is yours."
                )
        except BaseException:
            stream.close()
            raise
        return stream

    def _wait(self, work: Any, deadline: float) -> _Ready:
        try:
            waiting = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise TunnelError("The agent has ended.", hint="Open the tunnel again.") from None
        try:
            found: _Ready = waiting.result(max(0.1, deadline - time.monotonic()))
        except (NotInTime, CancelledError):
            waiting.cancel()
            raise TunnelError(
                f"No connection to {self.goal.node or 'the login node'} was possible within {_ROUTE_TIMEOUT_S:g} s.",
                hint="Try again when the connection is back.",
            ) from None
        return found

    def _on_change(self, error: SlurmError | None) -> None:
        if error is None:
            self._error = None
        elif self._error is None or self._error.message != error.message:
            self._error = error
            log.info("tunnel to port %d: %s", self.spec.port, error.message)


def route_target(entry: TrackedJob) -> RouteTarget | None:
    """Return the destination of a job's route, its first node; None: no node, or not known yet."""
    given = _nodes(entry)
    job = JobId.parse(entry.number) if entry.number else entry.id
    if entry.is_finished or not entry.state.is_running or not given or job is None:
        return None
    folder = entry.folder if entry.kind == "session" else None
    return RouteTarget(expand_hosts(given)[0], str(replace(job, step=None)), folder, _python(entry.record))


def _python(record: JobRecordFile | None) -> str:
    """Return the Python that starts a job on its node, if recorded; an image has another Python."""
    if record is None or record.request is None:
        return ""
    is_inside = record.environment is not None and record.environment.image
    asked = record.request
    if is_inside:
        return asked.default_python or ""
    return asked.python or (None if asked.env else asked.default_python) or ""


def _nodes(entry: TrackedJob) -> str | None:
    """Return the known nodes of a job; its runner may be the first to report them."""
    return (entry.latest.nodes if entry.latest else None) or entry.reported_nodes
