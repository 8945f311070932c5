"""Routes to ports of compute nodes: each is tried in turn, and the outcome is remembered."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
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

_START_TIMEOUT_S = 60.0  # seconds that a login or a step may take to start
_EARLY_END_S = 10.0  # seconds in which a step ends that cannot start
_LOOKUP_TIMEOUT_S = 10.0  # seconds for an answer
_FAILURE_CACHE_AGE_S = 15.0  # seconds for which a missing proof of the owner is remembered
_NO_PORT = 0  # a port
_PROMPT_TIMEOUT_S = 120.0  # seconds in which a user compares a fingerprint


def _check_passing_on(dial: Callable[[str, int, float], Stream]) -> None:
    """Test whether a host forwards connections, with a port without a listener; raise TunnelError if it refuses."""
    try:
        dial("127.0.0.1", _NO_PORT, _LOOKUP_TIMEOUT_S).close()
    except TunnelError as error:
        if error.details.get("why") == "forbidden":
            raise


def _check_commands(route: Route) -> None:
    """Test whether a host reports the listener of a port, with an unused port; raise TunnelUnproven if not."""
    try:
        route.find(_NO_PORT)
    except TunnelUnproven:
        raise
    except TunnelError:  # nobody listens on the port
        return


@dataclass
class _NodePlacement:
    """State of the routes to one destination."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    kind: str = ""
    route: Route | None = None
    since: float = 0.0
    failed: dict[str, str] = field(default_factory=dict)
    lacks_key: bool = False  # ssh failed, because the key of the node was not accepted yet
    before: list[Route] = field(default_factory=list)  # replaced by a better route; open connections continue


class _SharedLookup:
    """Prompt about the key of a node, for a limited time: there are other routes."""

    def __init__(self, prompter: Prompter) -> None:
        self._prompter = prompter

    async def ask(self, prompt: Prompt) -> Sequence[str] | None:
        try:
            async with asyncio.timeout(_PROMPT_TIMEOUT_S):
                return await self._prompter.ask(prompt)
        except TimeoutError:
            return None


