"""A cluster behind SSH: its login, and the state of the connection."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyter_slurm.domain.findings import Finding
from jupyter_slurm.domain.profile_facts import has_gpus
from jupyter_slurm.errors import ConfigError, HostKeyChanged, NotConnected, SlurmError, TransportError
from jupyter_slurm.services.clusters.cluster import Cluster, ClusterConnection, gpus_to_api
from jupyter_slurm.services.connections.clients import ClientRegistry
from jupyter_slurm.services.connections.pending_prompts import PromptQueue
from jupyter_slurm.services.elapsed_time import AgeTimer
from jupyter_slurm.services.event_bus import EventBus
from jupyter_slurm.services.jobdir.ownership import make_owned_folder
from jupyter_slurm.services.slurm.location import ClusterLocation, inspect_location
from jupyter_slurm.sites.profile import Profile, load_profile
from jupyter_slurm.sites.profile_changes import changed_keys
from jupyter_slurm.transport.base import Transport

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.services.connections.transfer_host import TransferHost
    from jupyter_slurm.services.connections.transports import SiteTransports

__all__ = ["Site", "unusable"]

log = logging.getLogger(__name__)

_RECONNECT_TIMEOUT_S = 30.0  # seconds to wait for a lost connection
_SILENCE_NOTICE_S = 2.0  # seconds without an answer that are normal
_NO_LINK_STATE: api.ClusterPoll = {"seconds_since": None, "failing_for": None, "interval": None, "error": None}


def unusable(name: str, message: str) -> api.Cluster:
    """Return the API object of a profile that cannot be read."""
    connection: api.Connection = {"state": "disconnected", "hosts": [], "since": 0.0, "message": message}
    told: api.Cluster = {"id": name, "name": name, "slurm_conf": None, "poll": _NO_LINK_STATE}
    return {**told, "profile": name, "connection": connection, "users": []}


@dataclass(frozen=True)
class SiteContext:
    """Dependencies shared by the clusters of all profiles.

    Attributes
    ----------
    new_cluster : callable
        Makes and starts a cluster, given its location, transport and site (None: a cluster of this machine).
    bus : EventBus
        Publishes changes.
    clients : ClientRegistry
        Clients that use a login.
    login_folder : str
        Private folder on a local disk, for logins that outlive this process.
    poll_shortest : float
        Seconds, as set by the user; a profile may set more.
    clock : callable
        Seconds since the epoch.
    sites : sequence of str
        Folders of profiles.
    """

    new_cluster: Callable[[ClusterLocation, Transport, Site | None], Awaitable[Cluster]]
    bus: EventBus
    clients: ClientRegistry
    login_folder: str
    poll_shortest: float
    clock: Callable[[], float]
    sites: Sequence[str]


class Site:
    """One cluster of a profile; without a connection it is only a name.

    Parameters
    ----------
    profile : Profile
        Describes the connection.
    context : SiteContext
        Dependencies shared with other sites.
    """

    def __init__(self, profile: Profile, context: SiteContext) -> None:
        self.profile, self.desk = profile, PromptQueue(profile.name, context.bus, clock=context.clock)
        self._context, self._clock = context, context.clock
        self.carried: SiteTransports | None = None
        self._transfer_host: TransferHost | None = None
        self.arrival: list[Finding] = []  # findings of the last login; appended by another thread
        self._cluster: Cluster | None = None
        self._connecting: asyncio.Task[Cluster] | None = None
        self._expiry: AgeTimer | None = None
        self._state, self._since, self._message = "disconnected", self._clock(), ""

    @property
    def is_connected(self) -> bool:
        """Return whether the user is logged in; the connection itself may be down for the moment."""
        return self._cluster is not None

    @property
    def since(self) -> float | None:
        """Return the time of login, in seconds since the epoch; None: not logged in."""
        return None if self._cluster is None or self.carried is None else self.carried.link.since or self._since

    @property
    def is_idle(self) -> bool:
        """Return whether nobody is logged in and no login is in progress."""
        return self._cluster is None and self._connecting is None

    @property
    def cluster(self) -> Cluster:
        """Return the cluster while the user is logged in."""
        if self._cluster is None:
            name = self.profile.name
            raise NotConnected(
                f"There is no connection to {name}.",
                hint=f"Connect with `%slurm use {name}` in a notebook, or with `jupyter slurm connect {name}` "
                "in a terminal.",
            )
        return self._cluster

    @property
    def is_usable(self) -> bool:
        """Return whether the cluster can be used at once."""
        return self._cluster is not None and (self.carried is None or self.carried.link.is_alive)

    async def connect(self, first: Callable[[SiteTransports], Awaitable[None]] | None = None) -> Cluster:
        """Log in, unless connected; concurrent callers wait for the same login.

        Parameters
        ----------
        first : callable, optional
            Receives the login if this call begins it, before any other use.

        Raises
        ------
        NotConnected
            The login was ended meanwhile.
        SlurmError
            The login failed; the next call tries again.
        """
        if self._cluster is not None:
            if self.carried is not None:
                await self._wait_reconnected(self.carried)
            return self._cluster
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._log_in(first), name=f"log in to {self.profile.name}")
            self._connecting.add_done_callback(self._over)
        connecting = self._connecting
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            if not connecting.cancelled():
                raise  # the waiting caller was cancelled
        raise NotConnected(
            f"The login to {self.profile.name} was ended.", hint=f"Connect again with `%slurm use {self.profile.name}`."
        )

    async def disconnect(self, message: str = "", *, keep: bool = False) -> None:
        """End the login; jobs continue. With ``keep``, keep a login that can outlive this process."""
        if self._connecting is not None:
            self._connecting.cancel()
            self.desk.withdraw()
            await asyncio.gather(self._connecting, return_exceptions=True)
        if self._transfer_host is not None:
            self.desk.withdraw()
            self._transfer_host.close()
            self._transfer_host = None
        if self._expiry is not None:
            self._expiry.cancel()
        cluster, self._cluster = self._cluster, None
        carried, self.carried = self.carried, None
        if cluster is not None:
            await cluster.stop()
        if carried is not None:
            carried.transport.close(keep=keep)
        if not keep:
            await self._log_out(login_node=carried is None)
        self._set_state("disconnected", message)

    async def _log_out(self, *, login_node: bool) -> None:
        """End logins that an earlier process has left: to the host for transfers, and to the login node."""
        from jupyter_slurm.services.connections.transfer_host import profile_of_transfer_host
        from jupyter_slurm.services.connections.transports import log_out

        profiles = [self.profile] if login_node else []
        if "transfer_host" in self.profile.storage:
            profiles.append(profile_of_transfer_host(self.profile))
        for profile in profiles:
            with contextlib.suppress(SlurmError):
                await log_out(profile, self._context.login_folder)

    async def transfer_transport(self) -> tuple[str, Transport]:
        """Return name and transport of the host for transfers of files: of the profile, else the login node.

        Raises
        ------
        NotConnected
            The user is not logged in to the cluster.
        SlurmError
            The login to the host failed.
        """
        cluster = self.cluster
        if "transfer_host" not in self.profile.storage:
            return cluster.location.host, cluster.client.transport
        if self._transfer_host is None:
            from jupyter_slurm.services.connections.transfer_host import TransferHost  # as in _log_in

            self._transfer_host = TransferHost(self.profile, self.desk, self._context.login_folder)
        return self._transfer_host.name, await self._transfer_host.connect()

    def as_dict(self) -> api.Cluster:
        """Return the cluster in the form of the API."""
        if self._cluster is not None:
            return self._cluster.as_dict()
        name, title, slurm_conf = self.profile.name, self.profile.title, self.profile.slurm_conf
        known: api.Cluster = {"id": name, "name": title, "slurm_conf": slurm_conf, "poll": _NO_LINK_STATE}
        return {**known, **gpus_to_api(has_gpus(self.profile.known) or None), **self.describe_connection()}

    def to_api(self) -> api.Cluster:
        """Return the cluster at this moment, even if its connection has just become silent."""
        told = self.as_dict()
        connection = told.get("connection")
        if self.carried is not None and connection and (silent := self.carried.link.silent_for) >= _SILENCE_NOTICE_S:
            connection["message"] = f"{self.carried.link.name} has not answered for {silent:.0f} s"
            connection["state"] = "lost"
        return told

    def describe_connection(self) -> ClusterConnection:
        """Return the connection fields of the API."""
        hosts = list(self.carried.hosts) if self.carried else [self.profile.host]
        state, since, message = self._state, self._since, self._message
        connection: api.Connection = {"state": state, "hosts": hosts, "since": since, "message": message}
        if notice := self.profile_notice():
            connection["notice"] = notice
        users = self._context.clients.clients_to_api(self.profile.name) if self._cluster is not None else []
        return {"profile": self.profile.name, "python": self.profile.python, "connection": connection, "users": users}

    def profile_notice(self) -> str:
        """Return what to do for changes of the profile since the login; empty: there are none, or no login.

        A login, and all that was found out with it, stays as it is: an edit must not disturb what runs.
        """
        name = self.profile.name
        if self._cluster is None:
            return ""
        again = f"Log in again to use it: `jupyter slurm disconnect {name}`, then `jupyter slurm connect {name}`."
        try:
            changed = changed_keys(self.profile, load_profile(name, self._context.sites))
        except ConfigError as error:
            return f"The site profile {name} cannot be used any more. {error.message} {error.hint}".rstrip()
        return f"The site profile {name} has changed since the login ({', '.join(changed)}). {again}" if changed else ""

    async def _wait_reconnected(self, carried: SiteTransports) -> None:
        """Wait for a connection that may be down; without a time limit only while a prompt waits for the user."""
        coming = asyncio.ensure_future(carried.connect())  # at once if the connection is up
        now = asyncio.get_running_loop().time
        since = now()
        try:
            while not (await asyncio.wait({coming}, timeout=_RECONNECT_TIMEOUT_S / 30))[0]:
                if self.desk.waiting():
                    since = now()
                elif now() - since > _RECONNECT_TIMEOUT_S:
                    name = self.profile.name
                    raise TransportError(
                        f"The connection to {name} is lost.",
                        hint="jupyter_slurm reconnects automatically. Check the network and the VPN of this computer. "
                        f"To stop trying and find the cause, use `jupyter slurm disconnect {name}`, then `jupyter "
                        f"slurm doctor {name}`.",
                    )
        finally:
            coming.cancel()
        await coming

    async def _log_in(self, first: Callable[[SiteTransports], Awaitable[None]] | None) -> Cluster:
        # paramiko imports slowly, and local clusters do not need it
        from jupyter_slurm.services.connections.host_key_aliases import add_alias_hint
        from jupyter_slurm.services.connections.transports import carry

        self._set_state("connecting", "")
        self.arrival = arrival = list[Finding]()
        carried = await carry(self.profile, self.desk, self._on_link_state, self._context.login_folder, arrival.append)
        try:
            try:
                await carried.connect()
            except SlurmError as error:
                if isinstance(error, HostKeyChanged):
                    await add_alias_hint(error, self.profile, self._context.sites)
                arrival.append(carried.failure(error))
                raise
            if first is not None:
                await first(carried)
            where = await inspect_location(carried.transport, self.profile, self._context.poll_shortest)
            await make_owned_folder(
                carried.transport, where.folder
            )  # before any file in the folder is trusted as a job
            cluster = await self._context.new_cluster(where, carried.transport, self)
            cluster.submitter.notices.append(self.profile_notice)
        except BaseException:
            carried.transport.close()
            raise
        self.carried, self._cluster = carried, cluster
        if self.profile.max_age is not None:
            since = carried.link.since or self._clock()  # the login may be older than this process
            left = max(0.0, self.profile.max_age - (self._clock() - since))
            self._expiry = AgeTimer(left, self._expire)
        self._set_state("connected", "")
        return cluster

    def _over(self, task: asyncio.Task[Cluster]) -> None:
        self._connecting = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._set_state("disconnected", error.message if isinstance(error, SlurmError) else type(error).__name__)

    def _expire(self) -> None:
        hours = (self.profile.max_age or 0) / 3600
        ending = asyncio.ensure_future(self.disconnect(f"the login was {hours:.3g} h old"))
        ending.add_done_callback(lambda task: task.exception())

    def _on_link_state(self, message: str, is_up: bool) -> None:
        """React to a change of the connection."""
        log.info("%s", message)
        if self._cluster is not None:
            self._set_state("connected" if is_up else "lost", message)

    def _set_state(self, state: str, message: str) -> None:
        if state != self._state:
            self._since = self._clock()
        self._state, self._message = state, message
        self.publish()

    def publish(self) -> None:
        """Publish the present state."""
        with contextlib.suppress(SlurmError):
            self._context.bus.publish("cluster", self.as_dict())
