"""Submission of the parts of an array after the first one: one after the other, all of them or none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from jupyter_slurm.errors import SlurmError
from jupyter_slurm.services.jobs.array_parts import ArrayPart, part_keys
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.submission.lost_answer_recovery import SubmissionRecovery

__all__ = ["RemainingParts", "parts_notice"]

log = logging.getLogger(__name__)


def parts_notice(parts: Sequence[ArrayPart]) -> list[str]:
    """Return the messages about an array in parts."""
    if not parts:
        return []
    first, throttled = parts[0], parts[0].is_throttled and len(parts) > 1
    arrays = "1 array" if len(parts) == 1 else f"{len(parts)} arrays"
    said = [
        (
            f"Arrays on this cluster have at most {first.size:,} tasks (MaxArraySize), so this one is "
            f"{arrays} for Slurm, with SLURM_ARRAY_TASK_ID from 0 in each. Use task_index as the "
            "number of a task."
        ),
        *(
            [("They run one after the other, so that no more tasks run at once than the number after % allows.")]
            * throttled
        ),
    ]
    return [" ".join(said)]


class RemainingParts:
    """Submit all parts of an array.

    Parameters
    ----------
    tracker, settler
        Services of the cluster.
    timeout : float
        Seconds for which a caller waits for the last part.
    """

    def __init__(self, tracker: Tracker, settler: SubmissionRecovery, timeout: float) -> None:
        self._tracker, self._settler, self._retry_delay = tracker, settler, timeout
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def has_missing_parts(self, entry: TrackedJob) -> bool:
        """Return whether an array lacks parts and no task submits them: its agent ended in the middle."""
        if entry.part is None or entry.key in self._tasks or entry.is_to_be_cancelled or entry.is_finished:
            return False
        return len(self._tracker.parts(entry)) < len(part_keys(entry))

    def start(
        self, first: TrackedJob, parts: Sequence[ArrayPart], submit: Callable[[ArrayPart], Awaitable[TrackedJob]]
    ) -> None:
        """Submit the parts after the first, in the background."""
        key = first.key or ""
        if key in self._tasks:
            return  # requested again
        first.submission.is_growing = True
        task = self._tasks[key] = asyncio.create_task(self._grow(first, parts, submit), name=f"parts of {key}")
        task.add_done_callback(lambda _: self._tasks.pop(key, None))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # reported to waiting callers

    async def wait(self, entry: TrackedJob) -> TrackedJob:
        """Return a job with all its parts, or after a time limit with the existing ones.

        Raises
        ------
        SlurmError
            A part was refused, and so is the whole array.
        """
        task = self._tasks.get(entry.key or "")
        if task is not None:
            done, _ = await asyncio.wait([task], timeout=self._retry_delay)
            if done:
                task.result()
        return self._tracker.whole(entry)

    async def stop(self) -> None:
        """Stop without the remaining parts: the job reports that."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _grow(
        self, first: TrackedJob, parts: Sequence[ArrayPart], submit: Callable[[ArrayPart], Awaitable[TrackedJob]]
    ) -> None:
        submitted, part = [first], parts[0]
        try:
            for part in parts[1:]:
                await self._settled(submitted[-1])
                if not first.submission.is_growing:
                    return  # cancelled meanwhile
                before = str(submitted[-1].id) if part.is_throttled else None
                submitted.append(await submit(replace(part, before=before)))
            await self._settled(submitted[-1])
        except SlurmError as error:
            self._cancel_submitted(submitted, part, error)
            raise
        finally:
            first.submission.is_growing = False
            self._tracker.publish(first)

    async def _settled(self, entry: TrackedJob) -> None:
        """Wait until the submission of a part is settled.

        Raises
        ------
        SlurmError
            The part was not submitted.
        """
        with self._tracker.listening(entry) as changed:
            while entry.id is None and not entry.is_finished:
                changed.clear()
                await changed.wait()
        if entry.id is None and entry.error is not None:
            raise entry.error

    def _cancel_submitted(self, submitted: Sequence[TrackedJob], part: ArrayPart, error: SlurmError) -> None:
        """Cancel the submitted parts after a failed one, and report that."""
        numbers = ", ".join(str(entry.id) for entry in submitted if entry.id is not None)
        error.message = f"Tasks {part.named()} of this array: {error.message}"
        error.hint = f"{error.hint or ''} The parts that were submitted are cancelled: {numbers}.".strip()
        submitted[0].warnings.append(error.message)
        log.warning("submission %s: %s %s", part.array_key, error.message, error.hint)
        for entry in submitted:
            self._settler.schedule_cancel(entry)
