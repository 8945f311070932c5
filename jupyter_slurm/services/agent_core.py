"""What the agent does, whoever asks and however it is hosted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import posixpath
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from jupyter_slurm.config import Settings
from jupyter_slurm.errors import (
    ConfigError,
    NotConnected,
    PromptGone,
    TransportError,
    UsageError,
)
from jupyter_slurm.services.clusters.cluster import Cluster
from jupyter_slurm.services.clusters.completion import told_by_site
from jupyter_slurm.services.clusters.housekeeping import Housekeeping, StagedCopies
from jupyter_slurm.services.clusters.site import Site, unusable
from jupyter_slurm.services.connections.clients import ClientRegistry
from jupyter_slurm.services.diagnostics.examinations import Examinations
from jupyter_slurm.services.event_bus import EventBus
from jupyter_slurm.services.images.manager import Images
from jupyter_slurm.services.jobdir.index import JobIndex
from jupyter_slurm.services.jobs import array_tasks as tasks
from jupyter_slurm.services.sessions.manager import Sessions
from jupyter_slurm.services.slurm.identity import cluster_id, read_about
from jupyter_slurm.services.slurm.location import ClusterLocation, here
from jupyter_slurm.services.tunnels.manager import Tunnels
from jupyter_slurm.sites.profile import Profile, list_profiles, load_profile
from jupyter_slurm.transport.base import Transport
from jupyter_slurm.transport.local.transport import LocalTransport

__all__ = ["Core"]

log = logging.getLogger(__name__)


class Core:
    """All clusters of a person, as one object.

    Parameters
    ----------
    settings : Settings
        What the person chose.
    folder : str, optional
        Private, on a local disk: for log-ins that outlive this process, and sockets.
    clock : callable, optional
        Seconds since the epoch.
    """

    def __init__(
        self, settings: Settings, *, folder: str | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.settings = settings
        self.bus = EventBus()
        self.users = ClientRegistry(self._used, clock)
        self._clock = clock
        private = folder or settings.runtime_dir or os.path.join(settings.state_dir, "run")
        self._private = os.path.join(private, "ssh")
        self._clusters: dict[str, Cluster] = {}
        self._sites: dict[str, Site] = {}
        self._examinations = Examinations(self._site)
        self._transport = LocalTransport()
        self._store: JobIndex | None = None
        self._registering = asyncio.Lock()
        self.housekeeping = Housekeeping(
            lambda: [(one.tracker, one.watcher, StagedCopies(one.tracker, one.staging)) for one in self._reached()],
            settings.retention_days,
            clock,
        )
        self.tunnels = Tunnels(settings, self._cluster, self._ports, clock, os.path.join(private, "tunnels"))
        self.images = Images(self._cluster)
        self.sessions = Sessions(self._cluster, self.tunnels, settings.on_this_machine("sessions"))

    async def start(self) -> None:
        """Find again what was under way: clusters, jobs, submissions without an answer."""
        self._store = JobIndex(os.path.join(self.settings.state_dir, "index.sqlite"))
        with contextlib.suppress(FileNotFoundError, TransportError):
            for name in await self._transport.list_dir(self.settings.job_root):
                await self._find_again(name)
        self.tunnels.start()
        self.sessions.start()
        self.housekeeping.start()

    async def stop(self) -> None:
        """Let go; nothing that runs on the cluster ends."""
        await self.housekeeping.stop()
        await self.sessions.stop()
        await self.tunnels.stop()
        # All at once: those whose link is dead take a few seconds.
        leaving = (site.disconnect(keep=True) for site in self._sites.values())
        await asyncio.gather(*leaving, *(cluster.stop() for cluster in self._clusters.values()))
        self.bus.close()
        self._transport.close()
        if self._store is not None:
            self._store.close()

    def holds(self) -> dict[str, int]:
        """Return what would be lost, or have to wait, if the agent went now."""
        held = {
            "submissions": sum(cluster.settler.under_way for cluster in self._reached()),
            "connections": sum(site.is_connected for site in self._sites.values()),
            "tunnels": self.tunnels.held,
            "folders": sum(cluster.staging.held for cluster in self._reached()),
        }
        return {kind: number for kind, number in held.items() if number}

    def clusters(self) -> list[dict[str, Any]]:
        """Return the clusters known, and those that a site profile names."""
        local = [cluster.as_dict() for cluster in self._clusters.values()]
        names = {name for name, site in self._sites.items() if not site.is_idle} | {*list_profiles(self.settings.sites)}
        return local + [self._told(name) for name in sorted(names - {*self._clusters})]

    def cluster(self, cluster: str) -> dict[str, Any]:
        """Return one cluster that is known."""
        site = self._sites.get(cluster)
        return self._cluster(cluster).as_dict() if site is None else site.now()

    async def register_cluster(
        self, slurm_conf: str | None, path: str | None, profile: str | None = None
    ) -> dict[str, Any]:
        """Know the Slurm that a front door sees with its SLURM_CONF and PATH, or that of a site profile."""
        if profile is not None:
            return self._site(profile).as_dict()
        if slurm_conf is not None and not posixpath.isabs(slurm_conf):
            raise UsageError(
                f"SLURM_CONF must be an absolute path, not {slurm_conf!r}", hint="export SLURM_CONF=/…/slurm.conf"
            )
        async with self._registering:
            cluster = await self._known(slurm_conf, path)
        if not cluster.name:
            await cluster.identify()
            self.bus.publish("cluster", cluster.as_dict())  # who listens has heard of it before it had a name
        return cluster.as_dict()

    async def connect(self, cluster: str) -> dict[str, Any]:
        """Log in to the cluster of a profile, unless that is done; see :meth:`Site.connect`."""
        if (site := self._sites.get(cluster)) is None:
            return self._cluster(cluster).as_dict()
        await (await site.connect()).identify()
        return site.as_dict()

    def check_connected(self, cluster: str) -> None:
        """See that nobody has to be asked anything before this cluster can be used.

        Raises
        ------
        NotConnected
            There is a log-in to be made first, or to be waited for.
        """
        if (site := self._sites.get(cluster)) is None:
            self._cluster(cluster)
        elif not site.is_usable:
            raise NotConnected(f"Nobody is logged in to {cluster}.", hint=f"`%slurm use {cluster}` logs in.")

    async def disconnect(self, cluster: str) -> dict[str, Any]:
        """End the log-in to the cluster of a profile."""
        if cluster not in self._sites and cluster not in list_profiles(self.settings.sites):
            return self._cluster(cluster).as_dict()
        site = self._site(cluster)
        await site.disconnect()
        return site.as_dict()

    async def examine(self, cluster: str, *, job: str = "none", options: Sequence[str] = ()) -> dict[str, Any]:
        """See :meth:`Examinations.examine`."""
        return await self._examinations.examine(cluster, job=job, options=options)

    def examination(self, cluster: str) -> dict[str, Any]:
        """See :meth:`Examinations.told`."""
        return self._examinations.told(cluster)

    async def admit(self, cluster: str, host: str) -> dict[str, Any]:
        """See :meth:`Examinations.admit`."""
        return await self._examinations.admit(cluster, host)

    def prompts(self) -> list[dict[str, Any]]:
        """Return what hosts want to know from the person."""
        return [prompt for site in self._sites.values() for prompt in site.desk.waiting()]

    def answer(self, prompt: str, answers: list[str] | None) -> None:
        """Answer a prompt, or decline; see :meth:`Desk.answer`."""
        for site in self._sites.values():
            if site.desk.has(prompt):
                site.desk.answer(prompt, answers)
                return
        raise PromptGone("This question is settled: it was answered somewhere else, or the log-in ended.")

    async def submit(self, cluster: str, submission: dict[str, Any]) -> dict[str, Any]:
        """See :meth:`Cluster.submit`."""
        return await self._cluster(cluster).submit(submission)

    async def jobs(self, cluster: str, *, active: bool) -> list[dict[str, Any]]:
        """See :meth:`Cluster.jobs`."""
        return await self._cluster(cluster).jobs(active=active)

    async def job(self, cluster: str, ref: str) -> dict[str, Any]:
        """Return one job, by key or Slurm id."""
        return await self._cluster(cluster).job(ref)

    async def bring_results(self, cluster: str, ref: str) -> dict[str, Any]:
        """Bring back what a job has left in its folders; see :meth:`Staging.bring`."""
        where = self._cluster(cluster)
        await where.staging.bring(await where.entry(ref))
        return await where.job(ref)

    async def cancel(self, cluster: str, ref: str, signal: str | None = None) -> dict[str, Any]:
        """See :meth:`Cluster.cancel`."""
        return await self._cluster(cluster).cancel(ref, signal)

    async def act(
        self, cluster: str, act: str, refs: Sequence[str], time_limit: str | None = None
    ) -> list[dict[str, Any]]:
        """See :meth:`Acts.act`."""
        return await self._cluster(cluster).acts.act(act, refs, time_limit)

    async def resubmit(self, cluster: str, ref: str, asked: dict[str, Any]) -> dict[str, Any]:
        """See :meth:`Cluster.resubmit`."""
        return await self._cluster(cluster).resubmit(ref, asked)

    async def tasks(self, cluster: str, ref: str, *, parameters: bool) -> dict[str, Any]:
        """Return the tasks of an array; see :func:`jupyter_slurm.services.jobs.array_tasks.told`."""
        where = self._cluster(cluster)
        entry, transport = await where.entry(ref), where.client.transport
        for part in where.tracker.parts(entry):
            await tasks.load(transport, part)
        return await tasks.told(transport, where.tracker.whole(entry), parameters=parameters)

    async def values(self, cluster: str, ref: str, first: int) -> dict[str, Any]:
        """Return what tasks of an array left; see :func:`jupyter_slurm.services.jobs.array_tasks.values`."""
        where = self._cluster(cluster)
        parts = where.tracker.parts(await where.entry(ref))
        return await tasks.values(where.client.transport, parts, first)

    async def start_step(self, cluster: str, ref: str, asked: dict[str, Any]) -> dict[str, Any]:
        """Start a step in an allocation; see :meth:`Steps.start`."""
        where = self._cluster(cluster)
        return await where.steps.start(await where.entry(ref), asked)

    async def list_steps(self, cluster: str, ref: str) -> list[dict[str, Any]]:
        """Return the steps that were started in an allocation."""
        where = self._cluster(cluster)
        return where.steps.of(await where.entry(ref))

    async def kernel(self, cluster: str, ref: str, wait: float) -> dict[str, Any]:
        """Return where a kernel is reached; see :meth:`Kernels.where`."""
        where = self._cluster(cluster)
        return await where.kernels.where(await where.entry(ref), wait)

    async def script(self, cluster: str, ref: str) -> bytes:
        """See :meth:`Reader.script`."""
        return await self._cluster(cluster).reader.script(ref)

    async def source(self, cluster: str, ref: str) -> bytes:
        """See :meth:`Reader.source`."""
        return await self._cluster(cluster).reader.source(ref)

    async def report(self, cluster: str, ref: str) -> dict[str, Any]:
        """See :meth:`Reader.report`."""
        return await self._cluster(cluster).reader.report(ref)

    async def usage(self, cluster: str, ref: str) -> dict[str, Any]:
        """See :meth:`Reader.usage`."""
        return await self._cluster(cluster).reader.usage(ref)

    async def record(self, cluster: str, ref: str) -> dict[str, Any]:
        """See :meth:`Reader.record`."""
        return await self._cluster(cluster).reader.record(ref)

    async def output(self, cluster: str, ref: str, stream: str, offset: int, limit: int | None) -> tuple[bytes, int]:
        """See :meth:`Reader.output`."""
        return await self._cluster(cluster).reader.output(ref, stream, offset, limit)

    def stream(self, cluster: str, ref: str, offsets: dict[str, int]) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """See :meth:`Reader.stream`."""
        return self._cluster(cluster).reader.stream(ref, offsets)

    async def command(self, cluster: str, argv: list[str], *, table: bool, context: dict[str, Any]) -> dict[str, Any]:
        """See :meth:`Cluster.command`."""
        return await self._cluster(cluster).command(argv, table=table, context=context)

    async def options(self, cluster: str, command: str) -> dict[str, Any]:
        """See :meth:`Cluster.options`."""
        return await self._cluster(cluster).options(command)

    async def names(self, cluster: str, kind: str, wait: float, partitions: str = "") -> dict[str, Any]:
        """See :meth:`Names.told`; where nobody is logged in, the profile tells what it knows."""
        if (site := self._sites.get(cluster)) is not None and not site.is_connected:
            return told_by_site({**site.profile.known, "cost": site.profile.cost}, kind)
        return await self._cluster(cluster).names.told(kind, wait, partitions)

    async def resources(self, cluster: str, *, wait: float, is_newer: bool, has_nodes: bool) -> dict[str, Any]:
        """See :meth:`ResourcesKeeper.told`."""
        keeper = self._cluster(cluster).resources
        return await keeper.told(wait=wait, is_newer=is_newer, has_nodes=has_nodes)

    async def others(self, cluster: str, *, wait: float) -> dict[str, Any]:
        """See :meth:`OthersKeeper.told`."""
        return await self._cluster(cluster).others.told(wait=wait)

    async def accounted(
        self, cluster: str, *, start: int | None, end: int | None, account: str | None, has_jobs: bool
    ) -> dict[str, Any]:
        """See :meth:`UsageReports.told`."""
        reports = self._cluster(cluster).usage
        return await reports.told(start=start, end=end, account=account, has_jobs=has_jobs)

    async def open_tunnel(self, cluster: str, wanted: dict[str, Any]) -> dict[str, Any]:
        """See :meth:`Tunnels.open`."""
        return await self.tunnels.open(cluster, wanted)

    async def close_tunnel(self, cluster: str, tunnel: str) -> dict[str, Any]:
        """See :meth:`Tunnels.close`."""
        return await self.tunnels.close(cluster, tunnel)

    def list_tunnels(self, cluster: str) -> list[dict[str, Any]]:
        """See :meth:`Tunnels.told`."""
        return self.tunnels.told(cluster)

    async def session_way(self, key: str) -> dict[str, Any]:
        """Return where a session of any cluster answers here, and what it knows its person by."""
        return await self.sessions.way(self._reached(), key)

    async def clean(self, *, older_than_days: float | None = None, dry_run: bool = False) -> dict[str, Any]:
        """Remove the directories of jobs that ended long ago; see :meth:`Housekeeping.clean`."""
        return await self.housekeeping.clean(older_than_days=older_than_days, dry_run=dry_run)

    def _cluster(self, name: str) -> Cluster:
        if name in self._sites:
            return self._sites[name].cluster
        try:
            return self._clusters[name]
        except KeyError:
            raise UsageError(f"there is no cluster {name!r}", hint="Register it first (POST /v1/clusters).") from None

    async def _known(self, slurm_conf: str | None, path: str | None) -> Cluster:
        name = cluster_id(slurm_conf)
        if name in self._clusters:
            self._clusters[name].client.use_path(path)
            return self._clusters[name]
        cluster = await self._new_cluster(here(self.settings, slurm_conf, path), self._transport)
        self._clusters[name] = cluster
        self.bus.publish("cluster", cluster.as_dict())
        return cluster

    async def _new_cluster(self, where: ClusterLocation, transport: Transport) -> Cluster:
        if self._store is None:
            raise RuntimeError("the core has not been started")
        cluster = Cluster(
            where, transport=transport, settings=self.settings, store=self._store, bus=self.bus, clock=self._clock
        )
        cluster.tending.append(lambda: self.sessions.tend(cluster))
        await cluster.start()
        site = self._sites.get(where.id) if where.is_far else None
        profile, desk = (None, None) if site is None else (site.profile, site.desk)
        self.tunnels.know(cluster, transport, where, profile, desk)
        self.housekeeping.arrived()
        return cluster

    def _ports(self, cluster: str) -> tuple[int, int]:
        try:
            known = self._sites.get(cluster)
            profile = known.profile if known is not None else load_profile(cluster, self.settings.sites)
        except ConfigError:
            profile = Profile(cluster, "")
        return profile.ports

    def _site(self, name: str) -> Site:
        """Return the cluster of a profile, which is read anew as long as nobody is logged in there."""
        if name not in self._sites or self._sites[name].is_idle:
            profile = load_profile(name, self.settings.sites)
            self._sites[name] = Site(
                profile,
                self._new_cluster,
                self.bus,
                lambda: self.users.of(name),
                folder=self._private,
                poll_shortest=self.settings.poll_shortest,
                clock=self._clock,
            )
        return self._sites[name]

    def _used(self, cluster: str) -> None:
        if (site := self._sites.get(cluster)) is not None:
            site.tell()

    def _told(self, name: str) -> dict[str, Any]:
        """Return a cluster of a profile, also of one that cannot be used, with the reason."""
        try:
            return (self._sites[name] if name in self._sites else self._site(name)).as_dict()
        except ConfigError as error:
            return unusable(name, error.message)

    def _reached(self) -> list[Cluster]:
        """Return the clusters that can be asked now."""
        return [*self._clusters.values(), *(site.cluster for site in self._sites.values() if site.is_connected)]

    async def _find_again(self, name: str) -> None:
        try:
            raw = await self._transport.read(posixpath.join(self.settings.job_root, name, "cluster.json"))
        except (FileNotFoundError, NotADirectoryError, TransportError):
            return
        about = read_about(raw)
        if about is None or cluster_id(about[0]) != name:
            log.warning("%s/cluster.json is left alone: it is not of this folder", name)
            return
        await self._known(*about)
