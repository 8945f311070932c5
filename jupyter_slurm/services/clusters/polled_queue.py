"""Queries of the poller to the queue of a cluster, and the need for them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

from jupyter_slurm.errors import SlurmError
from jupyter_slurm.services.clusters.job_history import JobHistory
from jupyter_slurm.services.event_bus import EventBus
from jupyter_slurm.services.jobs.directory_scan import JobDirectoryScan
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.slurm.client import SlurmClient, job_memory
from jupyter_slurm.services.slurm.cluster_clock import ClockOffset

__all__ = ["PolledQueue"]

_RESERVED_QUERIES = 4.0  # queries about single jobs that are left to others while nobody looks at a screen


class PolledQueue:
    """The queue, the job directories, and the output files of jobs submitted outside jupyter_slurm.

    Parameters
    ----------
    client, tracker, scan
        Services of the cluster.
    bus : EventBus
        Its listeners show jobs on a screen.
    history : JobHistory
        Keeps the jobs that the queue does not show any more.
    clock : ClockOffset, optional
        Compares the clock of a remote cluster with that of this computer.


    Attributes
    ----------
    after_poll : list of callable
        Called after each answer.
    """

    def __init__(
        self,
        client: SlurmClient,
        tracker: Tracker,
        scan: JobDirectoryScan,
        bus: EventBus,
        history: JobHistory,
        clock: ClockOffset | None = None,
    ) -> None:
        self._client, self._tracker, self._scan, self._bus = client, tracker, scan, bus
        self._history, self._clock = history, clock
        self._memory: float | None = None  # unknown as yet
        self.after_poll: list[Callable[[], object]] = []

    async def poll_once(self) -> bool:
        """Read the job directories and the queue; return whether any job has changed."""
        await self._scan.refresh()
        changed = await self._tracker.poll()
        await self._compare_clocks()
        if self._memory is None and self._unreported():
            self._memory = await self._read_memory()
        if self._bus.is_watched or self._is_forgetting_files():
            with contextlib.suppress(SlurmError):
                await self.learn_files()
        self._history.note_poll(is_watched=self._bus.is_watched)
        for told in self.after_poll:
            told()
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

    async def _compare_clocks(self) -> None:
        """Note by how much the clock of a remote cluster is ahead, for durations until now."""
        if self._clock is not None and await self._clock.refresh():
            self._tracker.clock_offset = self._clock.seconds
            for entry in self._tracker.all_entries():
                entry.slurm.clock_offset = self._clock.seconds
                if not entry.is_finished:
                    self._tracker.publish(entry)

    def memory(self) -> float:
        """Return for how many seconds the end of a job is known that only the queue shows; infinite if there is none.

        Where accounting keeps the ends, they can be read at any time.
        """
        return self._memory if self._memory is not None and self._unreported() else math.inf

    def watched_count(self) -> int:
        """Return the number of active jobs whose end is lost if nobody looks at the queue in time."""
        return len(self._unreported()) if math.isfinite(self.memory()) else 0

    def _unreported(self) -> list[TrackedJob]:
        """Return the active jobs of jupyter_slurm without a runner that reports their end."""
        return [
            entry
            for entry in self._tracker.active()
            if entry.folder is not None and entry.id is not None and not (entry.reports_events or entry.is_step)
        ]

    async def _read_memory(self) -> float | None:
        """Return for how many seconds Slurm remembers the end of a job; infinite with accounting, None if unknown."""
        found = await self._client.cached_configuration()
        if not found:
            return None
        if "slurmdbd" in found.get("AccountingStorageType", ""):
            return math.inf
        return job_memory(found) or None

    def _is_forgetting_files(self) -> bool:
        """Return whether a job with unknown output files has ended: Slurm soon forgets it. A query must be to spare."""
        has_ended = any(entry.is_finished for entry in self._tracker.without_files())
        return has_ended and self._client.singles.is_ready(_RESERVED_QUERIES)

    async def learn_files(self) -> None:
        """Ask once for the output files of jobs submitted outside jupyter_slurm."""
        if (unknown := self._tracker.without_files()) and self._client.singles.is_ready():
            await self._client.singles.acquire()
            self._tracker.set_files(unknown, await self._client.output_files())
