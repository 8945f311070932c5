"""Tunnels of a user: to the user's running jobs and to login nodes; the next agent restores them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

from jupyter_slurm.config import Settings
from jupyter_slurm.errors import JobNotFound, NotConnected, SlurmError, TunnelError
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.slurm.location import ClusterLocation
from jupyter_slurm.services.tunnels.login_routes import RouteTarget
from jupyter_slurm.services.tunnels.node_routes import NodeRoutes
from jupyter_slurm.services.tunnels.tunnel import ReachedCluster, Tunnel, TunnelCluster, TunnelSpec, route_target
from jupyter_slurm.sites.profile import Profile
from jupyter_slurm.transport.base import Transport
from jupyter_slurm.transport.listening_ports import listeners
from jupyter_slurm.transport.local.files import make_private
from jupyter_slurm.transport.ssh.prompts import Prompter
from jupyter_slurm.transport.tunnel.local_listeners import listen_on_port, listen_on_socket

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["Tunnels", "owner"]

log = logging.getLogger(__name__)

_PORTS = (8000, 9000)
_CHECK_INTERVAL_S = 2.0  # seconds between two checks whether the jobs still run, without a request to a remote host
_UNKNOWN_JOB_INTERVAL_S = 60.0  # seconds between two requests about an unknown job
_MAX_TUNNELS = 256
_LIST_HINT = "List the tunnels with `jupyter slurm tunnel --list`, and close those that are not used."
_BACK = "The tunnel opens again when the port is free. To use another port now, request the tunnel again."


class Tunnels:
    """Tunnels of all clusters.

    Parameters
    ----------
    settings : Settings
        Have the path of the stored tunnels.
    cluster : callable
        Returns a cluster by ID; raises if not connected.
    ports : callable
        Returns the first and last local port for a cluster.
    clock : callable, optional
        Seconds since the epoch.
    folder : str, optional
        Folder of sockets, readable only by the user, on a local disk.
    """

    def __init__(
        self,
        settings: Settings,
        cluster: Callable[[str], TunnelCluster],
        ports: Callable[[str], tuple[int, int]] = lambda cluster: _PORTS,
        clock: Callable[[], float] = time.time,
        folder: str = "",
    ) -> None:
        self._cluster, self._ports, self._clock = cluster, ports, clock
        self._file = settings.machine_path("tunnels", ".json")
        self._folder = folder or os.path.join(os.path.dirname(self._file), "run", "tunnels")
        self._tunnels: dict[str, Tunnel] = {}
        self._new: dict[str, int] = {}  # tunnels that no caller has received yet, with the number of waiting callers
        self._reaches: dict[str, tuple[TunnelCluster, NodeRoutes]] = {}
        self._watching: asyncio.Task[None] | None = None
        self._lookup_times: dict[str, float] = {}
        self._ahead: dict[tuple[str, str], RouteTarget] = {}  # jobs whose programs are not listening yet

    def start(self) -> None:
        """Listen again on the ports of an earlier agent; connections before the login are refused."""
        for asked in self._remembered():
            try:
                self._add(asked, self._relisten(asked))
            except (OverflowError, TypeError, ValueError) as error:  # the file is torn
                log.warning("a tunnel to port %s is not there any more: %s", asked.port, error)
        self._remember()

    async def stop(self) -> None:
        """Close all tunnels; they stay stored."""
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
        for tunnel in self._tunnels.values():
            tunnel.close()
        reaches, self._reaches = self._reaches, {}
        for _, reach in reaches.values():
            await asyncio.to_thread(reach.close)

    def add_cluster(
        self,
        cluster: TunnelCluster,
        transport: Transport,
        location: ClusterLocation,
        profile: Profile | None,
        prompter: Prompter | None = None,
    ) -> None:
        """Add a reachable cluster, with the prompter for its nodes."""
        before = self._reaches.get(cluster.id)
        self._reaches[cluster.id] = (cluster, NodeRoutes(transport, location, profile, cluster.client, prompter))
        if before is not None:
            asyncio.get_running_loop().run_in_executor(None, before[1].close)

    @property
    def held(self) -> int:
        """Return the number of tunnels to reachable clusters."""
        return sum(self._is_reached(tunnel.spec.cluster) for tunnel in self._tunnels.values())

    def list_to_api(self, cluster: str) -> list[api.Tunnel]:
        """Return the tunnels of a cluster, oldest first."""
        return [tunnel.as_dict() for tunnel in self._tunnels.values() if tunnel.spec.cluster == cluster]

    async def open(self, cluster: str, request: api.TunnelWanted) -> api.Tunnel:
        """Open a tunnel for a waiting user; see :meth:`reach`."""
        return (await self.reach(cluster, request)).as_dict()

    async def reach(self, cluster: str, request: api.TunnelWanted, *, is_requested: bool = True) -> Tunnel:
        """Open a tunnel, or return the existing one.

        Parameters
        ----------
        request : dict
            ``job`` (None: a host on the route), ``port``, and ``node``, ``local_port``, ``socket`` (whether to use a
            Unix socket) or None.
        is_requested : bool
            Whether a user waits, who may be prompted about the key of the node.

        Raises
        ------
        TunnelError
            No local port is free, or no program of the user answers.
        JobError
            The job is not running.
        """
        entry = await self._entry(cluster, request.get("job"))
        goal = TunnelSpec(
            id=secrets.token_hex(8),
            cluster=cluster,
            job=_reference(entry) if entry is not None else "",
            submitted=entry.submitted if entry is not None else None,  # by Slurm's clock, which may differ
            node=request.get("node") or "",
            port=int(request["port"]),
            local_port=request.get("local_port"),
            socket=os.path.join(self._folder, secrets.token_hex(4)) if request.get("socket") else None,
            since=self._clock(),
        )
        if (same := self._find_same(goal)) is not None:
            if not same.listens and not is_requested:
                return same  # callers that know its port wait for that port
            if not same.listens:  # the user wants the tunnel back, on any port
                same.listen(self._listen(cluster, goal.local_port, same.spec.socket))
                self._remember()
            return await self._prepared(same, is_requested)
        if len(self._tunnels) >= _MAX_TUNNELS:
            raise TunnelError(f"There are {_MAX_TUNNELS} open tunnels, the maximum.", hint=_LIST_HINT)
        tunnel = self._add(goal, self._listen(cluster, goal.local_port, goal.socket))
        self._new[goal.id] = 0
        return await self._prepared(tunnel, is_requested)

    async def approach(self, cluster: str, entry: TrackedJob) -> None:
        """Find a route to a job whose program does not listen yet: a step or a login on a node takes a while.

        :meth:`leave` closes the route if no tunnel needs it.
        """
        with contextlib.suppress(SlurmError, OSError):  # the tunnel will report the reason
            goal, job = route_target(entry), (cluster, str(entry.key))
            if goal is not None and self._ahead.get(job) != goal:
                self.leave(*job)
                self._ahead[job] = goal
                await self._reached_cluster(cluster).reach.find_route(goal, ahead=True)

    def leave(self, cluster: str, job: str) -> None:
        """Close a route that was found in advance, unless a tunnel uses it."""
        if (goal := self._ahead.get((cluster, job))) is not None:
            self._leave_route(cluster, job, goal)

    def redirect(self, cluster: str, job: str, before: int | None, port: int) -> None:
        """Redirect a tunnel to another port of its job, after a requeue moved the program."""
        for tunnel in self._tunnels.values():
            asked = tunnel.spec
            if (asked.cluster, asked.job, asked.port) == (cluster, job, before) and before != port:
                tunnel.redirect(port)
        self._remember()

    async def close(self, cluster: str, tunnel: str) -> api.Tunnel:
        """Close a tunnel.

        Raises
        ------
        TunnelError
            There is no tunnel with that ID.
        """
        found = self._tunnels.get(tunnel)
        if found is None or found.spec.cluster != cluster:
            raise TunnelError(f"There is no tunnel {tunnel}.", hint=_LIST_HINT)
        self._drop(found)
        self._remember()
        return found.as_dict()

    def end_with(self, cluster: str, job: str) -> None:
        """Close the tunnels to a finished job, before the next check finds them."""
        for tunnel in [t for t in self._tunnels.values() if (t.spec.cluster, t.spec.job) == (cluster, job)]:
            self._drop(tunnel)
        self._remember()

    # -- opening

    def _reached_cluster(self, cluster: str) -> ReachedCluster:
        current = self._cluster(cluster)
        known, reach = self._reaches.get(cluster, (None, None))
        if known is not current or reach is None:
            raise NotConnected(f"There is no connection to {cluster}.", hint=f"Use `jupyter slurm connect {cluster}`.")
        return ReachedCluster(current, reach)

    def _is_reached(self, cluster: str) -> bool:
        try:
            self._reached_cluster(cluster)
        except SlurmError:
            return False
        return True

    async def _entry(self, cluster: str, job: str | None) -> TrackedJob | None:
        there = self._reached_cluster(cluster)
        if job is None:
            return None
        from jupyter_slurm.services.tunnels.job_parts import check_part

        entry = await there.cluster.jobs.find_task(job)
        check_part(job, entry)
        return entry

    def _find_same(self, spec: TunnelSpec) -> Tunnel | None:
        """Return a tunnel to the same port: if possible one that listens, on the requested local port."""
        found = list[Tunnel]()
        for tunnel in self._tunnels.values():
            there = tunnel.spec
            goal = (there.cluster, there.job, there.node, there.port, there.socket is None)
            if goal == (spec.cluster, spec.job, spec.node, spec.port, spec.socket is None) and (
                spec.local_port in (None, there.local_port) or not tunnel.listens
            ):
                found.append(tunnel)
        return max(found, key=lambda t: (t.listens, t.spec.local_port == spec.local_port), default=None)

    def _listen(self, cluster: str, port: int | None, path: str | None) -> socket.socket:
        if path is not None:
            return listen_on_socket(path)
        first, last = self._ports(cluster)
        ports: Iterable[int] = range(first, last + 1) if port is None else (port,)
        among = f"ports {first} to {last} are all in use" if port is None else f"port {port} is in use{owner(port)}"
        return listen_on_port(ports, among=among)

    def _relisten(self, spec: TunnelSpec) -> socket.socket | TunnelError:
        """Listen on the port of an earlier agent; an error is returned, because it may be temporary."""
        try:
            return self._listen(spec.cluster, spec.local_port, spec.socket)
        except TunnelError as error:
            if error.details.get("why") != "taken" or (port := spec.local_port) is None:
                return error
            return TunnelError(f"Port {port} on this computer is in use{owner(port)}. {_BACK}", hint=error.hint)

    def _add(self, spec: TunnelSpec, listener: socket.socket | TunnelError) -> Tunnel:
        cluster, job = spec.cluster, spec.job
        tunnel = Tunnel(
            spec, listener, lambda: self._reached_cluster(cluster), lambda goal: self._leave_route(cluster, job, goal)
        )
        self._tunnels[spec.id] = tunnel
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch(), name="tunnels")
        return tunnel

    def _drop(self, tunnel: Tunnel) -> None:
        self._tunnels.pop(tunnel.spec.id, None)
        self._new.pop(tunnel.spec.id, None)
        tunnel.close()
        self._leave_route(tunnel.spec.cluster, tunnel.spec.job, tunnel.goal)

    def _leave_route(self, cluster: str, job: str, goal: RouteTarget) -> None:
        """Close a route that a job does not need any more, unless another tunnel or job needs it."""
        if self._ahead.get((cluster, job)) == goal:
            del self._ahead[cluster, job]
        used = {(tunnel.spec.cluster, tunnel.goal) for tunnel in self._tunnels.values()}
        used |= {(where, ahead) for (where, _), ahead in self._ahead.items()}
        if goal != RouteTarget() and (cluster, goal) not in used and cluster in self._reaches:
            asyncio.get_running_loop().run_in_executor(None, self._reaches[cluster][1].forget, goal)

    async def _prepared(self, tunnel: Tunnel, is_requested: bool) -> Tunnel:
        """Return a tunnel when ready; after a failure, the last waiting caller removes a new tunnel."""
        new = tunnel.spec.id
        if new in self._new:
            self._new[new] += 1
        try:
            await tunnel.prepare(is_requested=is_requested)
        except BaseException:
            if new in self._new:
                self._new[new] -= 1
                if not self._new[new]:
                    self._drop(tunnel)
            raise
        if self._new.pop(new, None):
            self._remember()
        return tunnel

    # -- ends of jobs and their tunnels

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_INTERVAL_S)
            over = [tunnel for tunnel in list(self._tunnels.values()) if await self._is_over(tunnel)]
            for tunnel in self._tunnels.values():
                if not tunnel.listens:
                    self._retry_listening(tunnel)
            for tunnel in over:
                log.info("the tunnel to port %d of job %s ends with it", tunnel.spec.port, tunnel.spec.job)
                self._drop(tunnel)
            if over:
                self._remember()

    def _retry_listening(self, tunnel: Tunnel) -> None:
        with contextlib.suppress(SlurmError):
            tunnel.listen(self._listen(tunnel.spec.cluster, tunnel.spec.local_port, tunnel.spec.socket))
            log.info("the tunnel to port %d is back", tunnel.spec.port)

    async def _is_over(self, tunnel: Tunnel) -> bool:
        asked = tunnel.spec
        if not asked.job or not self._is_reached(asked.cluster):
            return False
        cluster = self._cluster(asked.cluster)
        found = cluster.tracker.find(asked.job)
        entry = found and cluster.jobs.select_task(asked.job, found)
        if entry is None and self._clock() - self._lookup_times.get(asked.id, 0.0) > _UNKNOWN_JOB_INTERVAL_S:
            self._lookup_times[asked.id] = self._clock()
            try:
                entry = await cluster.jobs.find_task(asked.job)
            except JobNotFound:
                return True
            except (SlurmError, OSError):
                return False
        if entry is None:
            return False
        is_known = asked.job == entry.key or None in (
            asked.submitted,
            entry.submitted,
        )  # IDs are reused
        return entry.is_finished or not (is_known or asked.submitted == entry.submitted)

    # -- storage for the next agent

    def _remember(self) -> None:
        kept = [asdict(tunnel.spec) for tunnel in self._tunnels.values()]
        draft = f"{self._file}.{secrets.token_hex(4)}"
        try:
            make_private(os.path.dirname(self._file))
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                json.dump(kept, file)
            os.replace(draft, self._file)
        except OSError as error:
            log.warning("tunnels cannot be remembered: %s", error)

    def _remembered(self) -> list[TunnelSpec]:
        try:
            with open(self._file, encoding="utf-8") as file:
                return [TunnelSpec(**one) for one in json.load(file)][:_MAX_TUNNELS]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError, RecursionError) as error:
            log.warning("%s is of no use: %s", self._file, error)
            return []


def _reference(entry: TrackedJob) -> str:
    is_task = entry.id is not None and entry.id.task is not None
    return entry.key if entry.key is not None and not is_task else str(entry.id)


def owner(port: int) -> str:
    """Return the user of a local port as `` by …``; empty: unused or unknown."""
    owner = listeners().get(port)
    if owner is None:
        return ""
    return " by another program of yours" if owner == os.geteuid() else f" by another user ({owner})"
