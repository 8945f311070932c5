"""Tasks of an array: their ends, even after Slurm has forgotten them, and their values for the notebook.

``tasks.json`` in the job directory has one row of :data:`COLUMNS` for each finished task. For missing tasks the end
marker of the runner is read. Files of many tasks are read together: an array of 10,000 costs a few requests.
"""

from __future__ import annotations

import base64
import itertools
import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from jupyter_slurm.domain.advice.endings import own_exit_code
from jupyter_slurm.domain.advice.reasons import explain
from jupyter_slurm.domain.ids import MAX_TRACKED_TASKS, JobId, TaskRange
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.domain.states import JobState
from jupyter_slurm.errors import ParseError, SlurmError, TransportError, UntrustedFile
from jupyter_slurm.runner.cell.sweep_parameters import FILE as SWEEP
from jupyter_slurm.services.jobdir.job_written_files import parse_untrusted, read_files, read_time, read_whole
from jupyter_slurm.services.jobdir.ownership import is_owned
from jupyter_slurm.services.jobdir.untrusted_json import parse_json
from jupyter_slurm.services.jobs.job import NOT_SUBMITTED, UNKNOWN, TrackedJob
from jupyter_slurm.services.large_answers import call_off_loop
from jupyter_slurm.transport.base import Transport

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["COLUMNS", "cancelled", "first_failed", "load", "read_markers", "save", "tasks_to_api", "values"]

log = logging.getLogger(__name__)

COLUMNS = ("task", "state", "exit_code", "signal", "start_time", "end_time", "nodes", "reason")
FILE = "tasks.json"
_NOT_FAILED = ("COMPLETED", "CANCELLED", "REVOKED")

_MAX_VALUES_BYTES = 4 * 1024 * 1024  # bytes of values in one answer
_MAX_END_MARKER_BYTES = 65536  # bytes of an end marker at most
_MAX_MARKERS_BYTES = 64 << 20  # bytes of all end markers of an array
_MAX_TEXT_CHARACTERS = 10_000  # of a node list
_END = re.compile(r"end\.([0-9]{1,10})\.json")
_OUT = re.compile(r"out\.([0-9]{1,10})\.values")


async def tasks_to_api(transport: Transport, entry: TrackedJob, *, parameters: bool) -> api.Tasks:
    """Return the tasks of an array in the form of the API, without a request to Slurm.

    Parameters
    ----------
    transport : Transport
    entry : TrackedJob
        The array, with its tasks loaded; for an array in parts, all parts joined.
    parameters : bool
        Whether the parameters of a sweep are included.

    Raises
    ------
    ParseError
        Parameters were requested, and their table is damaged.
    """
    if not entry.is_array:
        return {"columns": list(COLUMNS), "rows": [], "names": [], "parameters": []}
    names, table = await _parameters(transport, entry) if parameters else ([], [])
    waiting = _waiting(entry)
    # A row that Slurm cut may stand for any task.
    rest = next((row for row in entry.slurm.rest if row.tasks and row.tasks.truncated), None)
    records = {task: entry.slurm.tasks.get(task) or waiting.get(task, rest) for task in _indices(entry)}
    rows = [[*_row(entry, task, waiting.get(task, rest)), _words(record)] for task, record in records.items()]
    return {"columns": [*COLUMNS, "reason_text"], "rows": rows, "names": names, "parameters": table}


def _words(record: JobRecord | None) -> str:
    """Return the reason of a task as a sentence; empty for a task that has completed."""
    if record is None or record.state.name in ("COMPLETED", "RUNNING"):
        return ""
    return explain(record.reason, record)[0]


