"""Registry of a user's clusters: those of this machine, and those of site profiles."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import posixpath
from typing import TYPE_CHECKING

from jupyter_slurm.config import Settings
from jupyter_slurm.errors import ConfigError, NotConnected, PromptGone, TransportError, UsageError
from jupyter_slurm.services.clusters.cluster import Cluster
from jupyter_slurm.services.clusters.completion_names import profile_names_to_api
from jupyter_slurm.services.clusters.remote_cluster import Site, SiteContext, unusable
from jupyter_slurm.services.slurm.location import cluster_id, local_location, parse_cluster_file
from jupyter_slurm.sites.profile import Profile, list_profiles, load_profile
from jupyter_slurm.transport.base import Transport
from jupyter_slurm.transport.local.transport import LocalTransport

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["ClusterRegistry"]

log = logging.getLogger(__name__)


class ClusterRegistry:
    """All clusters of a user, by name.

    Parameters
    ----------
    settings : Settings
        User's settings.
    sites : SiteContext
        Shared dependencies of profile clusters; also makes the clusters of this machine.
    """

    def __init__(self, settings: Settings, sites: SiteContext) -> None:
        self._settings, self._context = settings, sites
        self._clusters: dict[str, Cluster] = {}
        self._sites: dict[str, Site] = {}
        self._transport = LocalTransport()
        self._registering = asyncio.Lock()

    # -- life

    async def start(self) -> None:
        """Restore the clusters of this machine that have job directories."""
        with contextlib.suppress(FileNotFoundError, TransportError):
            for name in await self._transport.list_dir(self._settings.job_root):
                await self._find_again(name)

    async def stop(self) -> None:
        """End logins that cannot outlive this process, and stop watching clusters."""
        # Concurrently: logins with a dead connection take a few seconds.
        leaving = (site.disconnect(keep=True) for site in self._sites.values())
        await asyncio.gather(*leaving, *(cluster.stop() for cluster in self._clusters.values()))

    def close(self) -> None:
        """Close the transport of this machine after its last use."""
        self._transport.close()

    # -- for the API

    def list_clusters(self) -> list[api.Cluster]:
        """Return the known clusters and those of site profiles."""
        local = [cluster.as_dict() for cluster in self._clusters.values()]
        names = {name for name, site in self._sites.items() if not site.is_idle}
        names |= {*list_profiles(self._settings.sites)}
        return local + [self._describe_site(name) for name in sorted(names - {*self._clusters})]

    def describe(self, name: str) -> api.Cluster:
        """Return one known cluster."""
        site = self._sites.get(name)
        return self.get(name).as_dict() if site is None else site.to_api()

    async def register(self, slurm_conf: str | None, path: str | None, profile: str | None = None) -> api.Cluster:
        """Register the Slurm that a client sees with its SLURM_CONF and PATH, or the Slurm of a site profile."""
        if profile is not None:
            return self.site(profile).as_dict()
        if slurm_conf is not None and not posixpath.isabs(slurm_conf):
            raise UsageError(
                f"SLURM_CONF must be an absolute path, not {slurm_conf!r}.",
                hint="Set it like this: export SLURM_CONF=/etc/slurm/slurm.conf.",
            )
        async with self._registering:
            cluster = await self._known(slurm_conf, path)
        if not cluster.identity.name:
            await cluster.prepare()
            cluster.publish()  # listeners received the cluster before its name was known
        return cluster.as_dict()

    async def connect(self, name: str) -> api.Cluster:
        """Log in to the cluster of a profile, unless connected; see :meth:`Site.connect`."""
        if (site := self._sites.get(name)) is None:
            return self.get(name).as_dict()
        await (await site.connect()).identity.learn()
        return site.as_dict()

    async def disconnect(self, name: str) -> api.Cluster:
        """End the login to the cluster of a profile."""
        if name not in self._sites and name not in list_profiles(self._settings.sites):
            return self.get(name).as_dict()
        site = self.site(name)
        await site.disconnect()
        return site.as_dict()

    def check_connected(self, name: str) -> None:
        """Check that the cluster can be used without a prompt.

        Raises
        ------
        NotConnected
            A login is missing or not complete.
        """
        if (site := self._sites.get(name)) is None:
            self.get(name)
        elif not site.is_usable:
            raise NotConnected(f"There is no connection to {name}.", hint=f"Connect with `%slurm use {name}`.")

    def list_prompts(self) -> list[api.Prompt]:
        """Return the prompts of hosts to the user."""
        return [prompt for site in self._sites.values() for prompt in site.desk.waiting()]

    def answer_prompt(self, prompt: str, answers: list[str] | None) -> None:
        """Answer or decline a prompt; see :meth:`PromptQueue.answer`."""
        for site in self._sites.values():
            if site.desk.has(prompt):
                site.desk.answer(prompt, answers)
                return
        raise PromptGone(
            "The login prompt is no longer open: it was answered elsewhere, or the login has ended.",
            hint="Connect again if you are not logged in.",
        )

    async def list_names(self, name: str, kind: str, wait: float, partitions: str = "", start: str = "") -> api.Names:
        """Return names, see :meth:`NameCompletion.to_api`; without a login, those of the profile."""
        if (site := self._sites.get(name)) is not None and not site.is_connected:
            return profile_names_to_api({**site.profile.known, "cost": site.profile.cost}, kind)
        return await self.get(name).completion.to_api(kind, wait, partitions, start)

    # -- for other services

    def get(self, name: str) -> Cluster:
        """Return a cluster.

        Raises
        ------
        UsageError
            There is no cluster of that name.
        NotConnected
            There is no connection to the cluster.
        """
        if name in self._sites:
            return self._sites[name].cluster
        try:
            return self._clusters[name]
        except KeyError:
            raise UsageError(
                f"There is no cluster {name!r}.",
                hint="Register it first (POST /v1/clusters), or list the clusters with `%slurm list`.",
            ) from None

    def site(self, name: str) -> Site:
        """Return the cluster of a profile; read the profile again unless connected."""
        if name not in self._sites or self._sites[name].is_idle:
            self._sites[name] = Site(load_profile(name, self._settings.sites), self._context)
        return self._sites[name]

    async def transfer_transport(self, name: str) -> tuple[str, Transport]:
        """Return name and transport of the host that carries the files of a cluster; see :class:`Site`."""
        if name in self._sites:
            return await self._sites[name].transfer_transport()
        cluster = self.get(name)
        return cluster.location.host, cluster.client.transport

    def reached(self) -> list[Cluster]:
        """Return the clusters that answer now."""
        return [*self._clusters.values(), *(site.cluster for site in self._sites.values() if site.is_connected)]

    def tunnel_ports(self, name: str) -> tuple[int, int]:
        """Return the first and last local port for tunnels to a cluster."""
        try:
            known = self._sites.get(name)
            profile = known.profile if known is not None else load_profile(name, self._settings.sites)
        except ConfigError:
            profile = Profile(name, "")
        return profile.ports

    def publish_site(self, name: str) -> None:
        """Publish the present state of a profile's cluster: others use its login."""
        if (site := self._sites.get(name)) is not None:
            site.publish()

    @property
    def connections(self) -> int:
        """Return the number of logins."""
        return sum(site.is_connected for site in self._sites.values())

    # -- connections and descriptions

    async def _known(self, slurm_conf: str | None, path: str | None) -> Cluster:
        name = cluster_id(slurm_conf)
        if name in self._clusters:
            self._clusters[name].client.use_path(path)
            return self._clusters[name]
        cluster = await self._context.new_cluster(
            local_location(self._settings, slurm_conf, path), self._transport, None
        )
        self._clusters[name] = cluster
        cluster.publish()
        return cluster

    def _describe_site(self, name: str) -> api.Cluster:
        """Return a cluster of a profile; for an unusable one, include the reason."""
        try:
            return (self._sites[name] if name in self._sites else self.site(name)).as_dict()
        except ConfigError as error:
            return unusable(name, error.message)

    async def _find_again(self, name: str) -> None:
        try:
            raw = await self._transport.read(posixpath.join(self._settings.job_root, name, "cluster.json"))
        except (FileNotFoundError, NotADirectoryError, TransportError):
            return
        about = parse_cluster_file(raw)
        if about is None or cluster_id(about[0]) != name:
            log.warning("%s/cluster.json is left alone: it is not of this folder", name)
            return
        await self._known(*about)
