"""Views of a job: what each side knows of it, each written by one service."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jupyter_slurm.domain.ids import TaskRange
from jupyter_slurm.domain.records import JobRecord, merge_detail
from jupyter_slurm.errors import JobError
from jupyter_slurm.services.jobs.upload import Upload
from jupyter_slurm.transport.base import DirectoryLock, Sent

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.services.jobs.session_server import SessionServer

__all__ = ["RunnerView", "SessionView", "SlurmView", "StagingView", "SubmissionView"]


@dataclass
class SubmissionView:
    """How far its submission is; written by services/submission, for a step by services/allocations.

    Attributes
    ----------
    lock : DirectoryLock or None
        The lock of the job directory while it is up to us to bring the submission to its end.
    upload : Upload or None
        While what it takes along is on its way to the cluster.
    is_growing : bool
        Of the first part of an array: True while others are still to be submitted (services/jobs/array_parts.py).
    saving : asyncio.Lock
        Held while the record is written.
    """

    lock: DirectoryLock | None = None
    upload: Upload | None = None
    is_growing: bool = False
    saving: asyncio.Lock = field(default_factory=asyncio.Lock)

    def release_lock(self) -> None:
        """Leave the submission to whoever wants to look after it: it is settled, or not ours any more."""
        if self.lock is not None:
            self.lock.release()
            self.lock = None

    @contextlib.contextmanager
    def sending(self, name: str) -> Iterator[Sent]:
        """Note how far the large files are that this task sends, and let that be given up.

        Gives what is to be called with the progress; ``name`` is that of the job.

        Raises
        ------
        JobError
            It was given up: nothing of it is there.
        """
        task = asyncio.current_task()
        assert task is not None
        upload = Upload(task)

        def sent(done: int, total: int) -> None:
            upload.sent_bytes, upload.total = done, total
            self.upload = upload if done < total else None  # what is all there may be at work

        try:
            yield sent
        except asyncio.CancelledError:
            if not upload.is_cancelled:
                raise
            task.uncancel()
            raise JobError(
                f"{name} was given up while what it takes along was on the way: nothing was submitted.",
                hint="Run the cell again.",
            ) from None
        finally:
            self.upload = None


@dataclass
class SlurmView:
    """What Slurm says of a job; written by the tracker and what it calls, for a step by services/allocations.

    Recovery of a submission says when the state is known and when it is not (``lose_sight``, ``regain_sight``).

    Attributes
    ----------
    latest : JobRecord or None
        What Slurm said last; for an array, of the part that the state is taken from.
    tasks, rest : dict, list
        Array tasks by index, as last seen; ``rest`` are the rows that stood for several at the last look.
    parts : dict
        Components of a heterogeneous job by their offset, as last seen.
    submitted : int or None
        Slurm's own time of submission. With the id it says which job this is: ids begin again when a controller has
        lost its state. None until the queue has shown the job.
    known, unknown_since : bool, float or None
        False while the controller does not answer: the state is the last one known, since ``unknown_since``.
    described : bool
        Whether Slurm was asked about this one job: only then name and output of a foreign one are known.
    blame : str
        Which jobs it waited for in vain (services/jobs/failures.py).
    tasks_read, tasks_saved : bool, float
        Whether what the job directory has of the tasks was taken in; ``tasks_saved`` is when that was written last.
    """

    latest: JobRecord | None = None
    tasks: dict[int, JobRecord] = field(default_factory=dict)
    rest: list[JobRecord] = field(default_factory=list)
    parts: dict[int, JobRecord] = field(default_factory=dict)
    submitted: int | None = None
    known: bool = True
    unknown_since: float | None = None
    described: bool = False
    blame: str = ""
    tasks_read: bool = False
    tasks_saved: float = 0.0

    def lose_sight(self, now: float) -> None:
        """Note that the state is not known from ``now`` on."""
        self.known, self.unknown_since = False, now

    def regain_sight(self) -> None:
        """Note that the state is known."""
        self.known, self.unknown_since = True, None

    def take_rows(self, rows: Iterable[JobRecord]) -> None:
        """Take in the rows of the queue that are of this job: tasks, components, and what stands for several tasks."""
        rows = list(rows)
        for row in rows:
            if row.id.task is not None:
                before = self.tasks.get(row.id.task)
                self.tasks[row.id.task] = merge_detail(row, before) if before else row
        self.regain_sight()
        self.rest = [row for row in rows if row.id.task is None and row.tasks is not None]
        self.parts |= {row.id.het: row for row in rows if row.id.het is not None}

    def take_latest(self, row: JobRecord) -> None:
        """Take in the row that the state is taken from."""
        self.latest = row if self.latest is None else merge_detail(row, self.latest)
        self.submitted = row.submit_time or self.submitted

    def components(self) -> list[api.JobComponent]:
        """Return how the components of a heterogeneous job stand."""
        return [
            {"id": str(part.id), "state": part.state.name, "nodes": part.nodes, "partition": part.partition}
            for _, part in sorted(self.parts.items())
        ]

    def counts(self, all_tasks: TaskRange | None) -> dict[str, int]:
        """Return the number of array tasks by state; ``all_tasks``: those of which Slurm may have cut the list."""
        counts = Counter(task.state.name for task in self.tasks.values())
        for row in self.rest:
            if row.tasks is not None:
                known = all_tasks if row.tasks.truncated else None
                counts[row.state.name] += known.count() - len(self.tasks) if known else row.tasks.count()
        return dict(counts)

    def row_of_rest(self, task: int) -> JobRecord | None:
        """Return the row that stands for a task among others; one whose list Slurm cut may stand for any."""
        rows = (row for row in self.rest if row.tasks is not None)
        return next((row for row in rows if row.tasks and (row.tasks.truncated or task in row.tasks)), None)


@dataclass
class RunnerView:
    """What the runner told at the end of a job; written by the tracker, through which its marker is read.

    Attributes
    ----------
    had : dict
        Nodes, partition, account and QOS: the queue may not have shown the job yet.
    ranks : api.JobRanks or None
        Of a Python cell with a launcher, once it is over: which rank failed first, and how many others.
    unverified : bool
        True while the runner's end marker is all that tells of the end.
    """

    had: dict[str, str] = field(default_factory=dict)
    ranks: api.JobRanks | None = None
    unverified: bool = False


@dataclass
class StagingView:
    """How far its results are on their way back; written by services/staging.

    Attributes
    ----------
    progress : (int, int) or None
        While they come back: how many bytes of how many.
    is_elsewhere : bool
        Its folders are those of another machine, to which its results come back.
    """

    progress: tuple[int, int] | None = None
    is_elsewhere: bool = False


@dataclass
class SessionView:
    """Server of a session that runs; written by services/sessions.

    Attributes
    ----------
    server : SessionServer or None
        Where it listens, and what leads there.
    stage : str
        Before that: how far it is, in words.
    """

    server: SessionServer | None = None
    stage: str = ""