def first_failed(entry: TrackedJob) -> api.JobFailedTask | None:
    """Return the first task of an array that has failed, by the user's index; None if none is known."""
    if entry.id is None or entry.id.task is not None:
        return None
    rows = entry.slurm.tasks.items()
    failed = [task for task, row in rows if row.state.is_finished and row.state.name not in _NOT_FAILED]
    if not failed:
        return None
    task = min(failed)
    row = entry.slurm.tasks[task]
    signal = row.signal or None
    return {
        "task": task + (entry.offset if not entry.members else 0),
        "state": row.state.name,
        "exit_code": own_exit_code(row.state, row.exit_code, signal),
        "signal": signal,
    }


def _indices(entry: TrackedJob) -> list[int]:
    known = entry.all_tasks
    if known is not None and not known.truncated:
        return sorted(set(known.tasks()))
    return sorted({*entry.slurm.tasks, *_waiting(entry)})


def _waiting(entry: TrackedJob) -> dict[int, JobRecord]:
    """Return, by task, the rows that stand for several tasks; of more tasks than are tracked, none."""
    rows = [(row, row.tasks) for row in entry.slurm.rest if row.tasks is not None]
    if sum(tasks.count() for _, tasks in rows) > MAX_TRACKED_TASKS:
        return {}
    return {task: row for row, tasks in rows for task in tasks.tasks()}


def _row(entry: TrackedJob, task: int, waiting: JobRecord | None = None) -> list[Any]:
    record = entry.slurm.tasks.get(task) or waiting
    state = entry.task_state(record)
    if record is None or state is None or state.name in (NOT_SUBMITTED.name, UNKNOWN.name):
        return [task, state.name if state else "PENDING", None, None, None, None, "", ""]
    has_ended = record.state.is_finished
    begun = record.start_time if not record.state.is_pending else None
    end = record.end_time if has_ended else None
    signal = (record.signal or None) if has_ended else None
    code = own_exit_code(record.state, record.exit_code, signal) if has_ended else None
    return [task, record.state.name, code, signal, begun, end, record.nodes, record.reason]


def cancelled(entry: TrackedJob, task: int, now: float) -> None:
    """Record the cancellation of a task that had not started: Slurm forgets such a task at once."""
    row = entry.slurm.tasks.get(task) or entry.slurm.row_of_rest(task)
    if entry.id is None or not (row.state.is_pending if row else entry.latest is None):
        return
    number = JobId(entry.id.job, task)
    known = replace(row, id=number, tasks=None, reason="", start_time=None) if row else JobRecord(number, entry.state)
    entry.slurm.tasks[task] = replace(known, state=JobState("CANCELLED"), end_time=int(now))
    # Until the next query.
    entry.slurm.rest = [left for row in entry.slurm.rest if (left := _without(row, task)) is not None]


def _without(row: JobRecord, task: int) -> JobRecord | None:
    """Return a row of several tasks without one of them; None: no other task is left."""
    if row.tasks is None or row.tasks.truncated or task not in row.tasks or row.tasks.count() > MAX_TRACKED_TASKS:
        return row
    left = TaskRange.from_tasks((other for other in row.tasks.tasks() if other != task), row.tasks.limit)
    return replace(row, tasks=left) if left.ranges else None


async def save(transport: Transport, entry: TrackedJob) -> None:
    """Save the ends of finished tasks; unsaved ends are found again, or lost."""
    if entry.folder is None:
        return
    await load(transport, entry)
    if not (entry.slurm.tasks_read or entry.is_finished):
        return  # later, with the ends of the present file
    over = [task for task, seen in sorted(entry.slurm.tasks.items()) if seen.state.is_finished]
    ended = [row for task in over if (row := _row(entry, task))]
    if not ended or len(ended) > MAX_TRACKED_TASKS:  # no more of them are loaded
        return
    content = {"format": 1, "columns": COLUMNS, "rows": ended}
    try:
        await transport.write(entry.folder.file(FILE), json.dumps(content, separators=(",", ":")).encode())
    except (TransportError, FileNotFoundError) as error:
        log.warning("the tasks of job %s could not be written down: %s", entry.id, error)


