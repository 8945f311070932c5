"""Core of the agent: its services, composed, with one life, independent of the host process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from jupyter_slurm.config import Settings
from jupyter_slurm.services.clusters.cluster import Cluster, ClusterConnection
from jupyter_slurm.services.clusters.composition import AgentContext, compose_cluster
from jupyter_slurm.services.clusters.housekeeping import Housekeeping
from jupyter_slurm.services.clusters.registry import ClusterRegistry
from jupyter_slurm.services.clusters.remote_cluster import Site, SiteContext
from jupyter_slurm.services.connections.clients import ClientRegistry
from jupyter_slurm.services.diagnostics.running_examinations import Examinations
from jupyter_slurm.services.event_bus import EventBus
from jupyter_slurm.services.images.image_jobs import Images
from jupyter_slurm.services.jobdir.index import JobIndex
from jupyter_slurm.services.sessions.session_launch import Sessions
from jupyter_slurm.services.slurm.location import ClusterLocation
from jupyter_slurm.services.tunnels.local_tunnels import Tunnels
from jupyter_slurm.transport.base import Transport

if TYPE_CHECKING:
    from jupyter_slurm.services.environment_builds.environment_jobs import EnvironmentBuilds
    from jupyter_slurm.services.terminals.terminals import Terminals
    from jupyter_slurm.services.transfers.transfers import Transfers

__all__ = ["Core"]


class Core:
    """The services of an agent.

    Parameters
    ----------
    settings : Settings
        User's settings.
    folder : str, optional
        Private folder on a local disk, for sockets and for logins that outlive this process.
    clock : callable, optional
        Seconds since the epoch.

    Attributes
    ----------
    clusters : ClusterRegistry
        Clusters, each with its services; :meth:`cluster` returns one.
    sessions, tunnels, images, examinations, housekeeping
        Services for all clusters.
    bus : EventBus
        Publishes changes.
    users : ClientRegistry
        Clients of the clusters.
    """

    def __init__(
        self, settings: Settings, *, folder: str | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.settings = settings
        self.bus = EventBus()
        self.users = ClientRegistry(self._on_use, clock)
        self._clock = clock
        self._store: JobIndex | None = None
        private = folder or settings.runtime_dir or os.path.join(settings.state_dir, "run")
        login_folder = os.path.join(private, "ssh")
        sites = SiteContext(
            self._new_cluster,
            self.bus,
            self.users,
            login_folder,
            settings.poll_shortest,
            clock,
            settings.sites,
        )
        self.clusters = ClusterRegistry(settings, sites)
        self.examinations = Examinations(self.clusters.site)
        self.housekeeping = Housekeeping(self.clusters.reached, settings.retention_days)
        tunnel_folder = os.path.join(private, "tunnels")
        self.tunnels = Tunnels(settings, self.cluster, self.clusters.tunnel_ports, clock, tunnel_folder)
        self._terminals: Terminals | None = None
        self._terminal_folder = os.path.join(private, "terminals")
        self.images = Images(self.cluster)
        self.sessions = Sessions(self.cluster, self.tunnels, settings.machine_path("sessions"))
        self._transfers: Transfers | None = None

    async def start(self) -> None:
        """Restore the clusters, the jobs and the submissions without an answer."""
        self._store = JobIndex(self.settings.machine_path("index", ".sqlite"))
        await self._store.open()
        await self.clusters.start()
        self.tunnels.start()
        self.sessions.start()
        self.housekeeping.start()

    async def stop(self) -> None:
        """Stop the services; work that runs on the cluster continues."""
        await self.housekeeping.stop()
        if self._transfers is not None:
            await self._transfers.stop()
        await self.sessions.stop()
        if self._terminals is not None:
            self._terminals.stop()
        await self.tunnels.stop()
        await self.clusters.stop()
        self.bus.close()
        self.clusters.close()
        if self._store is not None:
            await self._store.close()

    def cluster(self, name: str) -> Cluster:
        """Return a cluster with its services; see :meth:`ClusterRegistry.get`."""
        return self.clusters.get(name)

    @property
    def transfers(self) -> Transfers:
        """Return the transfers of files; their modules are imported with the first request."""
        if self._transfers is None:
            from jupyter_slurm.services.transfers.transfers import Transfers

            self._transfers = Transfers(self.settings, self.cluster, self.clusters.transfer_transport, self.bus)
        return self._transfers

    @property
    def environments(self) -> EnvironmentBuilds:
        """Return the environments that jobs make; their modules are imported with each request, which are rare."""
        from jupyter_slurm.services.environment_builds.environment_jobs import EnvironmentBuilds

        return EnvironmentBuilds(self.cluster)

    @property
    def terminals(self) -> Terminals:
        """Return the terminals; their modules are imported with the first request."""
        if self._terminals is None:
            from jupyter_slurm.services.terminals.terminals import Terminals

            self._terminals = Terminals(self.cluster, self._terminal_folder)
        return self._terminals

    def count_holders(self) -> dict[str, int]:
        """Return the work that would be lost or delayed if the agent stopped now."""
        reached = self.clusters.reached()
        held = {
            "submissions": sum(cluster.recovery.open_count for cluster in reached),
            "connections": self.clusters.connections,
            "tunnels": self.tunnels.held,
            "transfers": 0 if self._transfers is None else self._transfers.held,
            "terminals": 0 if self._terminals is None else self._terminals.viewers,
            "folders": sum(cluster.staging.held for cluster in reached),
            "jobs": sum(cluster.jobs.watched_count() for cluster in reached),
        }
        return {kind: number for kind, number in held.items() if number}

    def warnings(self) -> list[str]:
        """Return what is wrong with this computer, in sentences; the agent works all the same."""
        return [self._store.problem] if self._store is not None and self._store.problem else []

    async def _new_cluster(self, location: ClusterLocation, transport: Transport, site: Site | None) -> Cluster:
        """Compose a cluster (with its site, if SSH reaches the cluster), and start its background work."""
        if self._store is None:
            raise RuntimeError("the core has not been started")
        agent = AgentContext(self.settings, self._store, self.bus, self._clock)
        describe_connection = ClusterConnection if site is None else site.describe_connection
        cluster = compose_cluster(location, transport, agent, describe_connection)
        await cluster.start(self.sessions.tend)
        profile, desk = (None, None) if site is None else (site.profile, site.desk)
        self.tunnels.add_cluster(cluster, transport, location, profile, desk)
        self.housekeeping.arrived()
        return cluster

    def _on_use(self, cluster: str) -> None:
        self.clusters.publish_site(cluster)
