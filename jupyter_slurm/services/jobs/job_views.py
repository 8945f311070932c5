"""Views of a job: the knowledge of each source, each written by one service."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jupyter_slurm.domain.ids import TaskRange
from jupyter_slurm.domain.records import JobRecord, merge_detail, representative
from jupyter_slurm.errors import JobError, TransportError
from jupyter_slurm.transport.base import DirectoryLock, Sent

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.services.jobs.session_server import SessionServer

__all__ = [
    "RunnerView",
    "SessionView",
    "SlurmView",
    "StagingView",
    "SubmissionView",
    "Upload",
    "WaitingNumbers",
    "may_run",
]


class Upload:
    """Large files on their way to the cluster.

    Parameters
    ----------
    task : asyncio.Task
        Task that sends the files.

    Attributes
    ----------
    done, total : int
        Bytes.
    """

    def __init__(self, task: asyncio.Task[object]) -> None:
        self._task, self.is_cancelled = task, False
        self.sent_bytes = self.total = 0

    def as_dict(self) -> dict[str, int]:
        """Return the upload in the form of the API."""
        return {"done": self.sent_bytes, "total": self.total}

    def cancel(self) -> bool:
        """Cancel the upload and the submission; repeated calls are allowed."""
        if not self.is_cancelled:
            self.is_cancelled = True
            self._task.cancel()
        return self.is_cancelled


def may_run(error: BaseException) -> bool:
    """Return whether a command that failed may have started: the connection broke before an answer."""
    return isinstance(error, TransportError) and bool(error.details.get("may_run"))


@dataclass
class SubmissionView:
    """Progress of a job's submission; written by services/submission, for a step by services/allocations.

    Attributes
    ----------
    lock : DirectoryLock or None
        Lock of the job directory while this agent is responsible for the submission.
    upload : Upload or None
        Present while data of the job is sent to the cluster.
    is_growing : bool
        For the first part of an array: True while other parts are still to be submitted (services/jobs/array_parts.py).
    saving : asyncio.Lock
        Held while the record is written.
    is_end_unwritten : bool
        True while the end of the job is not in its record, because the record could not be written.
    environment_offer : str
        Notice about the environments on the cluster (services/environments/environment_offers.py); empty: none.
    """

    lock: DirectoryLock | None = None
    upload: Upload | None = None
    is_growing: bool = False
    saving: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_end_unwritten: bool = False
    environment_offer: str = ""

    def release_lock(self) -> None:
        """Release the submission: it is settled, or another agent is responsible."""
        if self.lock is not None:
            self.lock.release()
            self.lock = None

    @contextlib.contextmanager
    def sending(self, name: str) -> Iterator[Sent]:
        """Track the large files that this task sends, and allow the user to cancel that.

        Yields a function that receives the progress; ``name`` is the name of the job.

        Raises
        ------
        JobError
            The transfer was cancelled: nothing remains on the cluster.
        """
        task = asyncio.current_task()
        assert task is not None
        upload = Upload(task)

        def sent(done: int, total: int) -> None:
            upload.sent_bytes, upload.total = done, total
            self.upload = upload if done < total else None  # a complete transfer may already be in use

        try:
            yield sent
        except asyncio.CancelledError:
            if not upload.is_cancelled:
                raise
            task.uncancel()
            raise JobError(
                f"The submission of {name} was cancelled while its files were being sent, so nothing was submitted.",
                hint="Run the cell again.",
            ) from None
        finally:
            self.upload = None


@dataclass(frozen=True)
class WaitingNumbers:
    """Numbers of a pending job: the resources it waits for; written by services/clusters/waiting_jobs.py.

    Attributes
    ----------
    reason : str
        Slurm's reason to which the numbers belong.
    words, next_step : str
        Explanation and advice; an empty advice is that of the reason.
    next_end : api.JobNextEnd or None
        The running job that is expected to end next and has what this one waits for.
    """

    reason: str
    words: str
    next_step: str = ""
    next_end: api.JobNextEnd | None = None


@dataclass
class SlurmView:
    """Slurm's view of a job; written by the tracker and the services it calls, for a step by services/allocations.

    Recovery of a submission sets whether the state is known (``lose_sight``, ``regain_sight``).

    Attributes
    ----------
    latest : JobRecord or None
        Latest record from Slurm; for an array, of the part that determines the state.
    tasks, rest : dict, list
        Array tasks by index, as last seen; ``rest`` are the rows that stood for several tasks in the last query.
    vanished : dict
        Tasks without a known end that the last query did not show, each with the time of the next question to
        accounting: 0 before the first one, infinite after the last.
    ends_asked : float
        When accounting was last asked for the ends of vanished tasks.
    parts : dict
        Components of a heterogeneous job by offset, as last seen.
    submitted : int or None
        Slurm's time of submission. With the ID it identifies the job: IDs restart when a controller has lost its
        state. None until the queue has shown the job.
    known, unknown_since : bool, float or None
        False while Slurm does not answer: the state is the last one known, since ``unknown_since``.
    missing_since : float or None
        When a query first showed neither the job nor its end.
    described : bool
        Whether Slurm was asked about this job alone: only then name and output of a foreign job are known.
    blame : str
        Jobs for which it waited in vain (services/jobs/failures.py).
    numbers : WaitingNumbers or None
        What the job waits for, once a user has looked at it.
    seen_running : float or None
        When the job was last seen running.
    tasks_read, tasks_saved : bool, float
        Whether the tasks in the job directory were read; ``tasks_saved`` is the time of the last write.
    clock_offset : float
        Seconds by which the cluster's clock is ahead of the agent's.
    is_cancel_requested : bool
        Whether this agent was asked to cancel the whole job.
    """

    latest: JobRecord | None = None
    tasks: dict[int, JobRecord] = field(default_factory=dict)
    rest: list[JobRecord] = field(default_factory=list)
    vanished: dict[int, float] = field(default_factory=dict)
    ends_asked: float = 0.0
    parts: dict[int, JobRecord] = field(default_factory=dict)
    submitted: int | None = None
    known: bool = True
    unknown_since: float | None = None
    missing_since: float | None = None
    described: bool = False
    blame: str = ""
    numbers: WaitingNumbers | None = None
    seen_running: float | None = None
    tasks_read: bool = False
    tasks_saved: float = 0.0
    clock_offset: float = 0.0
    is_cancel_requested: bool = False

    def lose_sight(self, now: float) -> bool:
        """Record that the state is unknown since ``now``; return whether it was known."""
        was_known, self.missing_since = self.known, None  # only answers count
        if was_known:
            self.known, self.unknown_since = False, now
        return was_known

    def regain_sight(self) -> None:
        """Record that the state is known."""
        self.known, self.unknown_since, self.missing_since = True, None, None

    def missing_for(self, now: float) -> float:
        """Return for how many seconds queries have shown neither the job nor its end."""
        if self.missing_since is None:
            self.missing_since = now
        return now - self.missing_since

    def take_rows(self, rows: Iterable[JobRecord]) -> None:
        """Update from the rows of the queue for this job: tasks, components, and rows of several tasks."""
        rows = list(rows)
        for row in rows:
            if row.id.task is not None:
                before = self.tasks.get(row.id.task) or self.latest  # all tasks have the details of their array
                self.tasks[row.id.task] = merge_detail(row, before) if before else row
                self.vanished.pop(row.id.task, None)
        self.regain_sight()
        rest = [row for row in rows if row.id.task is None and row.tasks is not None]
        self.rest = [merge_detail(row, self.latest) for row in rest] if self.latest else rest
        waiting = TaskRange.joined(row.tasks for row in rest if row.tasks is not None)
        for task in waiting.listed(self.vanished):
            del self.vanished[task]
        self.parts |= {row.id.het: row for row in rows if row.id.het is not None}

    def representative(self, rows: Iterable[JobRecord]) -> JobRecord | None:
        """Return the row that determines the state; a task that the queue no longer shows counts only at the end.

        None: accounting is still to be asked for the end of a task that was never seen.
        """
        shown = [row for task, row in self.tasks.items() if task not in self.vanished]
        chosen = representative([*shown, *(row for row in rows if row.id.task is None)])
        if chosen is not None and not chosen.state.is_finished:
            return chosen
        if last_seen := representative([self.tasks[task] for task in self.vanished if task in self.tasks]):
            return last_seen
        is_open = any(task not in self.tasks and at < math.inf for task, at in self.vanished.items())
        return None if is_open else chosen

    def take_latest(self, row: JobRecord) -> None:
        """Update from the row that determines the state."""
        self.latest = row if self.latest is None else merge_detail(row, self.latest)
        self.submitted = row.submit_time or self.submitted

    def learn_detail(self, detail: JobRecord) -> None:
        """Add name, user and output files to the rows of the job, which the poll does not request."""
        self.tasks = {task: merge_detail(row, detail) for task, row in self.tasks.items()}
        self.rest = [merge_detail(row, detail) for row in self.rest]
        self.latest = merge_detail(self.latest, detail) if self.latest else detail

    def times(self, start: float | None, end: float | None, *, is_over: bool) -> tuple[float | None, float | None]:
        """Return start and end of a job; of an array, the first start and the last end of its tasks."""
        rows = self.tasks.values()
        starts = [row.start_time for row in rows if row.start_time and row.nodes and not row.state.is_pending]
        ends = [row.end_time for row in rows if row.end_time and row.state.is_finished and is_over]
        known_starts: list[float] = [*starts, *([start] if start else [])]
        known_ends: list[float] = [*ends, *([end] if end else [])]
        return min(known_starts, default=None), max(known_ends, default=None)

    def components(self) -> list[api.JobComponent]:
        """Return the state of each component of a heterogeneous job."""
        return [
            {"id": str(part.id), "state": part.state.name, "nodes": part.nodes, "partition": part.partition}
            for _, part in sorted(self.parts.items())
        ]

    def counts(self, all_tasks: TaskRange | None) -> dict[str, int]:
        """Return the number of array tasks by state; ``all_tasks``: the tasks if Slurm may have cut the list."""
        counts = Counter(task.state.name for task in self.tasks.values())
        for row in self.rest:
            if row.tasks is not None:
                known = all_tasks if row.tasks.truncated else None
                counts[row.state.name] += known.count() - len(self.tasks) if known else row.tasks.count()
        return dict(counts)

    def row_of_rest(self, task: int) -> JobRecord | None:
        """Return the row that stands for a task and others; a row that Slurm cut may stand for any task."""
        rows = (row for row in self.rest if row.tasks is not None)
        return next((row for row in rows if row.tasks and (row.tasks.truncated or task in row.tasks)), None)


@dataclass
class RunnerView:
    """The runner's view of a job's end; written by the tracker, which reads the end marker.

    Attributes
    ----------
    had : dict
        Nodes, partition, account and QOS: the queue may not have shown the job yet.
    ranks : api.JobRanks or None
        Of a finished Python cell with a launcher: the rank that failed first, and the number of other failed ranks.
    unverified : bool
        True while the end is known only from the runner's end marker.
    sizes : dict
        Bytes that each stream had at the end; an NFS client may see fewer for a while.
    """

    had: dict[str, str] = field(default_factory=dict)
    ranks: api.JobRanks | None = None
    unverified: bool = False
    sizes: dict[str, int] = field(default_factory=dict)


@dataclass
class StagingView:
    """Progress of copying results back; written by services/staging.

    Attributes
    ----------
    progress : (int, int) or None
        While results are copied back: bytes done, and bytes in total.
    is_elsewhere : bool
        Whether the folders belong to another machine, to which the results are copied.
    """

    progress: tuple[int, int] | None = None
    is_elsewhere: bool = False


@dataclass
class SessionView:
    """Server of a running session; written by services/sessions.

    Attributes
    ----------
    server : SessionServer or None
        Address of the server, and the tunnel to it.
    stage : str
        Progress in words, before the server is ready.
    former_port : int or None
        Port on the node before the last requeue that this agent saw: its tunnel may still lead to it.
    """

    server: SessionServer | None = None
    stage: str = ""
    former_port: int | None = None
