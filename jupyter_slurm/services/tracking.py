"""What becomes of the jobs of one cluster: the queue, the runner's signs and the accounting, brought together."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.domain.states import JobState
from jupyter_slurm.errors import CommandError, ControllerError, SlurmError, TransportError, from_problem
from jupyter_slurm.services.bus import Bus
from jupyter_slurm.services.entry import UNKNOWN, Entry
from jupyter_slurm.services.jobdir import ClusterFolder, JobFolder
from jupyter_slurm.services.slurm import SlurmClient
from jupyter_slurm.services.store import Store

__all__ = ["Tracker"]

log = logging.getLogger(__name__)

_SIGN = re.compile(r"(?P<key>[0-9]{8}-[0-9]{6}-[0-9a-f]+)(?:\.(?P<task>[0-9]+))?\.(?P<what>started|ended)")
_ACCOUNTING_LAG = 60.0
_FEW = 3


class Tracker:
    """Know the jobs of one cluster.

    Parameters
    ----------
    name : str
        Id of the cluster.
    client : SlurmClient
        Who asks Slurm.
    folder : ClusterFolder
        Where the job directories are.
    store : Store
        The index.
    bus : Bus
        Who is told.
    clock : callable
        Seconds since the epoch.
    """

    def __init__(
        self, name: str, client: SlurmClient, folder: ClusterFolder, store: Store, bus: Bus, clock: Callable[[], float]
    ) -> None:
        self.name, self.client, self.folder, self.store, self.bus, self.clock = name, client, folder, store, bus, clock
        self.entries: dict[str, Entry] = {}
        self._by_number: dict[int, Entry] = {}
        self._missing: dict[int, float] = {}
        self._saves: set[asyncio.Task[bool]] = set()
        self._listeners: defaultdict[int, set[asyncio.Event]] = defaultdict(set)

    # -- who is known

    def active(self) -> list[Entry]:
        """Jobs that are not over."""
        return [entry for entry in self.everybody() if not entry.is_finished]

    def everybody(self) -> list[Entry]:
        """All jobs known: ours, and what the queue showed beside them."""
        ours = list(self.entries.values())
        return ours + [entry for entry in self._by_number.values() if entry.folder is None]

    def add(self, entry: Entry) -> None:
        """Know a job from now on."""
        if entry.key is not None:
            self.entries[entry.key] = entry
        if entry.id is not None:
            self._by_number[entry.id.job] = entry

    def drop(self, entry: Entry) -> None:
        """Forget a job."""
        if entry.key is not None:
            self.entries.pop(entry.key, None)
            self.store.forget(self.name, entry.key)
        if entry.id is not None and self._by_number.get(entry.id.job) is entry:
            del self._by_number[entry.id.job]

    def find(self, reference: str) -> Entry | None:
        """Find a job by its key or its Slurm id."""
        if reference in self.entries:
            return self.entries[reference]
        number = re.match(r"[0-9]{1,10}(?![0-9-])", reference)
        return self._by_number.get(int(number[0])) if number else None

    # -- who is told

    @contextlib.contextmanager
    def listening(self, entry: Entry) -> Iterator[asyncio.Event]:
        """Give an event that is set whenever the job changes."""
        changed = asyncio.Event()
        self._listeners[id(entry)].add(changed)
        try:
            yield changed
        finally:
            self._listeners[id(entry)].discard(changed)
            if not self._listeners[id(entry)]:
                del self._listeners[id(entry)]

    def is_listened_to(self) -> bool:
        """Whether somebody follows a job that is not over."""
        return bool(self._listeners) and any(id(entry) in self._listeners for entry in self.active())

    def tell(self, entry: Entry) -> None:
        """Tell everybody that a job changed."""
        for event in self._listeners.get(id(entry), ()):
            event.set()
        self.bus.publish("job", entry.as_dict())

    async def finish(self, entry: Entry) -> None:
        """Write down how a job ended, where it stays, and tell it."""
        if entry.folder is not None and entry.record is not None:
            latest = entry.latest
            entry.record["end"] = {
                "state": entry.state.name,
                "reason": latest.reason if latest else "",
                "exit_code": entry.exit_code,
                "signal": entry.signal,
                "start_time": entry.start_time,
                "end_time": entry.end_time,
                "nodes": latest.nodes if latest else None,
                "partition": latest.partition if latest else None,
                "error": entry.error.to_problem() if entry.error else None,
            }
            if await self.save(entry):
                self.store.remember(self.name, entry.folder.key, entry.record)
        self.tell(entry)

    async def save(self, entry: Entry) -> bool:
        """Write the record as it stands now; return whether that went well. What is missing is found out again."""
        if entry.folder is None or entry.record is None:
            return False
        try:
            async with entry.saving:
                await entry.folder.save(self.client.transport, entry.record)
        except (TransportError, FileNotFoundError) as error:
            log.warning("the record of job %s could not be written: %s", entry.id, error)
            return False
        return True

    def save_soon(self, entry: Entry) -> None:
        """Write the record without letting anybody wait for it: the folder knows already what is in it."""
        task = asyncio.create_task(self.save(entry))
        self._saves.add(task)
        task.add_done_callback(self._saves.discard)

    async def stop(self) -> None:
        """Wait for what is being written."""
        await asyncio.gather(*self._saves)

    # -- what is learned

    async def look(self) -> bool:
        """Ask the queue and take in the answer; return whether something changed."""
        asked_at = self.clock()
        before = {id(entry) for entry in self.active() if entry.id is not None}
        try:
            records = await self.client.queue()
        except SlurmError:
            for entry in self.active():
                if entry.id is not None and entry.lose_sight(asked_at):
                    self.tell(entry)
            raise
        present, seen = await self._take_in(records)
        absent = [e for e in self.active() if id(e) in before and e.id is not None and e.id.job not in present]
        changed = await self._resolve(absent, asked_at)
        return changed or seen

    async def _take_in(self, records: Iterable[JobRecord]) -> tuple[set[int], bool]:
        groups: defaultdict[int, list[JobRecord]] = defaultdict(list)
        for record in records:
            groups[record.id.job].append(record)
        changed = False
        for number, group in groups.items():
            entry = self._entry_for(number, group)
            was_finished = entry.is_finished
            if entry.see(group, self.clock()):
                changed = True
                await self._after_change(entry, was_finished=was_finished)
            self._missing.pop(number, None)
        for number, entry in list(self._by_number.items()):
            if number not in groups and entry.folder is None and entry.is_finished:
                del self._by_number[number]  # Slurm has forgotten it, and so do we
        return set(groups), changed

    def _entry_for(self, number: int, group: list[JobRecord]) -> Entry:
        """Return the entry of a job; ids wrap, so that a finished one may have lent its number to another."""
        entry = self._by_number.get(number)
        submitted = group[0].submit_time
        reused = (
            entry is not None and entry.is_finished and submitted and entry.end_time and submitted > entry.end_time + 1
        )
        if entry is None or (reused and not group[0].restarts and entry.state.name != "REQUEUED"):
            entry = Entry(self.name, id=JobId(number), state=group[0].state)
            self._by_number[number] = entry
        return entry

    async def _after_change(self, entry: Entry, *, was_finished: bool) -> None:
        if entry.is_finished and not was_finished:
            if entry.kind == "python" and not entry.tasks:
                await self.read_end(entry)
            await self.finish(entry)
        else:
            self.tell(entry)

    async def read_end(self, entry: Entry) -> bool:
        """Take in the runner's end marker, if it is of the last run; return whether there is one."""
        if entry.folder is None:
            return False
        try:
            marker = json.loads(await self.client.transport.read(entry.folder.end_marker(None)))
            code, at, restarts = int(marker["exit_code"]), float(marker["time"]), int(marker.get("restarts") or 0)
        except (FileNotFoundError, TransportError, ValueError, KeyError, TypeError):
            return False
        if restarts < ((entry.latest.restarts or 0) if entry.latest else 0):
            return False
        state = entry.state
        entry.restarts = max(entry.restarts, restarts)
        entry.ended(code, at, self.clock())
        if state.is_finished:
            entry.state = state  # Slurm's word for it says more: TIMEOUT, CANCELLED
        return True

    async def _resolve(self, absent: list[Entry], now: float) -> bool:
        """Find out about jobs that the queue no longer shows."""
        open_ends = [entry for entry in absent if not await self._ended_by_marker(entry)]
        if len(open_ends) <= _FEW:
            for entry in list(open_ends):
                if entry.id is not None and await self.see(entry, await self.client.describe(entry.id)):
                    open_ends.remove(entry)
        changed = len(open_ends) < len(absent)
        if open_ends and await self._from_accounting(open_ends, now):
            changed = True
        return changed

    async def _ended_by_marker(self, entry: Entry) -> bool:
        if entry.kind != "python" or not await self.read_end(entry):
            return False
        await self.finish(entry)
        return True

    async def see(self, entry: Entry, records: list[JobRecord]) -> bool:
        """Take in what Slurm says of one job that is not over; return whether it said anything."""
        if not records:
            return False
        entry.see(records, self.clock())
        await self._after_change(entry, was_finished=False)
        return True

    async def _from_accounting(self, entries: list[Entry], now: float) -> bool:
        """Ask slurmdbd about all of them at once; who is not there a minute later has an unknown end."""
        since = min((entry.submit_time or now for entry in entries), default=now) - 60
        ids = [entry.id for entry in entries if entry.id is not None]
        try:
            records = await self.client.history(ids, since)
            lag = _ACCOUNTING_LAG
        except ControllerError:
            return False
        except CommandError:
            records, lag = [], 0.0  # no accounting here: nobody will ever know more
        groups: defaultdict[int, list[JobRecord]] = defaultdict(list)
        for record in records:
            groups[record.id.job].append(record)
        changed = False
        for entry in entries:
            number = entry.id.job if entry.id else -1
            if await self.see(entry, groups.get(number, [])):
                changed = True
            elif now - self._missing.setdefault(number, now) >= lag:
                entry.set_state(UNKNOWN, now)
                await self.finish(entry)
                changed = True
        return changed

    # -- the runner's signs

    async def read_signs(self) -> bool:
        """Take in what the runners left in the events folder; return whether there was something."""
        try:
            names = await self.client.transport.list_dir(self.folder.events)
        except (FileNotFoundError, TransportError):
            return False
        found = sorted(
            (sign for name in names if (sign := _SIGN.fullmatch(name))), key=lambda sign: sign["what"] == "ended"
        )
        for sign in found:
            entry = self.entries.get(sign["key"])
            if entry is not None and entry.id is None:
                continue  # its id is not known yet; the sign stays
            if entry is not None and sign["task"] is None:
                await self._sign(entry, sign["what"])
            with contextlib.suppress(TransportError):
                await self.client.transport.remove(f"{self.folder.events}/{sign[0]}")
        return bool(found)

    async def _sign(self, entry: Entry, what: str) -> None:
        if what == "started":
            if entry.started(self.clock()):
                self.tell(entry)
        elif not entry.is_finished and await self.read_end(entry):
            await self.finish(entry)

    # -- coming back

    async def load(self) -> list[Entry]:
        """Know again what the disk knows; return the jobs whose submission has no answer yet."""
        transport, finished = self.client.transport, self.store.finished(self.name)
        unanswered: list[Entry] = []
        try:
            names = await transport.list_dir(self.folder.path)
        except (FileNotFoundError, TransportError):
            return []
        for name in names:
            try:
                job = self.folder.job(name)
            except ValueError:
                continue  # the events folder, the runner
            try:
                record = finished.get(name) or await job.load(transport)
                entry = recall(self.name, job, record, self.clock())
            except (SlurmError, FileNotFoundError) as error:
                log.warning("job directory %s is left alone: %s", name, error)
                continue
            self.add(entry)
            if entry.id is None and not entry.is_finished:
                unanswered.append(entry)
        return unanswered


def recall(cluster: str, folder: JobFolder, record: dict[str, Any], now: float) -> Entry:
    """Make an entry from a record on disk."""
    entry = Entry(cluster, folder=folder, record=record, submit_time=record.get("created"))
    job, end = record.get("job"), record.get("end")
    if job:
        entry.id = JobId.parse(job["id"])
        entry.submit_time = job.get("submit_time") or entry.submit_time
        entry.state, entry.known, entry.unknown_since = JobState("PENDING"), False, now
    if end:
        entry.state, entry.known, entry.unknown_since = JobState(end["state"]), True, None
        entry.exit_code, entry.signal = end.get("exit_code"), end.get("signal")
        entry.start_time, entry.end_time = end.get("start_time"), end.get("end_time")
        entry.error = from_problem(end["error"]) if end.get("error") else None
        if entry.id is not None:
            entry.latest = JobRecord(
                id=entry.id,
                state=entry.state,
                reason=end.get("reason") or "",
                nodes=end.get("nodes") or "",
                partition=end.get("partition") or "",
            )
    return entry
