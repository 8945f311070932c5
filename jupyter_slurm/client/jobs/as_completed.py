"""Several jobs, or the tasks of an array, in the order of their ends."""

from __future__ import annotations

import contextlib
import math
import queue
import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from jupyter_slurm.client.interrupts import WaitInterrupted
from jupyter_slurm.client.jobs.array import ArrayJob, Task
from jupyter_slurm.client.jobs.failure import END_UNKNOWN, is_in_vain, refuse_in_vain
from jupyter_slurm.client.jobs.job import Job
from jupyter_slurm.client.output.follower import Follower
from jupyter_slurm.client.render.job_card import is_finished
from jupyter_slurm.errors import JobEndUnknown, JobFailed, UsageError

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["as_completed", "wait"]

_MAX_WAIT_S = 5.0  # maximum delay after a lost event; an interrupt takes effect at once
_SETTLE_TIME_S = 0.05  # seconds within which all events of one queue query arrive


def as_completed(jobs: Job | Iterable[Job], *, timeout: float | None = None) -> Iterator[Job]:
    """Yield jobs as they end, in whatever state. Of ends reported together, the first one comes first.

    Each job needs one connection to the agent, the tasks of an array share one.

    Parameters
    ----------
    jobs : Job or iterable of Job
        Several jobs; or an array, whose tasks are yielded. An array among other jobs counts as one job.
    timeout : float, optional
        Seconds; by default without end.

    Raises
    ------
    TimeoutError
        The timeout is over; the jobs continue.
    JobFailed
        The remaining jobs can never start.
    """
    items = list(jobs) if not isinstance(jobs, Job) or isinstance(jobs, ArrayJob) else [jobs]
    deadline = None if timeout is None else time.monotonic() + timeout
    groups = _groups(items)
    news: queue.SimpleQueue[_Group] = queue.SimpleQueue()
    with contextlib.ExitStack() as stack:
        for group in groups:
            stack.enter_context(group.listening(news.put))
            news.put(group)
        while waiting := [group for group in groups if group.remaining]:
            if all(is_in_vain(group.data) for group in waiting):
                refuse_in_vain(waiting[0].data)
            left = _MAX_WAIT_S if deadline is None else min(_MAX_WAIT_S, deadline - time.monotonic())
            if left <= 0:
                number = sum(len(group.remaining) for group in groups)
                raise TimeoutError(
                    f"{number} of {len(items)} jobs have not ended after {timeout:g} s. They keep running."
                )
            over = [job for group in _groups_with_news(news, left) or groups for job in group.ended()]
            yield from sorted(over, key=_end_order)


def wait(jobs: Iterable[Job], *, timeout: float | None = None, check: bool = True) -> None:
    """Wait for the end of several jobs.

    Parameters
    ----------
    jobs : iterable of Job
        An array counts as one job; its tasks can be given as well.
    timeout : float, optional
        Seconds; by default without end.
    check : bool
        Whether to raise after the end of all jobs if one of them failed.

    Raises
    ------
    JobFailed
        The first job that failed, and the number of such jobs.
    JobEndUnknown
        No job failed, and it is not known how one of them ended.
    TimeoutError
        The timeout is over; the jobs continue.
    """
    jobs = list(jobs)
    over: list[Job] = []
    try:
        over.extend(as_completed(jobs, timeout=timeout))
    except KeyboardInterrupt:
        left = ", ".join(str(job) for job in jobs if job not in over)
        raise WaitInterrupted(f"Stopped waiting. These jobs keep running: {left}.") from None
    failed = [job for job in over if job.state not in ("COMPLETED", END_UNKNOWN)]
    unknown = [job for job in over if job.state == END_UNKNOWN]
    if check and (failed or unknown):
        try:
            (failed or unknown)[0].raise_for_state()
        except JobFailed as error:
            if len(failed) > 1:
                error.message = f"{len(failed)} of {len(jobs)} jobs failed. The first one:\n{error.message}"
            raise
        except JobEndUnknown as error:
            if len(unknown) > 1:
                said = f"It is not known how {len(unknown)} of {len(jobs)} jobs ended. The first one:"
                error.message = f"{said}\n{error.message}"
            raise


class _Group:
    """The awaited part of one job: the job itself, or some of its tasks."""

    def __init__(self, whole: Job) -> None:
        self.whole, self.remaining = whole, list[Job]()
        self._follower: Follower = whole._follow()

    @property
    def data(self) -> api.Job:
        """Return the API object of the job."""
        return self._follower.data

    @contextlib.contextmanager
    def listening(self, notify: Callable[[_Group], Any]) -> Iterator[None]:
        """Call a listener when the state of the job changes."""

        def changed(stream: str, data: bytes) -> None:
            if not stream:
                notify(self)

        self._follower.listen(changed)
        try:
            yield
        finally:
            self._follower.unlisten(changed)

    def ended(self) -> list[Job]:
        """Remove and return the finished jobs."""
        if self._follower.error is not None:
            raise self._follower.error
        if not self.remaining:
            return []
        tasks = [job for job in self.remaining if isinstance(job, Task) and job is not self.whole]
        if tasks and isinstance(self.whole, ArrayJob):
            self.whole.update(tasks)
        is_new = set(map(id, tasks))
        over = [job for job in self.remaining if (is_finished(job._data) if id(job) in is_new else job.is_finished)]
        gone = set(map(id, over))
        self.remaining = [job for job in self.remaining if id(job) not in gone]
        return over


def _groups(jobs: Iterable[Job]) -> list[_Group]:
    groups: dict[Job, _Group] = {}
    for job in dict.fromkeys(jobs):
        if not isinstance(job, Job):
            raise UsageError(f"{job!r} is not a job.", hint="Use a Job, for example jupyter_slurm.job(12345).")
        whole = (job.array if isinstance(job, Task) else None) or job
        if whole not in groups:
            groups[whole] = _Group(whole)
        groups[whole].remaining.append(job)
    return list(groups.values())


def _end_order(job: Job) -> tuple[float, float, int]:
    """Return the end and the start of a job in Slurm's whole seconds, and its number for an order within a second.

    A job that depends on another one is submitted after it.
    """
    number = re.match("[0-9]+", str(job._data.get("id") or ""))
    ended, started = job._data.get("end_time") or math.inf, job._data.get("start_time") or math.inf
    return ended, started, int(number[0]) if number else 0


def _groups_with_news(news: queue.SimpleQueue[_Group], seconds: float) -> list[_Group]:
    """Return the groups with events, each once; empty if no event arrives within the timeout (seconds)."""
    found: dict[int, _Group] = {}
    with contextlib.suppress(queue.Empty):
        while True:
            one = news.get(timeout=_SETTLE_TIME_S if found else seconds)
            found[id(one)] = one
    return list(found.values())
