"""Examination of the route to a cluster with the login that notebooks use."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jupyter_slurm.domain.findings import Finding
from jupyter_slurm.errors import SlurmError, UsageError
from jupyter_slurm.services.clusters.remote_cluster import Site
from jupyter_slurm.services.connections.ssh_keys import enrol_key, hosts_without_key
from jupyter_slurm.services.connections.transports import SiteTransports, route_hosts
from jupyter_slurm.services.diagnostics.doctor import ClusterCheck

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["Examination", "admit"]


class Examination:
    """One examination of a cluster and its route.

    Parameters
    ----------
    site : Site
        The cluster. If not connected, the examination logs in, and the login stays.
    """

    def __init__(self, site: Site) -> None:
        self._site, self._before, self._after = site, list[Finding](), list[Finding]()
        self._has_route = False

    def to_api(self) -> api.Examination:
        """Return the findings so far in the form of the API."""
        way = self._site.arrival if self._has_route else []
        findings = (*self._before, *way, *self._after)
        carried = self._site.carried
        hops = carried.walk.hops if carried is not None else []
        return {
            "findings": [_finding(one) for one in findings],
            "failed": any(finding.status == "failed" for finding in findings),
            "keyless": [
                {"host": hops[number].host.name, "public": public} for number, public in hosts_without_key(hops)
            ],
        }

    async def run_checks(self, *, has_job: bool) -> None:
        """Check the route and the cluster; ``has_job``: a probe job follows."""
        site, profile = self._site, self._site.profile
        try:
            way = await route_hosts(profile)
        except SlurmError as error:
            self._before.append(Finding("failed", "way", error.message, error.hint))
            return
        self._before.append(Finding("ok", "way", " -> ".join(["this computer", *(host.name for host in way)])))
        is_lost = site.is_connected and not site.is_usable
        if (since := site.since) is not None and not is_lost:
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(since))
            said = f"that of {when} is used; what was found then:" if site.arrival else f"that of {when} is used"
            self._before.append(Finding("ok", "login", said))
        self._has_route = not is_lost  # findings of an earlier login do not describe a route that is broken now
        carried = await self._arrive(has_job, is_lost)
        if carried is not None:
            await self._visit(carried, has_job).run_checks()
            if "transfer_host" in profile.storage and site.is_usable:
                from jupyter_slurm.services.diagnostics.transfer_host_check import check_transfer_host

                self._after.append(await check_transfer_host(site))

    async def check_by_job(self, options: Sequence[str]) -> None:
        """Check a node with a short probe job."""
        carried = self._site.carried
        if carried is None:
            await self._site.connect()
            carried = self._site.carried
        if carried is not None:
            await self._visit(carried, has_job=True).check_by_job(options)

    async def _arrive(self, has_job: bool, is_lost: bool) -> SiteTransports | None:
        """Log in, unless connected, and run the first checks."""

        async def first(carried: SiteTransports) -> None:
            visit = ClusterCheck(
                self._site.profile,
                carried.link,
                carried.transport,
                self._site.desk,
                self._site.arrival.append,
                has_job=has_job,
            )
            await visit.arrive()

        try:
            await self._site.connect(first)
        except SlurmError as error:
            if is_lost:
                self._after.append(Finding("failed", "connection", error.message, error.hint))
            elif not any(finding.status == "failed" for finding in self._site.arrival):
                about = "shell" if any(", login" in finding.about for finding in self._site.arrival) else "login"
                self._after.append(Finding("failed", about, error.message, error.hint))
            return None
        return self._site.carried

    def _visit(self, carried: SiteTransports, has_job: bool) -> ClusterCheck:
        site = self._site
        return ClusterCheck(
            site.profile, carried.link, carried.transport, site.desk, self._after.append, has_job=has_job
        )


def _finding(one: Finding) -> api.Finding:
    return {"status": one.status, "about": one.about, "said": one.said, "todo": one.todo}


async def admit(site: Site, host: str) -> api.AdmitKeyResponse:
    """Install one of the user's keys on a host of the route that accepted none of them.

    Raises
    ------
    UsageError
        The host is not of this kind.
    TransportError
        The file cannot be written on the host.
    """
    carried = site.carried
    hops = carried.walk.hops if carried is not None else []
    for number, public in hosts_without_key(hops):
        if carried is not None and hops[number].host.name == host:
            found = await enrol_key(hops, number, public, carried.transport)
            return {"host": host, "public": public, "is_new": found.is_new, "is_taken": found.is_accepted}
    raise UsageError(
        f"{host} is not a host of this connection that lacks your key.",
        hint="`jupyter slurm doctor` shows the hosts that lack your key.",
    )
