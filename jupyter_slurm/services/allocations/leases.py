"""Allocations that are given back: by their person, or for a kernel that was killed and could not do it.

A kernel gives back what it asked for when it ends in order. Of one that was killed the system tells: this agent was
asked by its process, which is there no more. Whoever starts it anew has a while to go on with the allocation. A
machine that sleeps keeps its processes, and an agent that was started anew knows none: then the lease decides.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from jupyter_slurm.errors import SlurmError
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.tracker import Tracker

__all__ = ["Leases"]

log = logging.getLogger(__name__)

_GRACE = 300.0  # seconds without a kernel, a step, or anybody who follows it


class Leases:
    """Note what was given back, and give back what nobody has any more.

    Parameters
    ----------
    tracker : Tracker
        Of the cluster.
    """

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self._processes: dict[str, int] = {}  # who asked for which allocation
        self._alone: dict[str, float] = {}  # since when it has nobody
        self._forgotten: str | None = None  # what is being given back for somebody who cannot

    def asked_for(self, asked: Mapping[str, Any]) -> None:
        """Note which process has asked for an allocation that is to end with it."""
        lease, process = asked.get("lease"), asked.get("process")
        if asked["kind"] == "allocation" and lease and process and not lease.get("keep"):
            self._processes[asked["key"]] = process

    def note(self, entry: TrackedJob, signal: str | None) -> None:
        """Note that an allocation was given back: to Slurm it is cancelled as any job."""
        if signal is None and entry.kind == "allocation" and entry.record is not None:
            released = "forgotten" if entry.key == self._forgotten else "asked"
            entry.record = replace(entry.record, released=released)
            self._tracker.save_soon(entry)

    async def tend(self, cancel: Callable[[str], Awaitable[Any]]) -> None:
        """Give back what belonged to a process that is gone, unless somebody else uses it.

        Parameters
        ----------
        cancel : callable
            Cancels the job with this key.
        """
        now, active = self._tracker.clock(), self._tracker.active()
        # A process without a cell does nothing for anybody.
        busy = {entry.allocation for entry in active if entry.is_step and entry.kind != "process"}
        held = {entry.key: entry for entry in active if entry.key in self._processes}
        self._processes = {key: process for key, process in self._processes.items() if key in held}
        for key, process in list(self._processes.items()):
            if _is_alive(process):
                continue
            if key in busy or self._tracker.follows(held[key]):
                del self._processes[key]  # it has found somebody; what is forgotten then, the lease ends
                self._alone.pop(key, None)
            elif now - self._alone.setdefault(key, now) > _GRACE:
                log.info("allocation %s is given back: its kernel is gone", held[key].id)
                self._alone[key], self._forgotten = now, key  # if it fails, not again at once
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
        pass  # the number is another user's by now, or it runs as one: not known to be gone
    return True
