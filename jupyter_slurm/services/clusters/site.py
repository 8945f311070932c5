"""A cluster behind SSH: its log-in, and what is known of the way."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyter_slurm.domain.findings import Finding
from jupyter_slurm.errors import NotConnected, SlurmError, TransportError
from jupyter_slurm.services.clusters.cluster import Cluster, ClusterConnection
from jupyter_slurm.services.connections.clients import ClientRegistry
from jupyter_slurm.services.connections.prompts import PromptQueue
from jupyter_slurm.services.event_bus import EventBus
from jupyter_slurm.services.jobdir.ownership import make_own
from jupyter_slurm.services.slurm.location import ClusterLocation, look
from jupyter_slurm.sites.profile import Profile
from jupyter_slurm.transport.base import Transport

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.services.connections.transports import SiteTransports

__all__ = ["Site", "unusable"]

log = logging.getLogger(__name__)

_COMES_BACK = 30.0  # seconds that who connects waits for a connection that was lost
_SILENT = 2.0  # seconds without an answer that nobody wonders at
_NOBODY: api.ClusterPoll = {"seconds_since": None, "failing_for": None, "interval": None, "error": None}


def unusable(name: str, message: str) -> api.Cluster:
    """Return what the API tells of a profile that cannot be read."""
    connection: api.Connection = {"state": "disconnected", "hosts": [], "since": 0.0, "message": message}
    told: api.Cluster = {"id": name, "name": name, "slurm_conf": None, "poll": _NOBODY}
    return {**told, "profile": name, "connection": connection, "users": []}


@dataclass(frozen=True)
class SiteContext:
    """What the clusters of all profiles share.

    Attributes
    ----------
    new_cluster : callable
        Makes and starts a cluster, given its place, the transport there, and its site (None: it is of this machine).
    bus : EventBus
        Where changes are published.
    clients : ClientRegistry
        The clients that use a log-in.
    login_folder : str
        Private, on a local disk: for log-ins that outlive this process.
    poll_shortest : float
        Seconds, as the user set them; a profile may say more.
    clock : callable
        Seconds since the epoch.
    """

    new_cluster: Callable[[ClusterLocation, Transport, Site | None], Awaitable[Cluster]]
    bus: EventBus
    clients: ClientRegistry
    login_folder: str
    poll_shortest: float
    clock: Callable[[], float]


class Site:
    """One cluster of a profile. While nobody is logged in there, there is nothing but its name.

    Parameters
    ----------
    profile : Profile
        How it is reached.
    context : SiteContext
        What it shares with other sites.
    """

    def __init__(self, profile: Profile, context: SiteContext) -> None:
        self.profile, self.desk = profile, PromptQueue(profile.name, context.bus, clock=context.clock)
        self._context, self._clock = context, context.clock
        self.carried: SiteTransports | None = None
        self.arrival: list[Finding] = []  # what the last log-in has found on its way; grows in another thread
        self._cluster: Cluster | None = None
        self._connecting: asyncio.Task[Cluster] | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._state, self._since, self._message = "disconnected", self._clock(), ""

    @property
    def is_connected(self) -> bool:
        """Whether a person is logged in; the link itself may be down for the moment."""
        return self._cluster is not None

    @property
    def since(self) -> float | None:
        """When the person logged in, in seconds since the epoch; None: nobody is."""
        return None if self._cluster is None or self.carried is None else self.carried.link.since or self._since

    @property
    def is_idle(self) -> bool:
        """Whether nobody is logged in, or about to be."""
        return self._cluster is None and self._connecting is None

    @property
    def cluster(self) -> Cluster:
        """The cluster, as long as a person is logged in."""
        if self._cluster is None:
            name = self.profile.name
            raise NotConnected(
                f"Nobody is logged in to {name}.",
                hint=f"`%slurm use {name}` in a notebook, or `jupyter slurm connect {name}`.",
            )
        return self._cluster

    @property
    def is_usable(self) -> bool:
        """Whether it can be used at once."""
        return self._cluster is not None and (self.carried is None or self.carried.link.is_alive)

    async def connect(self, first: Callable[[SiteTransports], Awaitable[None]] | None = None) -> Cluster:
        """Log in, unless it is done; all who call meanwhile wait for the same log-in.

        Parameters
        ----------
        first : callable, optional
            Is given the log-in, when this call begins it, before anybody else uses it.

        Raises
        ------
        NotConnected
            Somebody ended it meanwhile.
        SlurmError
            It failed; whoever asks again tries again.
        """
        if self._cluster is not None:
            if self.carried is not None:
                await self._come_back(self.carried)
            return self._cluster
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._log_in(first), name=f"log in to {self.profile.name}")
            self._connecting.add_done_callback(self._over)
        connecting = self._connecting
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            if not connecting.cancelled():
                raise  # whoever waits was cancelled
        raise NotConnected(f"The log-in to {self.profile.name} was ended.", hint="Connect again when you want to.")

    async def disconnect(self, message: str = "", *, keep: bool = False) -> None:
        """End the log-in; jobs go on. With ``keep``, one that can outlive this process does."""
        if self._connecting is not None:
            self._connecting.cancel()
            self.desk.withdraw()
            await asyncio.gather(self._connecting, return_exceptions=True)
        if self._expiry is not None:
            self._expiry.cancel()
        cluster, self._cluster = self._cluster, None
        carried, self.carried = self.carried, None
        if cluster is not None:
            await cluster.stop()
        if carried is not None:
            carried.transport.close(keep=keep)
        elif not keep:
            with contextlib.suppress(SlurmError):
                await self._log_out()
        self._become("disconnected", message)

    async def _log_out(self) -> None:
        from jupyter_slurm.services.connections.transports import log_out

        await log_out(self.profile, self._context.login_folder)

    def as_dict(self) -> api.Cluster:
        """Return the cluster as the API tells it."""
        if self._cluster is not None:
            return self._cluster.as_dict()
        name, title, slurm_conf = self.profile.name, self.profile.title, self.profile.slurm_conf
        known: api.Cluster = {"id": name, "name": title, "slurm_conf": slurm_conf, "poll": _NOBODY}
        return {**known, **self.describe_connection()}

    def now(self) -> api.Cluster:
        """Return the cluster as it stands this very moment, also when its link has only just become silent."""
        told = self.as_dict()
        connection = told.get("connection")
        if self.carried is not None and connection and (silent := self.carried.link.silent_for) >= _SILENT:
            connection["message"] = f"{self.carried.link.name} has not answered for {silent:.0f} s"
            connection["state"] = "lost"
        return told

    def describe_connection(self) -> ClusterConnection:
        """Return how the cluster is reached, as the API tells it."""
        hosts = list(self.carried.hosts) if self.carried else [self.profile.host]
        state, since, message = self._state, self._since, self._message
        connection: api.Connection = {"state": state, "hosts": hosts, "since": since, "message": message}
        users = self._context.clients.of(self.profile.name) if self._cluster is not None else []
        return {"profile": self.profile.name, "python": self.profile.python, "connection": connection, "users": users}

    async def _come_back(self, carried: SiteTransports) -> None:
        """Wait for the link, which may be down; as long as it takes only while a person is asked something for it."""
        coming = asyncio.ensure_future(carried.connect())  # at once when it is up
        now = asyncio.get_running_loop().time
        since = now()
        try:
            while not (await asyncio.wait({coming}, timeout=_COMES_BACK / 30))[0]:
                if self.desk.waiting():
                    since = now()
                elif now() - since > _COMES_BACK:
                    name = self.profile.name
                    raise TransportError(
                        f"The connection to {name} is lost, and not back yet.",
                        hint="It is tried again by itself, for as long as it takes. Is the network up here (VPN)? "
                        f"After `jupyter slurm disconnect {name}`, which gives it up, `doctor` says what is wrong.",
                    )
        finally:
            coming.cancel()
        await coming

    async def _log_in(self, first: Callable[[SiteTransports], Awaitable[None]] | None) -> Cluster:
        from jupyter_slurm.services.connections.transports import (
            carry,  # paramiko takes a while, and who stays here needs none
        )

        self._become("connecting", "")
        self.arrival = arrival = list[Finding]()
        carried = await carry(self.profile, self.desk, self._told, self._context.login_folder, arrival.append)
        try:
            try:
                await carried.connect()
            except SlurmError as error:
                arrival.append(carried.walk.failure(error))
                raise
            if first is not None:
                await first(carried)
            where = await look(carried.transport, self.profile, self._context.poll_shortest)
            await make_own(carried.transport, where.folder)  # before what lies there is taken for our jobs
            cluster = await self._context.new_cluster(where, carried.transport, self)
        except BaseException:
            carried.transport.close()
            raise
        self.carried, self._cluster = carried, cluster
        if self.profile.max_age is not None:
            since = carried.link.since or self._clock()  # it may be older than this process
            left = max(0.0, self.profile.max_age - (self._clock() - since))
            self._expiry = asyncio.get_running_loop().call_later(left, self._expire)
        self._become("connected", "")
        return cluster

    def _over(self, task: asyncio.Task[Cluster]) -> None:
        self._connecting = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._become("disconnected", error.message if isinstance(error, SlurmError) else type(error).__name__)

    def _expire(self) -> None:
        hours = (self.profile.max_age or 0) / 3600
        ending = asyncio.ensure_future(self.disconnect(f"the log-in was {hours:.3g} h old"))
        ending.add_done_callback(lambda task: task.exception())

    def _told(self, message: str, is_up: bool) -> None:
        """Hear what becomes of the link."""
        log.info("%s", message)
        if self._cluster is not None:
            self._become("connected" if is_up else "lost", message)

    def _become(self, state: str, message: str) -> None:
        if state != self._state:
            self._since = self._clock()
        self._state, self._message = state, message
        self.tell()

    def tell(self) -> None:
        """Tell everybody how it stands."""
        with contextlib.suppress(SlurmError):
            self._context.bus.publish("cluster", self.as_dict())
