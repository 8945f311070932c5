"""Causes of failures: an unsatisfiable dependency, the first failed rank, the end of a process; ends in accounting."""

from __future__ import annotations

import contextlib
import itertools
import logging
import re
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from jupyter_slurm.domain.advice.endings import explain_end
from jupyter_slurm.domain.ids import MAX_TRACKED_TASKS, TaskRange
from jupyter_slurm.domain.options.step_options import advise_refused, is_out_of_memory, is_time_over
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.errors import (
    CommandError,
    CommandMissing,
    ControllerError,
    JobEndUnknown,
    JobError,
    ParseError,
    SlurmError,
    TransportError,
)
from jupyter_slurm.runner.allocation.input_variables import ENVIRONMENT
from jupyter_slurm.services.jobdir.job_written_files import read_untrusted
from jupyter_slurm.services.jobs.job import ALLOCATED_FIELDS, UNKNOWN, TrackedJob
from jupyter_slurm.services.jobs.job_views import SlurmView
from jupyter_slurm.services.jobs.session_server import end_error
from jupyter_slurm.services.slurm.accounting import why_no_answer
from jupyter_slurm.services.slurm.client import SlurmClient, printable
from jupyter_slurm.services.slurm.cluster_clock import earliest_on_cluster
from jupyter_slurm.transport.base import Transport

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = [
    "ACCOUNTING_LAG_S",
    "EndMarker",
    "contained",
    "contained_update",
    "ended_with",
    "ends_in_accounting",
    "lost_with",
    "note_blame",
    "note_marker",
    "read_ranks",
    "set_unknown_end",
    "unknown_end",
    "why_ended",
]

log = logging.getLogger(__name__)

ACCOUNTING_LAG_S = 60.0
"""Seconds in which accounting may still learn of an end."""

_NEVER_SATISFIED_REASON = "DependencyNeverSatisfied"
_ID = re.compile(r"(?<=:)(\d{1,10}(?:_\d{1,10})?)(?![\d_])")
_MAX_MARKER_BYTES = 1_000_000
_MAX_REASON_CHARACTERS = 4096  # characters of a runner's text
_SIZED = ("stdout", "stderr", "display")
_HINT_ANOTHER_PROCESS = "Run %%remote again to start a new process."
_HINT_RESTART = "Restart the kernel in its notebook."


@contextlib.contextmanager
def contained(entry: TrackedJob) -> Iterator[None]:
    """Log an error about one job, so that the other jobs are updated; errors of the cluster are raised."""
    try:
        yield
    except Exception as error:
        if isinstance(error, SlurmError) and not isinstance(error, ParseError):
            raise
        log.exception("job %s (%s) is left as it is", entry.id, entry.key)


async def contained_update(entry: TrackedJob, update: Awaitable[bool]) -> bool:
    """Await an update of one job; return whether it has changed, False after an error about this job alone."""
    changes = []
    with contained(entry):
        changes.append(await update)
    return any(changes)


class EndMarker(TypedDict, total=False):
    """End marker of a job or a step; a job could have written anything into it."""

    exit_code: object
    time: object
    restarts: object
    interrupted: object
    terminated: object
    with_allocation: object
    session: object
    ranks: object
    said: object
    refused: object
    lost: object
    had: object
    sizes: object


def note_blame(entry: TrackedJob, find: Callable[[str], TrackedJob | None]) -> bool:
    """Record the cause of a dependency that can never be satisfied; return whether the cause is new."""
    latest, before = entry.latest, entry.slurm.blame
    if latest is None or _NEVER_SATISFIED_REASON not in latest.reason:
        return False
    said = []
    for number in _ID.findall(" ".join(_dependency_values(entry.record.argv if entry.record else []))):
        whole, _, task = number.partition("_")
        other = find(whole)
        other = other.task_view(int(task)) if other is not None and task else other
        if other is not None and other is not entry and other.is_finished:
            name = (other.record.name if other.record else None) or (other.latest.name if other.latest else None)
            said.append(f"Job {number}{f' ({name})' if name else ''} ended as {other.state.name}.")
    entry.slurm.blame = " ".join(dict.fromkeys(said))
    return entry.slurm.blame != before


