"""History of a cluster: finished jobs that its controller has forgotten, also those submitted in a terminal.

They come from accounting, and from earlier answers of the queue, which are kept in the index on the local disk: with
the output files that only the queue knows before Slurm 24.05, and all that is known where there is no accounting.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.records import JobRecord, is_refused, merge_detail
from jupyter_slurm.domain.states import JobState
from jupyter_slurm.errors import SlurmError
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.job_views import SlurmView
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.large_answers import in_slices
from jupyter_slurm.services.slurm.accounting import has_no_accounting
from jupyter_slurm.services.slurm.client import SlurmClient
from jupyter_slurm.services.slurm.cluster_clock import cluster_time

__all__ = ["JobHistory"]

log = logging.getLogger(__name__)

_DAY_S = 86_400.0
_PERIODS_S = (366 * _DAY_S, 92 * _DAY_S, 31 * _DAY_S)  # slurmdbd may limit the period of a query (MaxQueryTimeRange)
_PERIOD_S = 3600.0  # seconds between two queries to accounting
_MIN_PERIOD_S = 300.0  # the same, if the queue was not looked at for so long that it may have forgotten jobs
_MAX_GAP_S = 330.0  # a little more than the longest interval of the poller
_LAG_S = 600.0  # accounting may learn of a job so late
_MAX_JOBS = 5000
_MAX_STORED_TASKS = 200
_FORGOTTEN_S = 30 * _DAY_S  # details of a job that was never seen again
_SET_BACK_S = 60.0  # seconds by which the clock of the cluster was set back
_YIELD_ROWS = 500
_PREFIX = "slurm-"  # of keys in the index: no submission key begins so
_TEXTS = ("reason", "partition", "account", "qos", "user", "nodes", "tres")
_OPTIONAL_TEXTS = ("name", "comment", "stdout", "stderr", "work_dir")
_NUMBERS = (
    "raw_id",
    "submit_time",
    "start_time",
    "end_time",
    "time_limit",
    "node_count",
    "cpus",
    "exit_code",
    "signal",
)


class JobHistory:
    """Finished jobs of the last days, in the tracker.

    Parameters
    ----------
    client : SlurmClient
        Queries accounting.
    tracker : Tracker
        Receives the jobs.
    days : float
        Age of the oldest jobs; 0: only those that the queue shows.
    clock : callable, optional
        Monotonic seconds.
    """

    def __init__(
        self, client: SlurmClient, tracker: Tracker, days: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client, self._tracker, self._clock = client, tracker, clock
        self._listed_s = self._kept_s = days * _DAY_S  # jobs of a longer period are kept once a client has asked
        self._due = self._asked = -math.inf
        self._polled: float | None = None
        self._since: float | None = None  # by the clock of the cluster
        self._compared: tuple[float, float] | None = None  # one moment by the clock of the cluster, and by ``clock``
        self._stored: dict[str, object] = {}
        self._details: dict[tuple[int, int | None], JobRecord] = {}
        self._is_recalled = False
        self._task: asyncio.Task[None] | None = None
        self._extension = asyncio.Lock()

    async def extend(self, days: float) -> None:
        """Get finished jobs of so many days, too; 0: all that accounting has.

        Accounting is asked once for a period; its later jobs come with those of the usual period.

        Raises
        ------
        ControllerError, CommandError
            As :meth:`jupyter_slurm.services.slurm.accounting.Accounting.query` does.
        """
        wanted = _seconds(days)
        async with self._extension:
            if wanted <= self._kept_s:
                return
            if self._compared is None:
                await self._read_clock()
            version = await self._client.version()
            known = self._cluster_now()
            now = self._tracker.clock() if known is None else known
            records = await self._client.accounting.recent_within(
                now, [s for s in (wanted, *_PERIODS_S) if s <= wanted], version
            )
            self._kept_s = wanted
            await self._add(records, is_published=False)

    def is_listed(self, entry: TrackedJob, days: float | None) -> bool:
        """Return whether a list has a job: a job of an extended period is for those who ask for that period."""
        if entry.folder is not None or not entry.is_finished or (entry.id and entry.id.job in self._tracker.in_queue):
            return True
        period = max(self._listed_s, 0.0 if days is None else _seconds(days))
        return self._is_within(entry.end_time or entry.submit_time or 0, period)

    async def refresh(self, patience: float) -> None:
        """Ask accounting if that is due; wait at most so many seconds. A later answer is published."""
        await self.recall(patience)
        self._start_if_due()
        await self._wait(patience)

    async def recall(self, patience: float) -> None:
        """Read, once, what the queue has shown to earlier agents; wait at most so many seconds."""
        if not self._is_recalled:
            self._start_recall()
            await self._wait(patience)

    async def _wait(self, patience: float) -> None:
        if self._task is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await asyncio.shield(self._task)

    def note_poll(self, *, is_watched: bool) -> None:
        """Keep the jobs of the queue's last answer; for a user at a screen, ask accounting for missed ones if due."""
        now = self._clock()
        if self._polled is not None and now - self._polled > _MAX_GAP_S:
            self._due = min(self._due, self._asked + _MIN_PERIOD_S)
        self._polled = now
        self._drop_old()
        if self._is_recalled:
            self._store()
        else:
            self._start_recall()
        if is_watched:
            self._start_if_due()

    async def stop(self) -> None:
        """Stop a running query."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _start_recall(self) -> None:
        if self._task is None and self._listed_s > 0:
            self._task = asyncio.create_task(self._update(is_asked=False), name="history")

    def _start_if_due(self) -> None:
        if self._task is None and self._listed_s > 0 and self._clock() >= self._due:
            self._task = asyncio.create_task(self._update(is_asked=True), name="history")

    async def _update(self, *, is_asked: bool) -> None:
        try:
            await self._read_clock()
            if not self._is_recalled:
                await self._recall()
            if is_asked:
                await self._ask()
        except Exception:  # a history that cannot be read must not affect the queue
            log.exception("the history of %s", self._tracker.name)
        finally:
            self._task = None

    async def _read_clock(self) -> None:
        """Compare the clock of the cluster with one that nobody sets."""
        before = self._cluster_now()
        with contextlib.suppress(SlurmError, ValueError):
            now = await cluster_time(self._client.transport)
            self._compared = (now, self._clock())
            if before is not None and before - now > _SET_BACK_S:
                # Jobs may have been dropped by the wrong time: ask for all of them again.
                self._since, self._kept_s = None, self._listed_s

    def _cluster_now(self) -> float | None:
        """Return the time of the cluster; None if not known. The clock of this computer may be set at any moment."""
        return None if self._compared is None else self._compared[0] + self._clock() - self._compared[1]

    # -- accounting

    async def _ask(self) -> None:
        self._asked = self._clock()
        self._due = self._asked + _PERIOD_S
        known = self._cluster_now()
        now = self._tracker.clock() if known is None else known
        since = now - self._listed_s if self._since is None else self._since
        try:
            records = await self._client.accounting.recent(since, await self._client.version())
        except SlurmError as error:
            if has_no_accounting(error):
                self._due = self._asked = math.inf  # it never will
            else:
                log.info("accounting has no history of %s now: %s", self._tracker.name, error.message)
            return
        if known is not None:
            self._since = now - _LAG_S
        await self._add(records)

    async def _add(self, records: Iterable[JobRecord], *, is_published: bool = True) -> None:
        """Add the newest finished jobs that the tracker does not have."""
        groups: defaultdict[int, list[JobRecord]] = defaultdict(list)
        async for record in in_slices(records):
            groups[record.id.job].append(record)
        newest = sorted(groups.values(), key=lambda rows: rows[0].submit_time or 0, reverse=True)
        left = _YIELD_ROWS
        for rows in newest[:_MAX_JOBS]:
            left -= len(rows)
            if left < 0:
                left = _YIELD_ROWS
                await asyncio.sleep(0)
            if all(row.state.is_finished for row in rows) and not all(map(is_refused, rows)):
                self._add_job(rows, is_published=is_published)

    def _add_job(self, rows: Sequence[JobRecord], *, is_published: bool) -> None:
        job, submitted = rows[0].id.job, rows[0].submit_time
        detail = self._details.get((job, submitted))
        rows = [merge_detail(row, detail) for row in rows] if detail else rows
        known = self._tracker.find(str(job))
        if known is not None and known.folder is None and known.latest is not None and known.submitted == submitted:
            known.slurm.learn_detail(rows[0])
        if known is not None and (known.folder or not known.is_finished or (known.submitted or 0) >= (submitted or 0)):
            return
        entry = TrackedJob(self._tracker.name, id=JobId(job), state=rows[0].state, slurm=SlurmView(described=True))
        entry.update_from_slurm(rows, self._tracker.clock())
        if known is not None:
            self._tracker.drop(known)  # its number is used again
        self._tracker.add(entry)
        if is_published:
            self._tracker.publish(entry)

    # -- what the queue has shown

    def _store(self) -> None:
        """Store the jobs whose details are known, after each change of their state."""
        tracker = self._tracker
        for entry in tracker.foreign():
            latest = entry.latest
            if entry.id is None or latest is None or latest.work_dir is None:
                continue
            key = _key(entry)
            if key in self._stored and entry.is_finished and entry.id.job not in tracker.in_queue:
                continue
            shown = (latest.state, latest.stdout, latest.work_dir, tuple(entry.counts().items()))
            if self._stored.get(key) != shown:
                self._stored[key] = shown
                tracker.store.remember(tracker.name, key, _StoredRows([latest, *entry.slurm.tasks.values()]))

    async def _recall(self) -> None:
        """Read the jobs that the queue has shown to an earlier agent."""
        tracker = self._tracker
        async for key, document in in_slices((await tracker.store.finished(tracker.name)).items()):
            if not key.startswith(_PREFIX):
                continue
            rows = _StoredRows.read(document)
            first = rows[0] if rows else None
            extra = 0.0 if first and first.state.is_finished else _FORGOTTEN_S
            if first is None or not self._is_recent((first.end_time or first.submit_time or 0) + extra):
                tracker.store.forget(tracker.name, key)
                continue
            self._details[first.id.job, first.submit_time] = first
            known = tracker.find(str(first.id.job))
            if known is not None and known.folder is None and known.submitted == first.submit_time:
                known.slurm.learn_detail(first)
            await self._add(rows[1:] or rows)
        self._is_recalled = True

    def _is_recent(self, moment: float) -> bool:
        """Return whether a time of the cluster is within the period that is kept; True if its clock is not known."""
        return self._is_within(moment, self._kept_s)

    def _is_within(self, moment: float, period: float) -> bool:
        now = self._cluster_now()
        return now is None or moment >= now - period

    def _drop_old(self) -> None:
        """Drop finished jobs that neither the queue nor this history keeps."""
        tracker = self._tracker
        left = [e for e in tracker.foreign() if e.is_finished and e.id and e.id.job not in tracker.in_queue]
        left.sort(key=lambda entry: entry.submit_time or 0.0, reverse=True)
        for place, entry in enumerate(left):
            if place >= _MAX_JOBS or not self._kept_s or not self._is_recent(entry.end_time or entry.submit_time or 0):
                tracker.drop(entry)  # the index drops it at the next start of an agent, with the clocks just compared
                self._stored.pop(_key(entry), None)


def _seconds(days: float) -> float:
    return days * _DAY_S if days > 0 else math.inf


def _key(entry: TrackedJob) -> str:
    return f"{_PREFIX}{entry.id}-{entry.submitted}"


class _StoredRows:
    """Rows of a job in the index: first the one that determines its state, then tasks of an array."""

    def __init__(self, rows: Sequence[JobRecord]) -> None:
        self._rows = rows[: 1 + _MAX_STORED_TASKS]

    def to_json(self) -> dict[str, Any]:
        """Return the document."""
        return {"rows": [_row_to_json(row) for row in self._rows]}

    @staticmethod
    def read(document: object) -> list[JobRecord]:
        """Return the rows of a document; none if it is damaged."""
        try:
            return [_row(row) for row in document["rows"]]  # type: ignore[index]
        except (KeyError, TypeError, ValueError, SlurmError):
            return []


def _row_to_json(row: JobRecord) -> dict[str, Any]:
    known = {name: getattr(row, name) for name in (*_TEXTS, *_OPTIONAL_TEXTS, *_NUMBERS)}
    known = {name: value for name, value in known.items() if value is not None}
    return {"id": str(row.id), "state": row.state.name, **known}


def _row(stored: dict[str, Any]) -> JobRecord:
    """Return a row; raise KeyError, TypeError or SlurmError if it is damaged."""
    values: dict[str, Any] = {}
    for names, kind in ((_TEXTS, str), (_OPTIONAL_TEXTS, str), (_NUMBERS, int)):
        values |= {name: value for name in names if isinstance(value := stored.get(name), kind)}
    return JobRecord(id=JobId.parse(str(stored["id"])), state=JobState.parse(str(stored["state"])), **values)
