"""The queue of a cluster as its poller asks for it: what is asked, and whether anybody needs the answer."""

from __future__ import annotations

import contextlib

from jupyter_slurm.errors import SlurmError
from jupyter_slurm.services.event_bus import EventBus
from jupyter_slurm.services.jobs.directory_scan import JobDirectoryScan
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.slurm.client import SlurmClient

__all__ = ["PolledQueue"]


class PolledQueue:
    """The queue, the job directories, and the names of jobs that were submitted elsewhere.

    Parameters
    ----------
    client, tracker, scan
        Of the cluster.
    bus : EventBus
        Its listeners show jobs on a screen.
    """

    def __init__(self, client: SlurmClient, tracker: Tracker, scan: JobDirectoryScan, bus: EventBus) -> None:
        self._client, self._tracker, self._scan, self._bus = client, tracker, scan, bus

    async def look(self) -> bool:
        """Read the job directories and the queue; return whether a job has changed."""
        await self._scan.refresh()
        changed = await self._tracker.look()
        if self._bus.is_looked_at:
            with contextlib.suppress(SlurmError):
                await self.learn_names()
        return changed

    def is_needed(self) -> bool:
        """Whether jobs of the user go on, or a screen would show those that a terminal has submitted."""
        going = any(entry.id is not None for entry in self._tracker.active()) or bool(self._tracker.unverified())
        return going or self._bus.is_looked_at

    def is_waited_for(self) -> bool:
        """Whether a user is in front of a screen on which only the queue shows what becomes of a job."""
        if self._tracker.is_listened_to():
            return True
        return self._bus.is_looked_at and any(
            entry.state.is_pending or not entry.gives_signs for entry in self._tracker.active() if entry.id is not None
        )

    async def learn_names(self) -> None:
        """Ask once for the names of jobs that were submitted elsewhere: the poll asks for no free text."""
        if self._tracker.nameless() and self._client.singles.is_ready():
            await self._client.singles.take()
            self._tracker.name_them(await self._client.names())
