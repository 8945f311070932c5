"""The tunnels of a person: to their own running jobs, and to login nodes; the next agent finds them again."""

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
from jupyter_slurm.errors import JobNotFound, NotConnected, SlurmError, TunnelError, UsageError
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
from jupyter_slurm.transport.tunnel.listeners import listen_on_port, listen_on_socket

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["Tunnels", "owner"]

log = logging.getLogger(__name__)

_PORTS = (8000, 9000)
_CHECK_INTERVAL_S = 2.0  # seconds between two looks whether the jobs still run; nobody outside is asked
_UNKNOWN_JOB_INTERVAL_S = 60.0  # seconds between two questions about a job that nothing is known of
_MAX_TUNNELS = 256
_BACK = "it is back when that is free, or at once on another port when it is asked for again"


class Tunnels:
    """All of them.

    Parameters
    ----------
    settings : Settings
        Say where they are remembered.
    cluster : callable
        Returns a cluster by its id; raises while nobody is logged in there.
    ports : callable
        Returns the first and last local port for a cluster.
    clock : callable, optional
        Seconds since the epoch.
    folder : str, optional
        For sockets: in a folder of ours alone, on a local disk.
    """

    def __init__(
        self,
        settings: Settings,
        cluster: Callable[[str], TunnelCluster],
        ports: Callable[[str], tuple[int, int]] = lambda cluster: _PORTS,
        clock: Callable[[], float] = time.time,
        folder: str = "",
    ) -> None:
        self._cluster, self._ports, self._clock, self._folder = cluster, ports, clock, folder
        self._file = settings.machine_path("tunnels", ".json")
        self._tunnels: dict[str, Tunnel] = {}
        self._new: dict[str, int] = {}  # those that nobody was given yet, and how many wait for each
        self._reaches: dict[str, tuple[TunnelCluster, NodeRoutes]] = {}
        self._watching: asyncio.Task[None] | None = None
        self._lookup_times: dict[str, float] = {}
        self._ahead: dict[tuple[str, str], RouteTarget] = {}  # of jobs on whose programs a tunnel waits

    def start(self) -> None:
        """Listen again where an earlier agent did; who connects before the log-in is turned away."""
        for asked in self._remembered():
            try:
                self._add(asked, self._relisten(asked))
            except (SlurmError, OverflowError, TypeError, ValueError) as error:  # the file is torn
                log.warning("a tunnel to port %s is not there any more: %s", asked.port, error)
        self._remember()

    async def stop(self) -> None:
        """Let all of them go; they are remembered."""
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
        """Learn of a cluster that can be asked from now on, and of who can ask the person about its nodes."""
        before = self._reaches.get(cluster.id)
        self._reaches[cluster.id] = (cluster, NodeRoutes(transport, location, profile, cluster.client, prompter))
        if before is not None:
            asyncio.get_running_loop().run_in_executor(None, before[1].close)

    @property
    def held(self) -> int:
        """How many there are on clusters that can be asked."""
        return sum(self._is_reached(tunnel.spec.cluster) for tunnel in self._tunnels.values())

    def list_to_api(self, cluster: str) -> list[api.Tunnel]:
        """Return those of a cluster, the oldest first."""
        return [tunnel.as_dict() for tunnel in self._tunnels.values() if tunnel.spec.cluster == cluster]

    async def open(self, cluster: str, request: api.TunnelWanted) -> api.Tunnel:
        """Open a tunnel for a person who waits for it; see :meth:`reach`."""
        return (await self.reach(cluster, request)).as_dict()

    async def reach(self, cluster: str, request: api.TunnelWanted, *, is_requested: bool = True) -> Tunnel:
        """Open a tunnel, or return the one that is there.

        Parameters
        ----------
        wanted : dict
            ``job`` (None: a host on the way), ``port``, and ``node``, ``local_port``, ``socket`` (whether it is to be
            one) or None.
        asked : bool
            Whether a person waits for it, who may be asked about the key of the node.

        Raises
        ------
        TunnelError
            No port is free here, or nothing of the person's own answers there.
        JobError
            The job does not run.
        """
        entry = await self._entry(cluster, request.get("job"))
        goal = TunnelSpec(
            id=secrets.token_hex(8),
            cluster=cluster,
            job=_reference(entry) if entry is not None else "",
            submitted=entry.submitted if entry is not None else None,  # by Slurm's clock, which ours is not
            node=request.get("node") or "",
            port=int(request["port"]),
            local_port=request.get("local_port"),
            socket=self._new_socket() if request.get("socket") else None,
            since=self._clock(),
        )
        if (same := self._find_same(goal)) is not None:
            if not same.listens and not is_requested:
                return same  # whoever knows its port waits for that
            if not same.listens:  # the person wants it back, on whatever port
                same.listen(self._listen(cluster, goal.local_port, same.spec.socket))
                self._remember()
            return await self._prepared(same, is_requested)
        if len(self._tunnels) >= _MAX_TUNNELS:
            raise TunnelError(f"there are {_MAX_TUNNELS} tunnels", hint="Close those that nobody uses.")
        tunnel = self._add(goal, self._listen(cluster, goal.local_port, goal.socket))
        self._new[goal.id] = 0
        return await self._prepared(tunnel, is_requested)

    async def approach(self, cluster: str, entry: TrackedJob) -> None:
        """Find a way to a job whose program has yet to begin to listen: a step, or a log-in on a node, takes a while.

        :meth:`leave` lets it go where no tunnel came to need it.
        """
        with contextlib.suppress(SlurmError, OSError):  # the tunnel will say why
            goal, job = route_target(entry), (cluster, str(entry.key))
            if goal is not None and self._ahead.get(job) != goal:
                self.leave(*job)
                self._ahead[job] = goal
                reach = self._reached_cluster(cluster).reach
                way = await reach.find_route(goal, ahead=True)
                if self._ahead.get(job) != goal and not reach.kind(goal):  # let go meanwhile: nobody else closes it
                    await asyncio.to_thread(way.close)

    def leave(self, cluster: str, job: str) -> None:
        """Let the way to a job go that was found ahead, unless a tunnel has it."""
        goal = self._ahead.pop((cluster, job), None)
        if goal is not None and all((t.goal, t.spec.cluster) != (goal, cluster) for t in self._tunnels.values()):
            self._forget(cluster, goal)

    def redirect(self, cluster: str, job: str, before: int | None, port: int) -> None:
        """Have what leads to a port of a job lead to another one, where its program is after a requeue."""
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
            There is none of that id.
        """
        found = self._tunnels.get(tunnel)
        if found is None or found.spec.cluster != cluster:
            raise TunnelError(f"there is no tunnel {tunnel}", hint="`jupyter slurm tunnel --list` shows them.")
        self._drop(found)
        self._remember()
        return found.as_dict()

    def end_with(self, cluster: str, job: str) -> None:
        """Close those to a job that is over, before the next look finds them."""
        for tunnel in [t for t in self._tunnels.values() if (t.spec.cluster, t.spec.job) == (cluster, job)]:
            self._drop(tunnel)
        self._remember()

    # Beneath ----------------------------------------------------------------------------------------------------

    def _reached_cluster(self, cluster: str) -> ReachedCluster:
        current = self._cluster(cluster)
        known, reach = self._reaches.get(cluster, (None, None))
        if known is not current or reach is None:
            raise NotConnected(f"Nobody is logged in to {cluster}.", hint=f"`jupyter slurm connect {cluster}`.")
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
        entry = await there.cluster.jobs.find_task(job)
        if entry.is_array and (entry.id is None or entry.id.task is None):
            raise UsageError(f"job {job} is an array", hint=f"Name one of its tasks: {entry.id}_0, for example.")
        return entry

    def _find_same(self, spec: TunnelSpec) -> Tunnel | None:
        for tunnel in self._tunnels.values():
            there = tunnel.spec
            goal = (there.cluster, there.job, there.node, there.port, there.socket is None)
            if goal == (spec.cluster, spec.job, spec.node, spec.port, spec.socket is None) and (
                spec.local_port in (None, there.local_port) or not tunnel.listens
            ):
                return tunnel
        return None

    def _listen(self, cluster: str, port: int | None, path: str | None) -> socket.socket:
        if path is not None:
            return listen_on_socket(path)
        first, last = self._ports(cluster)
        ports: Iterable[int] = range(first, last + 1) if port is None else (port,)
        among = f"all from {first} to {last} are taken" if port is None else f"{port} is taken{owner(port)}"
        return listen_on_port(ports, among=among)

    def _relisten(self, spec: TunnelSpec) -> socket.socket | TunnelError:
        """Listen where an earlier agent did; an error that is returned, and not raised, may go away."""
        try:
            return self._listen(spec.cluster, spec.local_port, spec.socket)
        except TunnelError as error:
            if error.details.get("why") != "taken":
                raise
            by = owner(spec.local_port) if spec.local_port is not None else ""
            return TunnelError(f"{spec.local_port or spec.socket} here is taken{by}; {_BACK}", hint=error.hint)

    def _add(self, spec: TunnelSpec, listener: socket.socket | TunnelError) -> Tunnel:
        tunnel = Tunnel(spec, listener, lambda: self._reached_cluster(spec.cluster))
        self._tunnels[spec.id] = tunnel
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch(), name="tunnels")
        return tunnel

    def _drop(self, tunnel: Tunnel) -> None:
        self._tunnels.pop(tunnel.spec.id, None)
        self._new.pop(tunnel.spec.id, None)
        tunnel.close()
        asked, goal = tunnel.spec, tunnel.goal
        left = [t for t in self._tunnels.values() if (t.goal, t.spec.cluster) == (goal, asked.cluster)]
        if goal != RouteTarget() and not left:
            self._forget(asked.cluster, goal)

    def _forget(self, cluster: str, goal: RouteTarget) -> None:
        if cluster in self._reaches:
            reach = self._reaches[cluster][1]
            asyncio.get_running_loop().run_in_executor(None, reach.forget, goal)

    async def _prepared(self, tunnel: Tunnel, is_requested: bool) -> Tunnel:
        """Return a tunnel when it is ready; a new one goes with the last of those who waited for it in vain."""
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

    def _new_socket(self) -> str:
        folder = self._folder or os.path.join(os.path.dirname(self._file), "run", "tunnels")
        try:
            make_private(folder)
        except OSError as error:
            raise TunnelError(f"{folder} cannot be made: {error.strerror}", hint="Set Settings.runtime_dir.") from error
        return os.path.join(folder, secrets.token_hex(4))

    # Jobs end, and with them what leads to them -----------------------------------------------------------------

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
        )  # ids come again
        return entry.is_finished or not (is_known or asked.submitted == entry.submitted)

    # What the next agent finds ----------------------------------------------------------------------------------

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
    """Return who has a port of this machine, as `` by …``; empty: nobody, or the system does not say it."""
    owner = listeners().get(port)
    if owner is None:
        return ""
    return " by another program of yours" if owner == os.geteuid() else f" by another user ({owner})"
