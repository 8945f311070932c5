"""Completion of names for the Tab key: names of the cluster and of the user's objects on the cluster."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from jupyter_slurm.domain.cluster_facts import NAMED_KINDS, NamedEntity
from jupyter_slurm.domain.profile_facts import merge_profile_facts, named_in
from jupyter_slurm.errors import SlurmError
from jupyter_slurm.services.environments.place_names import PlaceNames
from jupyter_slurm.services.inventory.facts import ClusterFacts
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.slurm.poller import Poller

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.domain.profile_tables import TomlTable

__all__ = ["NameCompletion", "profile_names_to_api"]

_OWN_KINDS: Final = ("job", "running", "finished", "step", "allocation")

_MAX_QUEUE_AGE_S = 60.0  # seconds; a newer query of the queue also finds jobs submitted outside jupyter_slurm
_MAX_JOBS, _MAX_FINISHED_JOBS = 1000, 50  # only the newest


class NameCompletion:
    """Complete names without a request to Slurm for each key press.

    Parameters
    ----------
    facts : ClusterFacts
        Facts of the cluster.
    tracker, poller
        Know the user's jobs.
    site : mapping
        The names in the profile: see :mod:`jupyter_slurm.domain.profile_facts`.
    places : PlaceNames
        Knows environments and folders.
    """

    def __init__(
        self,
        facts: ClusterFacts,
        tracker: Tracker,
        poller: Poller,
        site: Mapping[str, TomlTable],
        places: PlaceNames,
    ) -> None:
        self._facts, self._tracker, self._poller = facts, tracker, poller
        self._site, self._places = site, places
        self._refresh_task: asyncio.Task[None] | None = None

    async def to_api(self, kind: str, wait: float, partitions: str = "", start: str = "") -> api.Names:
        """Return the names of a kind in the form of the API.

        Parameters
        ----------
        kind : str
            Kind of ``listNames`` in the API.
        wait : float
            Seconds to wait at most for unknown names.
        partitions : str
            Comma-separated partitions to which generic resources, GPUs, memory and time limits are restricted.
        start : str
            Beginning of the path of a folder.
        """
        if kind in NAMED_KINDS:
            facts = await self._facts.get(wait)
            if facts is None:
                return profile_names_to_api(self._site, kind)
            return _to_api(
                facts.collected_at, merge_profile_facts(self._site, kind, facts.named(kind, partitions.split(",")))
            )
        if kind in _OWN_KINDS:
            await self._refresh_queue(wait)
            return _to_api(self._tracker.clock(), self._own_names(kind))
        found = await (self._places.folders(start) if kind == "folder" else self._places.environments(wait))
        return _to_api(self._tracker.clock(), found)

    async def stop(self) -> None:
        """Stop."""
        await self._places.stop()
        if self._refresh_task is not None:
            self._refresh_task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._refresh_task

    async def _refresh_queue(self, wait: float) -> None:
        """Query the queue if the last query is old; do not wait for a slow controller."""
        last = self._poller.last
        if self._refresh_task is None and (last is None or time.monotonic() - last > _MAX_QUEUE_AGE_S):
            self._refresh_task = asyncio.create_task(self._poll_queue(), name="look for names")
        if self._refresh_task is not None and wait > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await asyncio.shield(self._refresh_task)

    async def _poll_queue(self) -> None:
        try:
            with contextlib.suppress(SlurmError):
                await self._poller.wait_fresh(_MAX_QUEUE_AGE_S)
        finally:
            self._refresh_task = None

    def _own_names(self, kind: str) -> list[NamedEntity]:
        entries = self._tracker.all_entries() if kind == "finished" else self._tracker.active()
        if kind == "running":
            entries = [one for entry in entries for one in _joinable(entry)]
        newest = sorted(entries, key=lambda entry: entry.submit_time or 0.0, reverse=True)
        found = (named for entry in newest for named in _job_names(entry, kind))
        return list(itertools.islice(found, _MAX_FINISHED_JOBS if kind == "finished" else _MAX_JOBS))


def _joinable(entry: TrackedJob) -> Iterator[TrackedJob]:
    """Return a job in which a step may start, or such tasks of an array; allocations are known by their names."""
    if entry.is_step or entry.kind == "allocation" or entry.components():
        return
    if entry.is_array:
        views = (entry.task_view(task) for task in sorted(entry.slurm.tasks))
        yield from (view for view in views if view.state.is_running and not view.is_finished)
    elif entry.state.is_running:
        yield entry


def _job_names(entry: TrackedJob, kind: str) -> Iterator[NamedEntity]:
    """Return the name by which a user types a job, step or allocation of that kind."""
    if entry.is_step != (kind == "step") or entry.is_finished != (kind == "finished"):
        return
    record, latest = entry.record, entry.latest
    number, label = str(entry.id or entry.number or ""), record.label if record else None
    is_allocation = kind == "allocation"
    name = label if is_allocation and entry.kind == "allocation" else None if is_allocation else number
    if name:
        called = (
            number if is_allocation else label or (record.name if record else None) or (latest.name if latest else None)
        )
        nodes = (latest.nodes if latest else None) or entry.reported_nodes
        yield NamedEntity(name, ", ".join(filter(None, [called, entry.state.name, nodes])))


def profile_names_to_api(site: Mapping[str, TomlTable], kind: str) -> api.Names:
    """Return the names of a kind from the profile, while the cluster has not answered."""
    return _to_api(None, named_in(site, kind))


def _to_api(collected_at: float | None, names: Any) -> api.Names:
    """Return names for the API, without names that are not text: these fit neither into JSON nor a command line."""
    told: list[api.Name] = [{"name": name, "about": _text(about)} for name, about in names if name == _text(name)]
    return {"taken": collected_at, "names": told}


def _text(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