class NodeRoutes:
    """Routes to the nodes of one cluster.

    Parameters
    ----------
    transport : Transport
        Transport to the login node.
    profile : Profile or None
        None: this machine is the login node.
    client : SlurmClient
        Knows the addresses of nodes.
    prompter : Prompter, optional
        Prompts the user once about an unknown key of a node; None: no prompt.
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
        self._declined_nodes: set[str] = set()  # nodes whose keys were the subject of a prompt
        self._places: dict[RouteTarget, _NodePlacement] = {}
        self._addresses: dict[str, str] = {}
        self._threads = DaemonThreadPool()  # a separate pool: logins may wait for a user

    @property
    def trusts_unproven(self) -> bool:
        """Return whether the profile allows a tunnel to a program that cannot prove its owner."""
        return self._profile is not None and self._profile.unproven

    def kind(self, goal: RouteTarget) -> str:
        """Return the route in use: ``login``, ``ssh``, ``nested``, ``step`` or ``direct``; empty: none yet."""
        return self._places[goal].kind if goal in self._places else ""

    def failed(self, goal: RouteTarget) -> dict[str, str]:
        """Return the routes that do not work, each with its reason."""
        return dict(self._places[goal].failed) if goal in self._places else {}

    async def find_route(self, goal: RouteTarget, *, is_requested: bool = False, ahead: bool = False) -> Route:
        """Return a working route; try the last working one first.

        Parameters
        ----------
        is_requested : bool
            Whether a user waits, who may be prompted about the key of the node: now, or manually since a route was
            found without a prompt.
        ahead : bool
            Whether the route is found in advance: the last resort is then left out, because other routes may work
            later.

        Raises
        ------
        TunnelError
            No route works; the message gives each reason. Or the route was closed meanwhile.
        """
        place = self._places.setdefault(goal, _NodePlacement())
        if place.route is not None and not self._is_over(goal, place) and not (is_requested and place.lacks_key):
            return place.route
        async with place.lock:
            if self._places.get(goal) is place:
                await self._renew(goal, place, is_requested=is_requested, ahead=ahead)
            if self._places.get(goal) is not place:  # forgotten meanwhile
                if place.route is not None:
                    await asyncio.to_thread(place.route.close)
                raise TunnelError(
                    f"The tunnel to {goal.node or 'the login node'} was closed before its route was ready.",
                    hint="Open the tunnel again.",
                )
            if place.route is not None:
                return place.route
        raise no_route(goal, place.failed)

    async def _renew(self, goal: RouteTarget, place: _NodePlacement, *, is_requested: bool, ahead: bool) -> None:
        """Replace a route that is missing, over, or second choice only because the key of the node was unknown."""
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

    def _is_over(self, goal: RouteTarget, place: _NodePlacement) -> bool:
        """Return whether a route has ended, or its owner is not proven: other routes may have failed only due to a
        requeue.
        """
        assert place.route is not None
        proves_nothing = place.kind == "direct" and goal.folder is None and len(self._kinds()) > 1
        tries_again = (
            proves_nothing and not self.trusts_unproven and time.monotonic() - place.since > _FAILURE_CACHE_AGE_S
        )
        return tries_again or not place.route.is_alive

    def forget(self, goal: RouteTarget) -> None:
        """Close a route that is no longer needed."""
        place = self._places.pop(goal, None)
        for way in [] if place is None else [*place.before, place.route]:
            if way is not None:
                way.close()

    def close(self) -> None:
        """Close all routes."""
        for goal in tuple(self._places):
            self.forget(goal)
        self._threads.close()

    # -- attempts

    def _kinds(self) -> Sequence[str]:
        return self._profile.ways if self._profile is not None else ("ssh", "step", "direct")

    async def _jump_route(self, name: str) -> tuple[str, Route]:
        """Return kind and route to the login node or a host before it."""
        if not name:
            return "login", await self._login()
        hops = self._transport.hops()
        if name not in hops:
            raise UsageError(
                f"{name} is not a jump host of {self._location.id}.",
                hint=f"Its jump hosts are {', '.join(hops)}."
                if hops
                else "There is none before the login node: leave the jump host out.",
            )
        return "hop", hops[name]()

    async def _try_route(
        self, kind: str, goal: RouteTarget, place: _NodePlacement, *, is_requested: bool
    ) -> Route | None:
        """Try one route; if it fails, record its reason."""
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
                    self._declined_nodes.add(goal.node)  # the user declined
            return None
        place.failed.pop(kind, None)
        if place.route is not None:
            place.before.append(place.route)
        place.kind, place.route, place.since = kind, way, time.monotonic()
        return way

    async def _login(self) -> Route:
        """Use the login; if its sshd does not forward connections, a program on the login node makes them."""
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
        from jupyter_slurm.transport.ssh.forwarding.node import NodeBySsh, node_host  # imports paramiko, which is slow

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
                # The Python may need settings of a module that only the job has loaded.
                log.info("%s does not run %s: %s", goal.node, goal.python, error.message)
        return await self._relay([*argv, *relay_argv(mark)], mark, goal, name)

    async def _nested(self, goal: RouteTarget) -> Route:
        """Use the login node's own ssh: with a key that exists only on it, and its known hosts."""
        mark = secrets.token_hex(16)
        argv = relay_by_ssh(mark, goal.node, await self._address(goal.node))
        return await self._relay(argv, mark, goal, f"ssh from the login node to {goal.node}")

    async def _relay(self, argv: Sequence[str], mark: str, goal: RouteTarget, name: str) -> Route:
        made, abandoned = list[Route](), threading.Event()

        def work() -> Route:
            stream = self._transport.pipe(argv, _START_TIMEOUT_S, env=self._location.environment)
            route = Multiplex(stream, mark, goal.node, name)
            made.append(route)
            if abandoned.is_set():
                route.close()
            return route

        try:
            return await self._threads.call(work)
        except asyncio.CancelledError:  # the thread goes on: nobody else would close its session on the login node
            abandoned.set()
            for route in made:
                self._threads.run_later(route.close)
            raise

    async def _direct(self, goal: RouteTarget) -> Route:
        address, failed = await self._address(goal.node), self.failed(goal)
        return DirectRoute(self._transport, goal, address, asyncio.get_running_loop(), failed)

    async def _address(self, node: str) -> str:
        """Return the address of a node for the login node."""
        if node not in self._addresses:
            try:
                self._addresses = {one.name: one.address or one.name for one in await self._client.nodes()}
            except SlurmError as error:
                raise TransportError(
                    f"Slurm does not report the address of {node}: {error.message}", hint="Try again in a minute."
                ) from error
        return self._addresses.get(node, node)
