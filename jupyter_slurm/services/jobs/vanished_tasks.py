"""Array tasks that end while nobody looks: Slurm forgets them while other tasks of the array still run."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from jupyter_slurm.domain.ids import MAX_TRACKED_TASKS, TaskRange
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.errors import SlurmError, TransportError
from jupyter_slurm.services.jobs import array_tasks
from jupyter_slurm.services.jobs.failures import ACCOUNTING_LAG_S, contained, ends_in_accounting
from jupyter_slurm.services.jobs.job import UNKNOWN, TrackedJob
from jupyter_slurm.services.slurm.client import SlurmClient
from jupyter_slurm.transport.base import Transport

__all__ = ["ask_accounting", "has_extent", "is_question_due", "read_vanished"]

log = logging.getLogger(__name__)


async def read_vanished(transport: Transport, entry: TrackedJob, rows: Sequence[JobRecord]) -> bool | None:
    """Note the tasks without a known end that an answer of the queue does not show, and read their end markers once.

    Without rows the whole job has left the queue, and accounting is asked for the job instead of its tasks.
    Return whether an end was found; None if the connection broke: the new tasks are left to the next answer.
    """
    missing, known = _unlisted(entry, rows), entry.slurm.vanished
    new, is_read = missing - known.keys(), True
    if new:
        await array_tasks.load(transport, entry)
        is_read = entry.folder is None or entry.slurm.tasks_read
        if is_read and entry.kind == "python":
            try:
                entry.slurm.tasks |= await array_tasks.read_markers(transport, entry, new - _ended(entry))
            except TransportError:
                is_read = False
        missing -= _ended(entry)
    noted = missing if is_read else missing - new
    entry.slurm.vanished = {task: known.get(task, 0.0) if rows else math.inf for task in noted}
    return not new <= missing if is_read else None


def has_extent(entry: TrackedJob) -> bool:
    """Return whether no task of an array can be missing from its tasks and its vanished tasks."""
    return _requested(entry) is not None or not entry.slurm.rest


def is_question_due(entry: TrackedJob, now: float) -> bool:
    """Return whether accounting is to be asked for ends of vanished tasks; new ones share a question with others."""
    is_waiting = any(at <= now for at in entry.slurm.vanished.values())
    return is_waiting and now - entry.slurm.ends_asked >= ACCOUNTING_LAG_S


async def ask_accounting(client: SlurmClient, arrays: Sequence[TrackedJob], now: float) -> Sequence[TrackedJob]:
    """Ask slurmdbd for the ends of the vanished tasks of arrays; return these arrays, or none without an answer."""
    for entry in arrays:
        entry.slurm.ends_asked = now
    try:
        answer = await ends_in_accounting(client, arrays, now)
    except SlurmError as error:
        log.warning("accounting gave no answer about tasks that have left the queue: %s", error)
        return []
    if answer is None:
        return []
    for entry in arrays:
        with contained(entry):
            _settle(entry, answer.records_of(entry), now, answer.lag)
    return arrays


def _settle(entry: TrackedJob, told: Iterable[JobRecord], now: float, lag: float) -> None:
    """Take the ends of vanished tasks from an answer of accounting, which may learn of an end ``lag`` seconds later."""
    slurm = entry.slurm
    ends = [row for row in told if row.id.task in slurm.vanished and row.state.is_finished]
    slurm.take_rows([*ends, *slurm.rest])
    for task in [task for task, at in slurm.vanished.items() if at <= now]:
        is_last = not lag or slurm.vanished[task] > 0
        slurm.vanished[task] = math.inf if is_last else now + lag
        seen = slurm.tasks.get(task)
        if is_last and seen is not None:  # one that waited may have been cancelled, and has no end then
            del slurm.tasks[task]
            if not seen.state.is_pending:
                slurm.tasks[task] = replace(seen, state=UNKNOWN)


def _ended(entry: TrackedJob) -> set[int]:
    return {task for task, row in entry.slurm.tasks.items() if row.state.is_finished}


def _requested(entry: TrackedJob) -> TaskRange | None:
    """Return the tasks with which an array was submitted; None if unknown, or if not all of them are listed."""
    tasks = entry.all_tasks
    return None if tasks is None or tasks.truncated else tasks


def _unlisted(entry: TrackedJob, rows: Sequence[JobRecord]) -> set[int]:
    """Return the tasks, seen, requested or listed, without a known end that an answer of the queue does not show."""
    waiting = [row.tasks for row in rows if row.id.task is None and row.tasks is not None]
    is_cut = any(tasks.truncated for tasks in waiting)  # it may stand for any task that has not started
    tasks = {task for task, row in entry.slurm.tasks.items() if not (is_cut and row.state.is_pending)}
    if not is_cut:
        tasks.update(_waited(entry))
    tasks -= {row.id.task for row in rows} | _ended(entry)
    return tasks - TaskRange.joined(waiting).listed(tasks)


def _waited(entry: TrackedJob) -> Iterable[int]:
    """Return the requested tasks of an array; if unknown, those that the last answer of the queue showed as waiting."""
    if (requested := _requested(entry)) is not None:
        return requested.tasks()
    rows = [row.tasks for row in entry.slurm.rest if row.tasks is not None]
    listed = TaskRange.joined(tasks for tasks in rows if not tasks.truncated)
    return {*entry.slurm.vanished, *(listed.tasks() if listed.count() <= MAX_TRACKED_TASKS else ())}
