"""Tracker of the jobs of one cluster: merges the queue, the runner's signs and accounting."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.records import JobRecord, is_refused
from jupyter_slurm.errors import ParseError, SlurmError, TransportError
from jupyter_slurm.services.event_bus import EventBus
from jupyter_slurm.services.jobdir.index import JobIndex
from jupyter_slurm.services.jobdir.job_directory import ClusterFolder
from jupyter_slurm.services.jobdir.job_json_model import SlurmJobRecord
from jupyter_slurm.services.jobdir.job_written_files import read_time, read_untrusted
from jupyter_slurm.services.jobs import array_parts as parts
from jupyter_slurm.services.jobs import array_tasks, failures, vanished_tasks
from jupyter_slurm.services.jobs.job import UNKNOWN, TrackedJob
from jupyter_slurm.services.jobs.notebook_process import process_key
from jupyter_slurm.services.jobs.record_writer import RecordWriter, describe_end
from jupyter_slurm.services.jobs.serialize import is_listed, job_dict
from jupyter_slurm.services.large_answers import in_slices
from jupyter_slurm.services.slurm.client import SlurmClient

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["Tracker"]

log = logging.getLogger(__name__)

_MAX_SINGLE_LOOKUPS = 3
_TASKS_WRITE_INTERVAL_S = 60.0  # seconds between two writes of the finished tasks of a running array


class Tracker:
    """Track the jobs of one cluster.

    Parameters
    ----------
    name : str
        ID of the cluster.
    client : SlurmClient
        Queries Slurm.
    folder : ClusterFolder
        Folder of the job directories.
    store : JobIndex
        Index of finished jobs.
    bus : EventBus
        Publishes changes.
    clock : callable
        Seconds since the epoch.
    """

    def __init__(
        self,
        name: str,
        client: SlurmClient,
        folder: ClusterFolder,
        store: JobIndex,
        bus: EventBus,
        clock: Callable[[], float],
    ) -> None:
        self.name, self.client, self.folder, self.store, self.bus, self.clock = name, client, folder, store, bus, clock
        self.entries: dict[str, TrackedJob] = {}
        self._by_number: dict[int, TrackedJob] = {}
        self.in_queue: set[int] = set()  # numbers of the jobs that the last query of the queue showed
        self.clock_offset = 0.0  # seconds by which the cluster's clock is ahead
        self._listeners: defaultdict[int, set[asyncio.Event]] = defaultdict(set)
        self.on_end: list[Callable[[TrackedJob], None]] = []
        self.on_unfinished: list[Callable[[TrackedJob], None]] = []  # called with each active job found in a directory
        self._recorder = RecordWriter(name, client, self.publish, store)
        self.save, self.schedule_save = self._recorder.save, self._recorder.schedule_save
        self.save_end = self._recorder.save_end

    def active(self) -> list[TrackedJob]:
        """Return the jobs that are not over; each part of an array counts."""
        return [entry for entry in self.all_entries() if not entry.is_finished]

    def unverified(self) -> list[TrackedJob]:
        """Return the jobs whose end only the runner has reported."""
        return [entry for entry in self.entries.values() if entry.runner.unverified]

    def all_entries(self) -> list[TrackedJob]:
        """Return all known jobs: those of jupyter_slurm, and :meth:`foreign` ones."""
        return [*self.entries.values(), *self.foreign()]

    def foreign(self) -> list[TrackedJob]:
        """Return the jobs submitted outside jupyter_slurm, without those that Slurm refused."""
        return [e for e in self._by_number.values() if e.folder is None and not (e.latest and is_refused(e.latest))]

    def add(self, entry: TrackedJob) -> None:
        """Add a job."""
        entry.slurm.clock_offset = self.clock_offset
        if entry.key is not None:
            self.entries[entry.key] = entry
        if entry.id is not None and entry.joined is None:
            other = self._by_number.get(entry.id.job)
            if other is None or entry.owns_id_before(other):
                self._by_number[entry.id.job] = entry

    def without_files(self) -> list[TrackedJob]:
        """Return the jobs from the queue whose output files are not known."""
        return [entry for entry in self.foreign() if entry.latest and entry.latest.work_dir is None]

    def set_files(self, entries: Iterable[TrackedJob], records: Iterable[JobRecord]) -> None:
        """Set the output files; those of a job that is missing in the records are not known any more."""
        found = {record.id.job: record for record in records}
        for entry in entries:
            if entry.id is not None and (detail := found.get(entry.id.job, entry.latest)) is not None:
                entry.slurm.learn_detail(replace(detail, work_dir=detail.work_dir or ""))
                self.publish(entry)

    def drop(self, entry: TrackedJob) -> None:
        """Remove a job."""
        entry.submission.release_lock()
        entry.submission.is_end_unwritten = False
        if entry.key is not None:
            self.entries.pop(entry.key, None)
            self.store.forget(self.name, entry.key)
        if entry.id is not None and self._by_number.get(entry.id.job) is entry:
            del self._by_number[entry.id.job]

    def find(self, reference: str) -> TrackedJob | None:
        """Find a job, or a step that was started through jupyter_slurm, by key or Slurm ID."""
        if reference in self.entries:
            return self.entries[reference]
        steps = (e for e in self.entries.values() if e.number == reference and process_key(e) is None)
        if "." in reference and (step := next(steps, None)):
            return step
        try:
            named = JobId.parse(reference)
        except ParseError:
            return None
        entry = self._by_number.get(named.job)
        return entry and parts.with_task(entry, named.task, self.entries)

    def whole(self, entry: TrackedJob) -> TrackedJob:
        """Return a job as shown to the user: the parts of an array as one."""
        return parts.joined(entry, self.entries.get)

    def parts(self, entry: TrackedJob) -> list[TrackedJob]:
        """Return the parts of an array, first one first; for any other job, the job itself."""
        return parts.list_parts(entry, self.entries)

    def _first(self, entry: TrackedJob) -> TrackedJob:
        """Return the representative of a job: the first part of an array."""
        return self.entries.get(entry.part.of, entry) if entry.part else entry

    def wholes(self, entries: Iterable[TrackedJob]) -> list[TrackedJob]:
        """Return jobs as shown to the user, each once, from the given parts."""
        return [self.whole(entry) for entry in {id(first): first for first in map(self._first, entries)}.values()]

    @contextlib.contextmanager
    def listening(self, entry: TrackedJob) -> Iterator[asyncio.Event]:
        """Yield an event that is set whenever the job changes."""
        changed = asyncio.Event()
        self._listeners[id(entry)].add(changed)
        try:
            yield changed
        finally:
            self._listeners[id(entry)].discard(changed)
            if not self._listeners[id(entry)]:
                del self._listeners[id(entry)]

    def follows(self, entry: TrackedJob) -> bool:
        """Return whether a listener follows this job."""
        return bool(self._listeners) and (id(entry) in self._listeners or id(self._first(entry)) in self._listeners)

    def is_listened_to(self) -> bool:
        """Return whether a listener follows a job that is not over."""
        return bool(self._listeners) and any(self.follows(entry) for entry in self.active())

    def publish(self, entry: TrackedJob) -> None:
        """Publish a change of a job."""
        for known in {id(entry), id(self._first(entry))}:
            for event in self._listeners.get(known, ()):
                event.set()
        if self.bus.listeners and is_listed(entry) and (job := self.to_api(entry)) is not None:
            self.bus.publish("job", job)

    def to_api(self, entry: TrackedJob) -> api.Job | None:
        """Return a job in the form of the API; None after an error, which must not affect other jobs."""
        try:
            return job_dict(self.whole(entry))
        except Exception:
            log.exception("job %s (%s) cannot be told", entry.id, entry.key)
            return None

    async def finish(self, entry: TrackedJob) -> None:
        """Save the end of a job in its durable form, and publish it."""
        if entry.folder is not None and entry.record is not None:
            if entry.state == UNKNOWN and entry.error is None:
                why = "the ends of some tasks are not recorded" if entry.slurm.vanished else "its job ID is not known"
                entry.error = await failures.unknown_end(self.client.transport, entry, why)
            entry.runner.ranks = await failures.read_ranks(self.client.transport, entry)
            entry.record = replace(entry.record, end=describe_end(entry))
            await self.save_end(entry)
        for told in self.on_end:
            told(entry)
        self.publish(entry)

    async def stop(self) -> None:
        """Wait for running writes; see :meth:`RecordWriter.stop`."""
        await self._recorder.stop(self.active())

    async def poll(self) -> bool:
        """Query the queue and update the jobs; return whether a job has changed."""
        asked_at = self.clock()
        before = {id(entry) for entry in self.active() if entry.id is not None and entry.joined is None}
        unverified = {id(entry) for entry in self.unverified()}
        try:
            shown, changed = await self._apply_queue(await self.client.queue(), before)
        except SlurmError:
            self._lose_sight(self.active(), asked_at)
            raise
        for entry in self.unverified():
            if id(entry) in unverified and id(entry) not in shown:
                entry.runner.unverified = False  # Slurm has forgotten the job: no further report is expected
        absent = [e for e in self.active() if id(e) in before and e.id is not None and id(e) not in shown]
        visible = [entry.visible_fields() for entry in absent]
        await self._resolve(absent, asked_at)
        changed |= await self._settle_tasks(shown, asked_at)
        return changed or visible != [entry.visible_fields() for entry in absent]

    def _lose_sight(self, entries: Iterable[TrackedJob], now: float) -> None:
        """Record that Slurm does not answer about jobs."""
        for entry in entries:
            if entry.id is not None and entry.lose_sight(now):
                self.publish(entry)

    async def _apply_queue(self, records: Iterable[JobRecord], active: set[int]) -> tuple[set[int], bool]:
        """Update jobs, some active at the query; return those shown (``id()`` of entries) and whether one changed."""
        groups: defaultdict[int, list[JobRecord]] = defaultdict(list)
        for record in records:
            groups[record.id.job].append(record)
        for number in [n for n, group in groups.items() if n not in self._by_number and all(map(is_refused, group))]:
            del groups[number]  # sbatch has said so
        owners, changed = await self._owners(groups), False
        async for number, entry in in_slices(owners.items()):
            update = self._apply_rows(entry, number, groups[number], is_active=id(entry) in active)
            changed |= await failures.contained_update(entry, update)
        self.in_queue = set(groups)
        return {id(entry) for entry in owners.values()}, changed

    async def _apply_rows(self, entry: TrackedJob, number: int, rows: list[JobRecord], *, is_active: bool) -> bool:
        """Update a job, which may have been active at the query; return whether it changed."""
        is_old = is_active and entry.is_finished and not all(row.state.is_finished for row in rows)
        if is_old or self._by_number.get(number, entry) is not entry:
            return False  # it has ended, or another was submitted here meanwhile: the next answer is about that
        entry.slurm.clock_offset = self.clock_offset
        was_finished, submitted = entry.is_finished, entry.slurm.submitted
        differs = await self._apply_session_end(entry, rows)
        if entry.is_array and not entry.is_finished:
            differs |= bool(await vanished_tasks.read_vanished(self.client.transport, entry, rows))
        differs |= entry.update_from_slurm(rows, self.clock())
        if entry.slurm.submitted != submitted and entry.record is not None:
            job = SlurmJobRecord(id=str(entry.id), submit_time=entry.slurm.submitted)
            entry.record = replace(entry.record, job=job)
            self.schedule_save(entry)
        differs |= failures.note_blame(entry, self.find)
        if differs:
            await self._after_change(entry, was_finished=was_finished)
        return differs

    async def _owners(self, groups: Mapping[int, list[JobRecord]]) -> dict[int, TrackedJob]:
        """Find the owners of the queue's IDs: IDs wrap, and restart when a controller has lost its state."""
        known = {number: self._by_number[number] for number in groups if number in self._by_number}
        doubtful = {number for number, entry in known.items() if not entry.is_described_by(groups[number])}
        if any(known[number].folder is not None for number in doubtful):
            for record in await self.client.scripts():
                entry = known.get(record.id.job)
                if entry is not None and entry.folder is not None and entry.is_described_by([record]):
                    doubtful.discard(record.id.job)
        async for number, group in in_slices(groups.items()):  # meanwhile one of them may be submitted here
            own = self._by_number.get(number) or known.get(number)
            if own is None or (number in doubtful and own is known[number]):
                own = self._by_number[number] = TrackedJob(self.name, id=JobId(number), state=group[0].state)
            known[number] = own
        return known

    async def _after_change(self, entry: TrackedJob, *, was_finished: bool) -> None:
        if entry.is_finished:
            await self.finish(entry)
            return
        if was_finished and entry.folder is not None:  # it was requeued
            self.store.forget(self.name, entry.folder.key)
            self.schedule_save(entry)
        self.publish(entry)
        if entry.note_running():
            self.schedule_save(entry)
        is_due = self.clock() - entry.slurm.tasks_saved >= _TASKS_WRITE_INTERVAL_S
        if is_due and entry.slurm.tasks and entry.folder is not None:
            entry.slurm.tasks_saved = self.clock()
            await array_tasks.save(self.client.transport, entry)

    async def read_end(self, entry: TrackedJob) -> bool:
        """Read the runner's end marker, if it belongs to the last run; return whether there is one."""
        if entry.folder is None:
            return False
        try:
            marker = await read_untrusted(self.client.transport, entry.folder.end_marker(None))
            code, at, restarts = int(marker["exit_code"]), read_time(marker["time"]), int(marker.get("restarts") or 0)
            interrupted = bool(marker.get("interrupted") or marker.get("terminated"))
        except (FileNotFoundError, TransportError, ValueError, KeyError, TypeError):
            return False
        is_reason_known = entry.slurm.is_cancel_requested or not marker.get("terminated")
        if not is_reason_known:
            return False
        if entry.is_finished or restarts < max(entry.restarts, (entry.latest and entry.latest.restarts) or 0):
            return False
        entry.restarts = restarts
        failures.note_marker(entry, marker)
        if "lost" in marker:
            await self._end_cell(entry)
        # First: listeners of the end see it.
        entry.error = failures.why_ended(entry, marker, self.entries.get) or entry.error
        entry.ended(code, at, self.clock(), interrupted=interrupted)
        return True

    async def _apply_session_end(self, entry: TrackedJob, records: list[JobRecord]) -> bool:
        """Read the reason for a session's end before Slurm reports the end; return whether there is one."""
        is_over = entry.kind == "session" and all(record.state.is_finished for record in records)
        return is_over and await self.read_end(entry)

    async def _end_cell(self, cell: TrackedJob) -> None:
        """Record the end of a lost cell's process: a listener of the cell may request another process."""
        process = self.entries.get(process_key(cell) or "")
        if process is not None and await self.read_end(process):
            await self.finish(process)

    async def _resolve(self, absent: list[TrackedJob], now: float) -> None:
        """Find the state of jobs that the queue no longer shows."""
        open_ends = [e for e in absent if not await failures.contained_update(e, self._ended_by_marker(e))]
        if len(open_ends) <= _MAX_SINGLE_LOOKUPS:
            if not self.client.singles.is_ready(len(open_ends)):
                return  # later: others wait for the end of this query
            for entry, job in [(entry, entry.id) for entry in open_ends if entry.id is not None]:
                update = self.update_from_slurm(entry, await self.client.describe(job))
                if await failures.contained_update(entry, update):
                    open_ends.remove(entry)
        if open_ends:
            await self._from_accounting(open_ends, now)

    async def _ended_by_marker(self, entry: TrackedJob) -> bool:
        """Return whether a job has ended; also True for a minute while the markers of tasks cannot be read."""
        if entry.is_array and not entry.is_finished:
            slurm, now, is_complete = entry.slurm, self.clock(), vanished_tasks.has_extent(entry)
            if await vanished_tasks.read_vanished(self.client.transport, entry, []) is None:
                return slurm.missing_for(now) < failures.ACCOUNTING_LAG_S
            if is_complete and slurm.tasks and not slurm.vanished and entry.update_from_slurm([], now):
                await self._after_change(entry, was_finished=False)
            return entry.is_finished
        if not entry.reports_events or not await self.read_end(entry):
            return entry.is_finished  # another task may have read its end meanwhile
        await self.finish(entry)
        return True

    async def update_from_slurm(self, entry: TrackedJob, records: list[JobRecord]) -> bool:
        """Update a job, unless it has ended since the query; return whether it has, or a record is its own."""
        if entry.is_finished or not records or not entry.is_described_by(records):
            return entry.is_finished
        await self._apply_session_end(entry, records)
        entry.update_from_slurm(records, self.clock())
        await self._after_change(entry, was_finished=False)
        return True

    async def _from_accounting(self, entries: list[TrackedJob], now: float) -> None:
        """Ask slurmdbd about all of them at once; a job still without an end after a minute has an unknown end."""
        answer = await failures.ends_in_accounting(self.client, entries, now)
        if answer is None:
            self._lose_sight([entry for entry in entries if entry.slurm.submitted is not None], now)
            return
        for entry in entries:
            with failures.contained(entry):
                is_settled = await self.update_from_slurm(entry, answer.end_of(entry))
                if not is_settled and await failures.set_unknown_end(self.client.transport, entry, answer, now):
                    await self.finish(entry)

    async def _settle_tasks(self, shown: set[int], now: float) -> bool:
        """Ask slurmdbd once, and again a minute later, for the ends of tasks that have left the queue before others."""
        arrays = [e for e in self.active() if id(e) in shown and vanished_tasks.is_question_due(e, now)]
        if not arrays or not self.client.singles.is_ready(_MAX_SINGLE_LOOKUPS + 1):  # some are left to _resolve
            return False
        await self.client.singles.acquire()
        changed = False
        for entry in await vanished_tasks.ask_accounting(self.client, arrays, now):
            with failures.contained(entry):
                if entry.update_from_slurm(entry.slurm.rest, self.clock()):
                    changed = True
                    await self._after_change(entry, was_finished=False)
        return changed
