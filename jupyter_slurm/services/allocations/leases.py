"""Ends of allocations: release by the user, release after a kernel was killed, and keeping without a kernel.

A kernel that ends in order releases its allocations. The system reports the end of a killed kernel: this agent knows
the process that requested the allocation. A restarted kernel has some time to continue with the allocation. Processes
survive suspend of the machine, and a restarted agent knows no process; in both cases the lease decides. A kept
allocation has no kernel: its lease and its time limit end it, unless a kernel takes it up.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from jupyter_slurm.errors import JobError, SlurmError, UsageError
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.tracker import Tracker

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["AllocationRequest", "Leases"]

log = logging.getLogger(__name__)

_GRACE_PERIOD_S = 300.0  # seconds without a kernel, a step or a follower


class AllocationRequest(TypedDict):
    """Fields of a submission that say whose allocation it is."""

    key: str
    kind: str
    lease: NotRequired[api.SubmissionLease]
    process: NotRequired[int | None]


class Leases:
    """Note released allocations, and release allocations that nobody uses.

    Parameters
    ----------
    tracker : Tracker
        Tracker of the cluster.
    """

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self._processes: dict[str, int] = {}  # process that requested each allocation
        self._alone: dict[str, float] = {}  # time since which an allocation has no user
        self._forgotten: str | None = None  # allocation that is being released for a killed process

    def record_owner(self, requested: AllocationRequest) -> None:
        """Note the process that requested an allocation which ends with that process."""
        lease, process = requested.get("lease"), requested.get("process")
        if requested["kind"] == "allocation" and lease and process and not lease.get("keep"):
            self._processes[requested["key"]] = process

    def note(self, entry: TrackedJob, signal: str | None) -> None:
        """Note the release of an allocation: for Slurm it is cancelled like any job."""
        if signal is None and entry.kind == "allocation" and entry.record is not None:
            released = "forgotten" if entry.key == self._forgotten else "asked"
            entry.record = replace(entry.record, released=released)
            self._tracker.schedule_save(entry)

    def keep(self, entry: TrackedJob, *, keep: bool, notebook: str | None, process: int | None) -> None:
        """Keep an allocation without the kernel that requested it, or give it to another kernel.

        Parameters
        ----------
        entry : TrackedJob
            The allocation.
        keep : bool
            Whether the allocation outlives kernels. Otherwise it ends with ``process``.
        notebook : str or None
            Notebook whose next kernel the allocation is for.
        process : int or None
            Process that asks.

        Raises
        ------
        UsageError
            The job is not an allocation that a kernel can hold.
        JobError
            The allocation has ended.
        """
        record, key = entry.record, entry.key
        lease = record.lease if record is not None and record.kernel is None else None
        if record is None or lease is None or lease.once or key is None or entry.is_step:
            raise UsageError(
                f"Job {entry.id or entry.key} is not an allocation that can outlive a kernel.",
                hint="Only allocations of %salloc can be kept. Those of remote kernels end with their kernel.",
            )
        if entry.is_finished or record.released:
            raise JobError(
                f"Allocation {entry.id or entry.key} has ended or was released ({entry.state.name}).",
                hint="Request a new allocation with %salloc.",
            )
        entry.record = replace(record, lease=replace(lease, keep=keep, notebook=notebook if keep else None))
        self._alone.pop(key, None)
        if keep or process is None:
            self._processes.pop(key, None)
        else:
            self._processes[key] = process
        self._tracker.schedule_save(entry)
        self._tracker.publish(entry)

    async def tend(self, cancel: Callable[[str], Awaitable[Any]]) -> None:
        """Release the allocation of a process that is gone, unless the allocation is in use.

        Parameters
        ----------
        cancel : callable
            Cancels the job with this key.
        """
        now, active = self._tracker.clock(), self._tracker.active()
        # A process without a cell does no work for any user.
        busy = {entry.allocation for entry in active if entry.is_step and entry.kind != "process"}
        held = {entry.key: entry for entry in active if entry.key in self._processes}
        self._processes = {key: process for key, process in self._processes.items() if key in held}
        for key, process in list(self._processes.items()):
            if _is_alive(process):
                continue
            if key in busy or self._tracker.follows(held[key]):
                del self._processes[key]  # has a user again; if that user is forgotten, the lease ends the allocation
                self._alone.pop(key, None)
            elif now - self._alone.setdefault(key, now) > _GRACE_PERIOD_S:
                log.info("allocation %s is given back: its kernel is gone", held[key].id)
                self._alone[key], self._forgotten = now, key  # after a failure, wait before the next attempt
                try:
                    await cancel(key)
                except SlurmError as error:
                    log.warning("allocation %s could not be given back: %s", held[key].id, error)
                finally:
                    self._forgotten = None


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # the process ID now belongs to another user, or a process runs as one: not known to be gone
    return True