def _dependency_values(argv: Sequence[str]) -> list[str]:
    """Return the values of --dependency, which may be abbreviated, and of -d."""
    found = []
    for word, following in itertools.zip_longest(argv, argv[1:], fillvalue=""):
        name, equals, value = word.partition("=")
        if len(name) > len("--d") and "--dependency".startswith(name):
            found.append(value if equals else following)
        elif word.startswith("-d"):
            found.append(word[2:] or following)
    return found


async def read_ranks(transport: Transport, entry: TrackedJob) -> api.JobRanks | None:
    """Return the rank of a cell that failed first, as written by its runner (``runner/ranks/launch.py``); None if none
    failed.
    """
    if entry.runner.ranks or entry.folder is None or entry.state.name == "COMPLETED":
        return entry.runner.ranks
    if not (entry.record and entry.record.launcher) or entry.is_array:
        return None
    try:
        return _ranks(await read_untrusted(transport, entry.folder.end_marker(None), _MAX_MARKER_BYTES))
    except (FileNotFoundError, TransportError, ValueError, RecursionError):
        return None


def _ranks(marker: Any) -> api.JobRanks | None:
    """Return the ranks in an end marker; None if missing or unknown."""
    try:
        told = marker["ranks"]
        first: api.JobRanksFirst = {"rank": int(told["first"]["rank"]), "node": str(told["first"]["node"])}
        first["exit_code"] = int(told["first"]["exit_code"])
        return {"first": first, "also": int(told["also"]), "ended": int(told["ended"])}
    except (ValueError, KeyError, TypeError):
        return None


def note_marker(entry: TrackedJob, marker: EndMarker) -> None:
    """Record the runner's view of a job's end, besides the exit code and the reason."""
    entry.runner.ranks, entry.runner.had = _ranks(marker), _had(marker)
    told = marker.get("sizes")
    sizes = told.items() if isinstance(told, dict) else ()
    entry.runner.sizes = {name: size for name, size in sizes if name in _SIZED and type(size) is int}


def _had(marker: EndMarker) -> dict[str, str]:
    """Return the resources in an end marker; the job could have written anything into the marker."""
    had = marker.get("had")
    told = had if isinstance(had, dict) else {}
    return {
        name: printable(told[name][:_MAX_REASON_CHARACTERS])
        for name in ALLOCATED_FIELDS
        if isinstance(told.get(name), str)
    }


def ended_with(allocation: TrackedJob | None, how: str = "", why: str = "") -> JobError:
    """Return the error of a step that ended with its allocation, or with the job that it ran in.

    Parameters
    ----------
    allocation : TrackedJob, optional
        The allocation or the joined job; None: nothing is known about it.
    how, why : str
        How it ended, and a sentence with the reason. A joined job may continue: only its holder has ended.
    """
    if allocation is None or allocation.joined is None:
        what, hint = f"The allocation {how or 'ended'}", "Request a new allocation with %salloc."
    else:
        what, hint = f"Job {allocation.joined} {how or 'ended or was released'}", "Name a running job with on=."
    return JobError(f"{what}. {why}".rstrip(), hint=hint, with_allocation=True)


def lost_with(allocation: TrackedJob | None) -> JobError:
    """Return the error of a step whose end was not recorded: its allocation ended or was requeued."""
    if allocation is None or allocation.latest is None or allocation.state.name in ("CANCELLED", "COMPLETED"):
        return ended_with(allocation)
    if not allocation.is_finished:
        return JobError("The allocation was requeued.", hint="Run the cell again.", with_allocation=True)
    return ended_with(allocation, why=explain_end(allocation.latest)[0])


