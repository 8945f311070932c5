"""Inventory of one cluster: its facts, what is free, the jobs of others, and what was used."""

from __future__ import annotations

from collections.abc import Callable

from jupyter_slurm.services.inventory.accounting_usage import UsageReports
from jupyter_slurm.services.inventory.all_jobs import AllJobs
from jupyter_slurm.services.inventory.facts import ClusterFacts
from jupyter_slurm.services.inventory.resources import ResourceInventory
from jupyter_slurm.services.slurm.client import SlurmClient
from jupyter_slurm.services.slurm.location import ClusterLocation

__all__ = ["Inventory"]


class Inventory:
    """What a cluster has, asked for while a user looks.

    Parameters
    ----------
    client : SlurmClient
        Asks Slurm.
    location : ClusterLocation
        Whose cluster it is, how often it may be asked, and what the site takes.
    clock : callable
        Seconds since the epoch.
    """

    def __init__(self, client: SlurmClient, location: ClusterLocation, clock: Callable[[], float]) -> None:
        user, interval, cost = location.user, location.min_poll_interval, location.cost
        self.facts = ClusterFacts(client, user, clock, location.advice)
        self.resources = ResourceInventory(client, self.facts, user, interval=interval, cost=cost, clock=clock)
        self.all_jobs = AllJobs(client, user, interval=interval, clock=clock)
        self.usage = UsageReports(client, user, cost=cost, clock=clock)

    async def stop(self) -> None:
        """Break off what is being asked."""
        for part in (self.resources, self.all_jobs, self.facts):
            await part.stop()
