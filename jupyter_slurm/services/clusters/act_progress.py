"""Actions on many jobs that are under way: their progress, and their stop."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jupyter_slurm.errors import JobError, SlurmError
from jupyter_slurm.services.event_bus import EventBus

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["ActProgress", "RunningAct"]

_MIN_JOBS = 20  # the answer to a request for fewer jobs comes at once: nobody needs to see their progress
_KEPT_S = 600.0  # seconds for which a page that was loaded again can still read the end of its action


@dataclass(eq=False)
class RunningAct:
    """Progress of one action.

    Attributes
    ----------
    act : str
        The action, as ``cancel``.
    total, done, failed : int
        Number of all jobs, of those that were handled, and of those among them that Slurm left unchanged.
    error : SlurmError or None
        The first refusal.
    is_unattended : bool
        Whether the client went away before the answer, such as a page that was loaded again.
    """

    act: str
    total: int
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    done: int = 0
    failed: int = 0
    error: SlurmError | None = None
    is_unattended: bool = False
    ended: float | None = None
    _stopped: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_stopped(self) -> bool:
        """Return whether the user has stopped it: no further command begins."""
        return self._stopped.is_set()

    @property
    def state(self) -> str:
        """Return the state in the API."""
        if self.ended is None:
            return "stopping" if self.is_stopped else "running"
        return "stopped" if self.done < self.total else "finished"

    @property
    def is_unread(self) -> bool:
        """Return whether the result is worth showing, and the client that asked has gone."""
        return self.is_unattended and (self.state == "stopped" or (self.state == "finished" and self.failed > 0))

    def stop(self) -> None:
        """Begin no further command."""
        self._stopped.set()

    def note(self, error: SlurmError | None) -> None:
        """Count a job that was handled, and its refusal."""
        self.done += 1
        self.failed += error is not None
        self.error = self.error or error

    async def unless_stopped(self, waiting: Coroutine[Any, Any, None]) -> bool:
        """Wait, but not longer than until the action is stopped; return whether the wait is over."""
        tasks = [asyncio.ensure_future(waiting), asyncio.ensure_future(self._stopped.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done():
                tasks[0].result()
            return tasks[0].done()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class ActProgress:
    """Actions on many jobs of one cluster, for the API.

    Parameters
    ----------
    cluster : str
        ID of the cluster.
    bus : EventBus
        Publishes changes.
    clock : callable
        Seconds since the epoch.
    """

    def __init__(self, cluster: str, bus: EventBus, clock: Callable[[], float]) -> None:
        self._cluster, self._bus, self._clock = cluster, bus, clock
        self._acts: dict[str, RunningAct] = {}

    def start(self, act: str, total: int) -> RunningAct:
        """Return the progress of a new action; an action on many jobs is listed."""
        started = RunningAct(act, total)
        if total >= _MIN_JOBS:
            self._acts[started.id] = started
            self.publish(started)
        return started

    def publish(self, act: RunningAct) -> None:
        """Publish the present state of an action, if it is listed."""
        if act.id in self._acts:
            self._bus.publish("act", self._to_api(act))

    def end(self, act: RunningAct) -> None:
        """Note the end. The result stays in the list only if no answer told it to the client."""
        act.ended = self._clock()
        self.publish(act)
        if not act.is_unread:
            self._acts.pop(act.id, None)

    def list_to_api(self) -> list[api.Act]:
        """Return the actions that run, and the ends that no client has read."""
        now = self._clock()
        for act in list(self._acts.values()):
            if act.ended is not None and now - act.ended > _KEPT_S:
                del self._acts[act.id]
        return [self._to_api(act) for act in self._acts.values()]

    def stop(self, reference: str) -> api.Act:
        """Stop an action before its next command; one that has ended leaves the list.

        Raises
        ------
        JobError
            The action has ended, and its result was read.
        """
        act = self._acts.get(reference)
        if act is None:
            raise JobError(f"The action {reference} has ended.", hint="Refresh the list of jobs.")
        act.stop()
        if act.ended is not None:
            act.is_unattended = False  # a user has read the result: all pages leave it out
        self.publish(act)
        if act.ended is not None:
            del self._acts[act.id]
        return self._to_api(act)

    def _to_api(self, act: RunningAct) -> api.Act:
        return {
            "id": act.id,
            "cluster": self._cluster,
            "act": act.act,
            "state": act.state,
            "total": act.total,
            "done": act.done,
            "failed": act.failed,
            "error": act.error.to_problem() if act.error else None,
            "unread": act.is_unread,
        }