def why_ended(entry: TrackedJob, marker: EndMarker, find: Callable[[str], TrackedJob | None]) -> SlurmError | None:
    """Return the error in the end marker of a session or a step, besides the exit code; None: no error.

    ``find`` returns the allocation of a key.
    """
    if marker["exit_code"] and marker.get("with_allocation"):
        how = "reached its time limit" if is_time_over(str(marker.get("lost") or marker.get("said"))) else ""
        if entry.kind == "session":
            return JobError(f"The job of the session {how or 'ended'}.", hint="Launch the session in another job.")
        return ended_with(find(entry.allocation or ""), how)
    if entry.kind == "session" and "refused" not in marker:
        return end_error(marker)
    if entry.kind == "kernel" and marker.get("said"):
        return _error_of_slurm(str(marker["said"]))
    if "refused" in marker and (step := advise_refused(str(marker["refused"]))):
        why = f" ({marker['refused']})" if entry.kind == "process" or ENVIRONMENT in str(marker["refused"]) else ""
        said = f"The process did not start{why}." if entry.kind == "process" else f"Slurm did not start the step{why}."
        return JobError(said, hint=step)
    return _error_of_lost_process(entry, marker) if "lost" in marker else None


class AccountingEnds(NamedTuple):
    """Answer of accounting about jobs.

    Attributes
    ----------
    records : dict
        Records by ``id()`` of the job.
    lag : float
        Seconds in which accounting may still learn of an end.
    why : str
        Why accounting does not have an end that is missing, without a full stop.
    """

    records: dict[int, list[JobRecord]]
    lag: float
    why: str

    def records_of(self, entry: TrackedJob) -> list[JobRecord]:
        """Return the records of a job."""
        return self.records.get(id(entry), [])

    def end_of(self, entry: TrackedJob) -> list[JobRecord]:
        """Return the records of a job that is over; none if a record is not an end: slurmdbd may have missed it."""
        records = self.records_of(entry)
        return records if all(record.state.is_finished for record in records) else []


async def ends_in_accounting(client: SlurmClient, entries: Sequence[TrackedJob], now: float) -> AccountingEnds | None:
    """Ask slurmdbd about all of these jobs at once; return None if slurmdbd does not answer.

    Raises
    ------
    ParseError, TransportError
        There is no connection, or the answer cannot be read.
    """
    begun = min((entry.submit_time or now for entry in entries), default=now)
    since = await earliest_on_cluster(client.transport, begun, now) - 60
    ids = [entry.id for entry in entries if entry.id is not None]
    why, lag = "accounting has no record of it", ACCOUNTING_LAG_S
    try:
        records = await client.accounting.history(ids, since)
    except ControllerError:
        for entry in entries:
            entry.slurm.missing_since = None
        return None
    except (CommandError, CommandMissing) as error:
        records, lag, why = [], 0.0, why_no_answer(error)
    groups: defaultdict[int, list[JobRecord]] = defaultdict(list)
    for record in records:
        groups[record.id.job].append(record)
    own: dict[int, list[JobRecord]] = {}  # two of the jobs may have had the same number
    for entry in entries:
        told = groups.get(entry.id.job, []) if entry.id else []
        is_own = not told or entry.is_described_by(told)
        own[id(entry)] = told if is_own else await _own_records(client, entry, told, since)
    return AccountingEnds(own, lag, why)


async def _own_records(
    client: SlurmClient, entry: TrackedJob, records: list[JobRecord], since: float
) -> list[JobRecord]:
    """Return the records of the job's ID that belong to its script: requeued meanwhile, or not seen before."""
    if entry.script_path is None or entry.id is None:
        return []
    times = await client.accounting.submit_times(entry.script_path, entry.id.job, since)
    return [replace(record, command=entry.script_path) for record in records if record.submit_time in times]


