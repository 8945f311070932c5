"""Queries of the poller to the queue of a cluster, and the need for them."""

from __future__ import annotations

import contextlib

from jupyter_slurm.errors import SlurmError
from jupyter_slurm.services.event_bus import EventBus
from jupyter_slurm.services.jobs.directory_scan import JobDirectoryScan
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.slurm.client import SlurmClient

__all__ = ["PolledQueue"]


class PolledQueue:
    """The queue, the job directories, and the names of jobs submitted outside jupyter_slurm.

    Parameters
    ----------
    client, tracker, scan
        Services of the cluster.
    bus : EventBus
        Its listeners show jobs on a screen.
    """

    def __init__(self, client: SlurmClient, tracker: Tracker, scan: JobDirectoryScan, bus: EventBus) -> None:
        self._client, self._tracker, self._scan, self._bus = client, tracker, scan, bus

    async def poll_once(self) -> bool:
        """Read the job directories and the queue; return whether any job has changed."""
        await self._scan.refresh()
        changed = await self._tracker.poll()
        if self._bus.is_watched:
            with contextlib.suppress(SlurmError):
                await self.learn_names()
        return changed

    def is_needed(self) -> bool:
        """Return whether jobs of the user are active, or a screen would show jobs submitted in a terminal."""
        going = any(entry.id is not None for entry in self._tracker.active()) or bool(self._tracker.unverified())
        return going or self._bus.is_watched

    def is_waited_for(self) -> bool:
        """Return whether a user watches a job whose state only the queue shows."""
        if self._tracker.is_listened_to():
            return True
        return self._bus.is_watched and any(
            entry.state.is_pending or not entry.reports_events
            for entry in self._tracker.active()
            if entry.id is not None
        )

    async def learn_names(self) -> None:
        """Ask once for the names of jobs submitted outside jupyter_slurm: the poll requests no free text."""
        if self._tracker.nameless() and self._client.singles.is_ready():
            await self._client.singles.acquire()
            self._tracker.set_names(await self._client.names())
