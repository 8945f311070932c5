"""How the ports of a compute node are reached: it is tried out what the site allows, and remembered."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from jupyter_slurm.errors import (
    HostKeyUnknown,
    SlurmError,
    TransportError,
    TunnelError,
    TunnelUnproven,
    UsageError,
)
from jupyter_slurm.services.slurm.client import SlurmClient
from jupyter_slurm.services.slurm.location import ClusterLocation
from jupyter_slurm.services.tunnels.login_routes import DirectRoute, LoginNodeRoute, RouteTarget, no_route
from jupyter_slurm.sites.profile import Profile
from jupyter_slurm.transport.base import Route, Stream, Transport
from jupyter_slurm.transport.ssh.link.threads import DaemonThreadPool
from jupyter_slurm.transport.ssh.prompts import Prompt, Prompter
from jupyter_slurm.transport.tunnel.multiplex import Multiplex, relay_argv, relay_by_ssh

__all__ = ["NodeRoutes"]

log = logging.getLogger(__name__)

_START_TIMEOUT_S = 60.0  # seconds that a log-in or a step may take to come up
_EARLY_END_S = 10.0  # seconds in which a step ends that cannot begin
_LOOKUP_TIMEOUT_S = 10.0  # seconds for an answer
_FAILURE_CACHE_AGE_S = 15.0  # seconds for which it is believed that no way proves who is there
_NO_PORT = 0  # a port
_PROMPT_TIMEOUT_S = 120.0  # seconds in which a person compares a fingerprint


def _check_passing_on(dial: Callable[[str, int, float], Stream]) -> None:
    """Find out whether a host passes connections on, by a port on which nobody can listen; TunnelError: it says no."""
    try:
        dial("127.0.0.1", _NO_PORT, _LOOKUP_TIMEOUT_S).close()
    except TunnelError as error:
        if error.details.get("why") == "forbidden":
            raise


def _check_commands(route: Route) -> None:
    """Find out whether a host says who listens on a port, by one on which nobody can; TunnelUnproven: it does not."""
    try:
        route.find(_NO_PORT)
    except TunnelUnproven:
        raise
    except TunnelError:  # nobody listens there
        return


@dataclass
class _NodePlacement:
    """What is known of one goal."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    kind: str = ""
    route: Route | None = None
    since: float = 0.0
    failed: dict[str, str] = field(default_factory=dict)
    lacks_key: bool = False  # ssh failed, since nobody had said yes to the key of the node
    before: list[Route] = field(default_factory=list)  # that a better one took the place of; connections go on there


class _SharedLookup:
    """Asks a person about the key of a node, for a while: there are other ways."""

    def __init__(self, prompter: Prompter) -> None:
        self._prompter = prompter

    async def ask(self, prompt: Prompt) -> Sequence[str] | None:
        try:
            async with asyncio.timeout(_PROMPT_TIMEOUT_S):
                return await self._prompter.ask(prompt)
        except TimeoutError:
            return None