async def set_unknown_end(transport: Transport, entry: TrackedJob, answer: AccountingEnds, now: float) -> bool:
    """Give a job an unknown end if accounting had time to learn of its end; return whether it has ended so."""
    if entry.slurm.missing_for(now) < answer.lag:
        return False
    records = answer.records_of(entry)
    state = next((record.state.name for record in records if not record.state.is_finished), "")
    error = await unknown_end(transport, entry, f"accounting still shows it as {state}" if state else answer.why)
    if entry.is_finished:  # another task has read its end meanwhile
        return False
    entry.error = entry.error or error
    _take_known_ends(entry.slurm, [record for record in records if record.state.is_finished])
    return entry.set_state(UNKNOWN, now)


def _take_known_ends(slurm: SlurmView, ends: Sequence[JobRecord]) -> None:
    """Take the ends that accounting has of the tasks of an array; the others have an unknown end."""
    is_cut = any(row.tasks is not None and row.tasks.truncated for row in ends)  # such a row may stand for any task
    waited = [] if is_cut else slurm.rest
    slurm.take_rows(ends)
    told = TaskRange.joined(row.tasks for row in slurm.rest if row.tasks is not None)
    listed = told.listed(slurm.tasks)
    slurm.tasks = {
        task: row if row.state.is_finished else replace(row, state=UNKNOWN)
        for task, row in slurm.tasks.items()
        if row.state.is_finished or task not in listed
    }
    for row in waited:
        tasks = row.tasks
        if tasks is not None and not tasks.truncated and tasks.count() <= MAX_TRACKED_TASKS:
            tasks = TaskRange.from_tasks(task for task in tasks.tasks() if task not in told and task not in slurm.tasks)
        elif told.ranges:  # the tasks cannot be compared, and none may be counted twice
            tasks = None
        if tasks is not None and (tasks.ranges or tasks.truncated):
            slurm.rest.append(replace(row, state=UNKNOWN, tasks=tasks))


async def unknown_end(transport: Transport, entry: TrackedJob, why: str) -> JobEndUnknown:
    """Return the error of a job that has left the queue, with the last that is known of it.

    Parameters
    ----------
    why : str
        Why accounting does not have the end, without a full stop.
    """
    said = [f"How it ended is not known: it has left the queue, and {why}."]
    seen, pending = entry.slurm.seen_running, entry.latest is not None and entry.latest.state.is_pending
    if seen is not None:
        said.append(f"It was last seen running at {_local_time(seen)}.")
    elif pending:
        said.append("It was last seen waiting in the queue.")
    written = None if entry.is_array else await _last_output(transport, entry)
    if written is not None:
        said.append(f"Its output was last written at {_local_time(written)}.")
    return JobEndUnknown(
        " ".join(said), hint="Read the end of its output. If its results are missing, submit it again: job.resubmit()."
    )


async def _last_output(transport: Transport, entry: TrackedJob) -> float | None:
    """Return when a job last wrote output, by the clock of the file's host; None if no output of it is found."""
    times = []
    for path in {path for path in entry.paths().values() if path}:
        try:
            found = await transport.stat(path)
        except (FileNotFoundError, TransportError, ValueError):
            continue
        if found.size:
            times.append(found.mtime)
    return max(times, default=None)


def _local_time(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


def _error_of_slurm(message: str) -> JobError:
    """Return the error of a kernel that was ended, with Slurm's reason if known."""
    if is_out_of_memory(message):
        more = "Start the kernel in an allocation with a larger --mem."
        return JobError(f"The kernel used more memory than its allocation has ({message}).", hint=more)
    return JobError(
        f"The kernel was ended by Slurm: {message}", hint="Restart the kernel. Slurm's message names the cause."
    )


def _error_of_lost_process(entry: TrackedJob, marker: EndMarker) -> JobError:
    """Return the error of a cell whose process or kernel is gone."""
    why, is_kernel = str(marker["lost"]), bool(entry.record and entry.record.kernel)
    what, hint = ("kernel", _HINT_RESTART) if is_kernel else ("process", _HINT_ANOTHER_PROCESS)
    when = "before it began" if marker.get("interrupted") else f"while it ran: all variables of the {what} are gone"
    return JobError(f"The {what} ended {when} ({why}).", hint=advise_refused(why) or hint)
