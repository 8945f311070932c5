"""Inventory of one cluster: facts, free resources, jobs of other users, usage, and room for files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from jupyter_slurm.services.inventory.accounting_usage import TrackedRun, UsageReports
from jupyter_slurm.services.inventory.all_jobs import AllJobs, RunningJobs
from jupyter_slurm.services.inventory.facts import ClusterFacts
from jupyter_slurm.services.inventory.resources import ResourceInventory
from jupyter_slurm.services.inventory.room import RoomInventory
from jupyter_slurm.services.slurm.client import SlurmClient
from jupyter_slurm.services.slurm.location import ClusterLocation

__all__ = ["Inventory", "TrackedJobs"]


@dataclass(frozen=True)
class TrackedJobs:
    """The jobs of the user, as far as jupyter_slurm knows them.

    Parameters
    ----------
    runs : callable
        Returns those that ran in a period.
    further_tasks : callable
        Returns how many array tasks run beyond one for each array.
    """

    runs: Callable[[float, float], list[TrackedRun]]
    further_tasks: Callable[[], int]


class Inventory:
    """Inventory of a cluster, queried while a user looks.

    Parameters
    ----------
    client : SlurmClient
        Queries Slurm.
    location : ClusterLocation
        User, limits of the query rate, and prices of the cluster.
    tracked : TrackedJobs
        The jobs of the user, as far as jupyter_slurm knows them.
    clock : callable
        Seconds since the epoch.
    clock_offset : callable
        Returns by how many seconds the clock of the cluster is ahead of that one.
    expand_path : callable
        Inserts the home and variables of the login node into a path of the profile.
    """

    def __init__(
        self,
        client: SlurmClient,
        location: ClusterLocation,
        tracked: TrackedJobs,
        clock: Callable[[], float],
        clock_offset: Callable[[], float],
        expand_path: Callable[[str], Awaitable[str]],
    ) -> None:
        user, interval, cost = location.user, location.min_poll_interval, location.cost
        self.facts = ClusterFacts(client, user, clock, location.advice)
        self.resources = ResourceInventory(
            client, self.facts, location, clock=clock, further_tasks=tracked.further_tasks
        )
        self.all_jobs = AllJobs(client, user, interval=interval, clock=clock, clock_offset=clock_offset)
        self.running = RunningJobs(client, user, interval=interval, clock=clock)
        self.room = RoomInventory(client, location, expand_path, clock)
        self.usage = UsageReports(client, user, cost=cost, tracked_runs=tracked.runs, clock=clock)

    async def stop(self) -> None:
        """Cancel running queries."""
        for part in (self.resources, self.all_jobs, self.running, self.room, self.facts):
            await part.stop()