class NodeRoutes:
    """The ways to the nodes of one cluster.

    Parameters
    ----------
    transport : Transport
        To the login node.
    profile : Profile or None
        None: this machine is the login node.
    client : SlurmClient
        Knows the addresses of nodes.
    prompter : Prompter, optional
        Who is asked about the key of a node that is not known, once; None: nobody.
    """

    def __init__(
        self,
        transport: Transport,
        location: ClusterLocation,
        profile: Profile | None,
        client: SlurmClient,
        prompter: Prompter | None = None,
    ) -> None:
        self._transport, self._location, self._profile, self._client = transport, location, profile, client
        self._prompter = None if prompter is None else _SharedLookup(prompter)
        self._declined_nodes: set[str] = set()  # about the keys of these nodes
        self._places: dict[RouteTarget, _NodePlacement] = {}
        self._addresses: dict[str, str] = {}
        self._threads = DaemonThreadPool()  # of its own: log-ins may wait for a person

    @property
    def trusts_unproven(self) -> bool:
        """Whether the profile lets a tunnel lead to who cannot prove to be the person's own."""
        return self._profile is not None and self._profile.unproven

    def kind(self, goal: RouteTarget) -> str:
        """Return which way is used: ``login``, ``ssh``, ``nested``, ``step`` or ``direct``; empty: none yet."""
        return self._places[goal].kind if goal in self._places else ""

    def failed(self, goal: RouteTarget) -> dict[str, str]:
        """Return the ways that do not work, each with why not."""
        return dict(self._places[goal].failed) if goal in self._places else {}

    async def find_route(self, goal: RouteTarget, *, is_requested: bool = False, ahead: bool = False) -> Route:
        """Return a way that works; the one that worked last is tried first.

        Parameters
        ----------
        asked : bool
            Whether a person waits for it, who may be asked about the key of the node: now, or by hand since a way was
            found without.
        ahead : bool
            Whether nobody needs it yet: then the last resort is none, since what fails now may work by then.

        Raises
        ------
        TunnelError
            None does; says why, one by one.
        """
        place = self._places.setdefault(goal, _NodePlacement())
        if place.route is not None and not self._is_over(goal, place) and not (is_requested and place.lacks_key):
            return place.route
        async with place.lock:
            if place.route is not None and self._is_over(goal, place):
                await asyncio.to_thread(place.route.close)
                place.kind, place.route = place.kind if place.kind != "direct" else "", None
            if place.route is not None:
                if (
                    is_requested
                    and place.lacks_key
                    and await self._try_route("ssh", goal, place, is_requested=is_requested) is not None
                ):
                    log.info("%s is reached by ssh from now on", goal.node)
            elif not goal.job:
                place.kind, place.route = await self._jump_route(goal.node)
            else:
                for kind in sorted(self._kinds(), key=lambda kind: kind != place.kind):
                    if ahead and kind == "direct":
                        continue
                    if await self._try_route(kind, goal, place, is_requested=is_requested) is not None:
                        break
            if place.route is not None:
                return place.route
        raise no_route(goal, place.failed)

    def _is_over(self, goal: RouteTarget, place: _NodePlacement) -> bool:
        """Tell whether a way is over, or leads to nobody who is proven: others may have failed at a requeue."""
        assert place.route is not None
        proves_nothing = place.kind == "direct" and goal.folder is None and len(self._kinds()) > 1
        tries_again = (
            proves_nothing and not self.trusts_unproven and time.monotonic() - place.since > _FAILURE_CACHE_AGE_S
        )
        return tries_again or not place.route.is_alive

    def forget(self, goal: RouteTarget) -> None:
        """Let a way go that nobody needs any more."""
        place = self._places.pop(goal, None)
        for way in [] if place is None else [*place.before, place.route]:
            if way is not None:
                way.close()

    def close(self) -> None:
        """Let all ways go."""
        for goal in tuple(self._places):
            self.forget(goal)
        self._threads.close()

    # Trying -----------------------------------------------------------------------------------------------------

    def _kinds(self) -> Sequence[str]:
        return self._profile.ways if self._profile is not None else ("ssh", "step", "direct")

    async def _jump_route(self, name: str) -> tuple[str, Route]:
        """Return the kind of way, and the way, to the login node or a host before it."""
        if not name:
            return "login", await self._login()
        hops = self._transport.hops()
        if name not in hops:
            raise UsageError(
                f"{name} is no host on the way to {self._location.id}",
                hint=f"There are: {', '.join(hops)}." if hops else "There is none before the login node.",
            )
        return "hop", hops[name]()

    async def _try_route(
        self, kind: str, goal: RouteTarget, place: _NodePlacement, *, is_requested: bool
    ) -> Route | None:
        """Go one way, if it works; else its reason is noted."""
        prompter = self._prompter if is_requested and goal.node not in self._declined_nodes else None
        ways: dict[str, Callable[[], Awaitable[Route]]] = {
            "ssh": lambda: self._ssh(goal, prompter),
            "nested": lambda: self._nested(goal),
            "step": lambda: self._step(goal),
            "direct": lambda: self._direct(goal),
        }
        if kind == "ssh":
            place.lacks_key = False
        try:
            way = await ways[kind]()
        except SlurmError as error:
            log.info("%s is not reached by %s: %s", goal.node, kind, error.message)
            place.failed[kind] = error.message
            if isinstance(error, HostKeyUnknown):
                place.lacks_key = True
                if prompter is not None:
                    self._declined_nodes.add(goal.node)  # that was a no
            return None
        place.failed.pop(kind, None)
        if place.route is not None:
            place.before.append(place.route)
        place.kind, place.route, place.since = kind, way, time.monotonic()
        return way

    async def _login(self) -> Route:
        """By the log-in; where its sshd passes no connections on, by a program there that makes them."""
        name, mark = self._location.host, secrets.token_hex(16)
        try:
            await self._threads.call(lambda: _check_passing_on(self._transport.dial))
        except TunnelError as forbidden:
            try:
                return await self._relay(relay_argv(mark), mark, RouteTarget(name), f"python3 on {name}")
            except TransportError as error:
                log.info("no program on %s passes connections on: %s", name, error.message)
                raise forbidden from error
        return LoginNodeRoute(self._transport, name, asyncio.get_running_loop())

    async def _ssh(self, goal: RouteTarget, prompter: Prompter | None) -> Route:
        from jupyter_slurm.transport.ssh.forwarding.node import NodeBySsh, node_host  # paramiko takes a while

        login, config_file, dial, cluster = None, None, None, ""
        if self._profile is not None:
            from jupyter_slurm.services.connections.transports import route_hosts

            login, config_file, dial = (
                (await route_hosts(self._profile))[-1],
                self._profile.ssh_config,
                self._transport.dial,
            )
            cluster = self._profile.name
        address = await self._address(goal.node)
        host = await node_host(goal.node, address, self._location.user, login, config_file, cluster)
        node = NodeBySsh(host, dial, prompter)
        try:
            await self._threads.call(node.open)
            await self._threads.call(lambda: _check_passing_on(node.dial))
            if not self.trusts_unproven:
                await self._threads.call(lambda: _check_commands(node))
        except BaseException:
            node.close()
            raise
        return node

    async def _step(self, goal: RouteTarget) -> Route:
        mark, began = secrets.token_hex(16), time.monotonic()
        place = [f"--jobid={goal.job}", f"--nodelist={goal.node}", "--nodes=1", "--ntasks=1", "--overlap"]
        argv, name = ["srun", *place, "--unbuffered", "--quiet"], f"the step of the job on {goal.node}"
        if goal.python:
            try:
                return await self._relay([*argv, *relay_argv(mark, goal.python)], mark, goal, name)
            except TransportError as error:
                if time.monotonic() - began > _EARLY_END_S:
                    raise
                # It may need what a module has set for the job alone.
                log.info("%s does not run %s: %s", goal.node, goal.python, error.message)
        return await self._relay([*argv, *relay_argv(mark)], mark, goal, name)

    async def _nested(self, goal: RouteTarget) -> Route:
        """By the login node's own ssh: with a key that lies only there, and the hosts that are known there."""
        mark = secrets.token_hex(16)
        argv = relay_by_ssh(mark, goal.node, await self._address(goal.node))
        return await self._relay(argv, mark, goal, f"ssh from the login node to {goal.node}")

    async def _relay(self, argv: Sequence[str], mark: str, goal: RouteTarget, name: str) -> Route:
        def work() -> Route:
            stream = self._transport.pipe(argv, _START_TIMEOUT_S, env=self._location.environment)
            return Multiplex(stream, mark, goal.node, name)

        return await self._threads.call(work)

    async def _direct(self, goal: RouteTarget) -> Route:
        address, failed = await self._address(goal.node), self.failed(goal)
        return DirectRoute(self._transport, goal, address, asyncio.get_running_loop(), failed)

    async def _address(self, node: str) -> str:
        """Return where the login node finds a node."""
        if node not in self._addresses:
            try:
                self._addresses = {one.name: one.address or one.name for one in await self._client.nodes()}
            except SlurmError as error:
                raise TransportError(f"Slurm does not say where {node} is: {error.message}") from error
        return self._addresses.get(node, node)
