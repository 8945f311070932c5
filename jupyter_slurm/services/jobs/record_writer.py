"""Writer of the job records of one cluster."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from jupyter_slurm.errors import TransportError
from jupyter_slurm.services.jobdir.index import JobIndex
from jupyter_slurm.services.jobdir.job_json_model import EndRecord
from jupyter_slurm.services.jobs import array_tasks
from jupyter_slurm.services.jobs.job import ALLOCATED_FIELDS, TrackedJob
from jupyter_slurm.services.slurm.client import SlurmClient

__all__ = ["RecordWriter", "describe_end"]

log = logging.getLogger(__name__)

_FINAL_WRITE_TIMEOUT_S = 5.0  # seconds in which all records are written at the end
_END_RETRY_S = 60.0  # seconds until an end that could not be written is written again
_UNWRITTEN = "The record of this job could not be written: "
# seconds without a further submission before records are written, and maximum number of such pauses
_WRITE_DELAYS_S = 0.1, 20


class RecordWriter:
    """Write the records of jobs.

    Parameters
    ----------
    name : str
        ID of the cluster.
    client : SlurmClient
        Client of the cluster.
    publish : callable
        Publishes a change of a job.
    store : JobIndex
        Index of finished jobs.
    """

    def __init__(self, name: str, client: SlurmClient, publish: Callable[[TrackedJob], None], store: JobIndex) -> None:
        self._name, self._client, self._publish, self._store = name, client, publish, store
        self._unwritten: dict[str, TrackedJob] = {}  # jobs whose end could not be written, by key
        self._timer: asyncio.TimerHandle | None = None  # until these ends are written again
        self._is_stopped = False
        self._saves: set[asyncio.Task[None]] = set()
        self._submitted = 0.0

    async def save(self, entry: TrackedJob) -> bool:
        """Write the present record; return whether this succeeded. Lost data is found again later."""
        if entry.folder is None or entry.record is None:
            return False
        try:
            async with entry.submission.saving:
                await entry.folder.save(self._client.transport, entry.record)
        except (TransportError, FileNotFoundError) as error:
            log.warning("the record of job %s could not be written: %s", entry.id, error)
            self._warn(entry, f"{_UNWRITTEN}{error}".replace("\n", " "))
            return False
        self._warn(entry, None)
        return True

    async def save_end(self, entry: TrackedJob) -> None:
        """Write the end of a job, and add the job to the index; without success, write it again each minute."""
        if entry.folder is None or entry.record is None:
            return
        if entry.slurm.tasks:
            await array_tasks.save(self._client.transport, entry)
        entry.submission.is_end_unwritten = not await self.save(entry)
        if not entry.submission.is_end_unwritten:
            self._store.remember(self._name, entry.folder.key, entry.record)
            return
        self._unwritten[entry.folder.key] = entry
        if self._timer is None and not self._is_stopped:
            self._timer = asyncio.get_running_loop().call_later(_END_RETRY_S, self._retry_ends)

    def _retry_ends(self) -> None:
        """Write the ends that could not be written: the disk may have room again."""
        task = asyncio.create_task(self._save_ends())
        self._saves.add(task)
        task.add_done_callback(self._saves.discard)

    async def _save_ends(self) -> None:
        self._timer, unwritten, self._unwritten = None, self._unwritten, {}
        for entry in unwritten.values():
            if entry.is_finished and entry.submission.is_end_unwritten:  # else requeued, dropped or written meanwhile
                await self.save_end(entry)
            else:
                entry.submission.is_end_unwritten = False

    def _warn(self, entry: TrackedJob, message: str | None) -> None:
        """Set the warning of a job about its last write, without those about earlier writes."""
        others = [warning for warning in entry.warnings if not warning.startswith(_UNWRITTEN)]
        is_past, entry.warnings = len(others) < len(entry.warnings), others if message is None else [*others, message]
        if is_past and message is None:
            self._publish(entry)

    def schedule_save(self, entry: TrackedJob) -> None:
        """Write the record and release the submission, after the answers to waiting callers.

        The folder already holds the data.
        """
        self._submitted = time.monotonic()
        task = asyncio.create_task(self._delayed_save(entry))
        self._saves.add(task)
        task.add_done_callback(self._saves.discard)

    async def _delayed_save(self, entry: TrackedJob) -> None:
        pause, times = _WRITE_DELAYS_S
        for _ in range(times):
            await asyncio.sleep(pause)
            if time.monotonic() >= self._submitted + pause:
                break
        try:
            await self.save(entry)
        finally:
            entry.submission.release_lock()

    async def _save_quietly(self, entry: TrackedJob) -> None:
        await self.save(entry)

    async def stop(self, active: Iterable[TrackedJob]) -> None:
        """Wait for running writes, and save the data that the next agent may not receive again.

        The time is limited: the connection may be down, and a user waits. Job directory and Slurm have the rest.

        Parameters
        ----------
        active : iterable of TrackedJob
            Jobs that are not over: the tasks of arrays are still to be saved, and when scripts were last seen running.
        """
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._retry_ends()
        writing = {*self._saves}
        for entry in active:
            if entry.slurm.tasks:
                writing.add(asyncio.create_task(array_tasks.save(self._client.transport, entry)))
            if entry.note_running(again=True):
                writing.add(asyncio.create_task(self._save_quietly(entry)))
        _, late = (
            await asyncio.wait(writing, timeout=_FINAL_WRITE_TIMEOUT_S)
            if writing
            else (writing, set[asyncio.Task[None]]())
        )
        for task in late:
            task.cancel()
        await asyncio.gather(*writing, return_exceptions=True)
        if late:
            said = "%s does not take it: what was still to be written of %d jobs is found out again by the next login"
            log.warning(said, self._name, len(late))


def describe_end(entry: TrackedJob) -> EndRecord:
    """Return the end of a job in the form of its record."""
    latest = entry.latest
    had: dict[str, Any] = {name: getattr(latest, name, None) or entry.runner.had.get(name) for name in ALLOCATED_FIELDS}
    return EndRecord(
        state=entry.state.name,
        reason=latest.reason if latest else "",
        exit_code=entry.exit_code,
        signal=entry.signal,
        start_time=entry.start_time,
        end_time=entry.end_time,
        **had,
        cpus=latest.cpus if latest else None,
        time_limit=latest.time_limit if latest else None,
        tasks=entry.counts() or None,
        components=entry.components(),
        ranks=entry.runner.ranks,
        restarts=entry.restarts,
        error=entry.error.to_problem() if entry.error else None,
    )
