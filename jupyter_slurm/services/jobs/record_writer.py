"""What is known of the jobs of one cluster, as it is written into their directories."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from jupyter_slurm.errors import TransportError
from jupyter_slurm.services.jobdir.job_json import EndRecord
from jupyter_slurm.services.jobs import array_tasks
from jupyter_slurm.services.jobs.job import ALLOCATED_FIELDS, TrackedJob
from jupyter_slurm.services.slurm.client import SlurmClient

__all__ = ["RecordWriter", "describe_end"]

log = logging.getLogger(__name__)

_FINAL_WRITE_TIMEOUT_S = 5.0  # seconds in which all of it is written at the end
_UNWRITTEN = "The record of this job could not be written: "
_WRITE_DELAYS_S = 0.1, 20  # seconds without another submission after which records are written; how often they wait


class RecordWriter:
    """Write the records of jobs.

    Parameters
    ----------
    name : str
        Id of the cluster.
    client : SlurmClient
        Of the cluster.
    tell : callable
        Tells everybody that a job changed.
    """

    def __init__(self, name: str, client: SlurmClient, publish: Callable[[TrackedJob], None]) -> None:
        self._name, self._client, self._publish = name, client, publish
        self._saves: set[asyncio.Task[None]] = set()
        self._submitted = 0.0

    async def save(self, entry: TrackedJob) -> bool:
        """Write the record as it stands now; return whether that went well. What is missing is found out again."""
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

    def _warn(self, entry: TrackedJob, message: str | None) -> None:
        """Have a job say what was wrong when its record was written last, and nothing of the times before."""
        others = [warning for warning in entry.warnings if not warning.startswith(_UNWRITTEN)]
        is_past, entry.warnings = len(others) < len(entry.warnings), others if message is None else [*others, message]
        if is_past and message is None:
            self._publish(entry)

    def schedule_save(self, entry: TrackedJob) -> None:
        """Write the record, and let go of the submission, when nobody waits for an answer.

        The folder knows already what is in it.
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

    async def stop(self, arrays: Iterable[TrackedJob]) -> None:
        """Wait for what is being written, and write down what the next agent may not hear any more.

        Not for long: the link may be down, and a person waits. Job directory and Slurm tell the next agent the rest.

        Parameters
        ----------
        arrays : iterable of TrackedJob
            Jobs whose tasks are still to be written down.
        """
        writing = {
            *self._saves,
            *(asyncio.create_task(array_tasks.save(self._client.transport, entry)) for entry in arrays),
        }
        _, late = (
            await asyncio.wait(writing, timeout=_FINAL_WRITE_TIMEOUT_S)
            if writing
            else (writing, set[asyncio.Task[None]]())
        )
        for task in late:
            task.cancel()
        await asyncio.gather(*writing, return_exceptions=True)
        if late:
            said = "%s does not take it: what was still to be written of %d jobs is found out again by the next log-in"
            log.warning(said, self._name, len(late))


def describe_end(entry: TrackedJob) -> EndRecord:
    """Return how a job ended, as its record has it."""
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
        error=entry.error.to_problem() if entry.error else None,
    )