async def load(transport: Transport, entry: TrackedJob) -> None:
    """Load, once, the ends of tasks from the job directory that Slurm has not reported.

    If the connection breaks, the next call tries again.
    """
    if entry.folder is None or entry.id is None or entry.slurm.tasks_read:
        return
    entry.slurm.tasks_read = True
    number = entry.id.job
    try:
        raw = await read_whole(transport, entry.folder.file(FILE))
        records = await call_off_loop(partial(_records, number), raw)
    except FileNotFoundError:
        records = {}
    except (SlurmError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        log.warning("%s is left alone: %s", entry.folder.file(FILE), error)
        records = {}
        entry.slurm.tasks_read = not isinstance(error, TransportError) or isinstance(error, UntrustedFile)
    missing = {task for task in _indices(entry) if task not in records and _is_open(entry, task)}
    if missing and entry.kind == "python" and (entry.is_finished or not entry.slurm.tasks):
        try:
            records |= await read_markers(transport, entry, missing)
        except TransportError:
            entry.slurm.tasks_read = False
    for task, record in records.items():
        if _is_open(entry, task):
            entry.slurm.tasks[task] = record
    is_over = entry.is_finished
    entry.start_time, entry.end_time = entry.slurm.times(entry.start_time, entry.end_time, is_over=is_over)


def _is_open(entry: TrackedJob, task: int) -> bool:
    return task not in entry.slurm.tasks or (entry.is_finished and not entry.slurm.tasks[task].state.is_finished)


def _records(number: int, raw: bytes) -> dict[int, JobRecord]:
    """Parse the file of tasks, which the job can change: it is believed only if each row has the types of a task.

    Raises
    ------
    ValueError, KeyError, TypeError
        The file is not one of jupyter_slurm.
    """
    table = parse_untrusted(raw)
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    if len(rows) > MAX_TRACKED_TASKS:
        raise ValueError(f"it has {len(rows)} rows")
    return {record.id.task: record for row in rows if (record := _record(number, row)).id.task is not None}


def _record(number: int, row: Mapping[str, Any]) -> JobRecord:
    state, nodes, reason = (row[name] or "" for name in ("state", "nodes", "reason"))
    if not all(isinstance(text, str) and len(text) <= _MAX_TEXT_CHARACTERS for text in (state, nodes, reason)):
        raise TypeError("a state, a node list or a reason is not text, or too long")
    codes = [row["task"], *(row[name] for name in ("exit_code", "signal") if row[name] is not None)]
    if not all(type(code) is int for code in codes) or row["task"] < 0:
        raise TypeError("a task or an exit code is not a number")
    start, end = (None if row[name] is None else int(read_time(row[name])) for name in ("start_time", "end_time"))
    return JobRecord(
        id=JobId(number, row["task"]),
        state=JobState(state),
        exit_code=row["exit_code"],
        signal=row["signal"],
        start_time=start,
        end_time=end,
        nodes=nodes,
        reason=reason,
    )


async def read_markers(transport: Transport, entry: TrackedJob, tasks: set[int]) -> dict[int, JobRecord]:
    """Read the runner's end markers of these tasks; a marker of a run before a requeue is left out.

    Raises
    ------
    TransportError
        The connection broke.
    """
    folder, seen = entry.folder, entry.slurm.tasks
    if folder is None or entry.id is None or not tasks:
        return {}
    try:
        listed = await transport.list_dir(folder.path)
        names = [name for name in listed if (m := _END.fullmatch(name)) and int(m[1]) in tasks]
        sizes = await transport.stat_all([folder.file(name) for name in names])
        small = [n for n in names if (stat := sizes.get(folder.file(n))) and stat.size <= _MAX_END_MARKER_BYTES]
        ends = await read_files(transport, folder.path, small, (_MAX_END_MARKER_BYTES, _MAX_MARKERS_BYTES), _marker)
    except (FileNotFoundError, UntrustedFile):
        return {}
    records = {}
    for name, marker in ends.items():
        if marker is None:
            continue
        task, (code, end, restarts, is_cancelled) = _task(name), marker
        row = seen.get(task) or JobRecord(JobId(entry.id.job, task), JobState("PENDING"))
        if restarts < (row.restarts or 0):
            continue
        start = None if row.state.is_pending else row.start_time
        state = JobState("COMPLETED" if code == 0 else "CANCELLED" if is_cancelled else "FAILED")
        records[task] = replace(
            row, state=state, reason="", exit_code=code, signal=0, start_time=start, end_time=end, restarts=restarts
        )
    return records


def _marker(content: bytes) -> tuple[int, int, int, bool] | None:
    """Return exit code, time and number of requeues of an end marker, and whether the task was cancelled."""
    try:
        marker = parse_untrusted(content)
        is_cancelled = bool(marker.get("interrupted") or marker.get("terminated"))
        return int(marker["exit_code"]), int(read_time(marker["time"])), int(marker.get("restarts") or 0), is_cancelled
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


async def _parameters(transport: Transport, entry: TrackedJob) -> tuple[list[str], list[list[str]]]:
    """Return the names of a sweep's parameters, and their values as literals: one row for each task, in order of the
    tasks.

    Raises
    ------
    ParseError
        The table is damaged.
    """
    if entry.folder is None or not (entry.record and entry.record.sweep):
        return [], []
    path = entry.folder.file(SWEEP)
    try:
        table = await call_off_loop(parse_json, await read_whole(transport, path))
        names, found = [str(name) for name in table["names"]], table["rows"]
        return names, [[str(literal) for literal in found[task]] for task in _indices(entry)]
    except (FileNotFoundError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise ParseError(f"The parameters of the sweep cannot be read from {path}: {error}") from error


async def values(transport: Transport, parts: Sequence[TrackedJob], first: int) -> api.Values:
    """Return the values of the tasks of an array from task ``first`` on, as many as fit into one answer.

    ``parts`` are the parts of an array in order; for any other array, the array itself.
    """
    for part, after in itertools.zip_longest(parts, parts[1:]):
        if after is not None and first >= after.offset:
            continue
        tasks_to_api = await _values(transport, part, max(0, first - part.offset))
        following = None if tasks_to_api["next"] is None else tasks_to_api["next"] + part.offset
        if following is None and after is not None:
            following = after.offset
        if tasks_to_api["values"] or after is None:
            found = [[task + part.offset, content] for task, content in tasks_to_api["values"]]
            return {"values": found, "next": following}
    return {"values": [], "next": None}


async def _values(transport: Transport, entry: TrackedJob, first: int) -> api.Values:
    folder = entry.folder
    if folder is None or not entry.is_array or not await is_owned(transport, folder.path):
        return {"values": [], "next": None}
    names = [name for name in await transport.list_dir(folder.path) if _OUT.fullmatch(name)]
    tasks = sorted(task for name in names if (task := _task(name)) >= first)
    sizes = await transport.stat_all([folder.file(f"out.{task}.values") for task in tasks])
    taken: list[int] = []
    large: list[int] = []
    room, following = _MAX_VALUES_BYTES, None
    for task in tasks:
        stat = sizes.get(folder.file(f"out.{task}.values"))
        size = stat.size if stat is not None else 0
        if size > _MAX_VALUES_BYTES:
            large.append(task)
        elif size > room:
            following = task
            break
        else:
            taken.append(task)
            room -= size
    limits = (_MAX_VALUES_BYTES, _MAX_VALUES_BYTES)
    contents = await read_files(transport, folder.path, [f"out.{task}.values" for task in taken], limits, _base64)
    found: list[list[Any]] = [*([task, None] for task in large), *([_task(n), text] for n, text in contents.items())]
    return {"values": sorted(found, key=lambda pair: pair[0]), "next": following}


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _task(name: str) -> int:
    return int(name.split(".")[1])
