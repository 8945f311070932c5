"""One transfer: its progress, and the copy from one side to the other."""

from __future__ import annotations

import asyncio
import hashlib
import json
import posixpath
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from jupyter_slurm.domain.staging_rules import PARTIAL_FOLDER_NAME
from jupyter_slurm.domain.staging_rules import names as first_names
from jupyter_slurm.domain.storage.transfer_rules import (
    DIRECTORY,
    FILE,
    Entry,
    TransferChoice,
    choose,
    is_copied,
    stale_entries,
)
from jupyter_slurm.errors import CommandError, SlurmError, SubmitRefused, UsageError
from jupyter_slurm.services.transfers.carriers import Carrier, Work
from jupyter_slurm.services.transfers.sides import Destination, Group, Side, check_names, group_items

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["Transfer", "TransferRequest", "copy_files"]

_MIN_CHANGE_INTERVAL_S: Final = 0.5
_RATE_WINDOW_S: Final = 5.0


@dataclass(frozen=True)
class TransferRequest:
    """Sources and destination; ``to_cluster`` is the cluster of the destination of a copy.

    Attributes
    ----------
    kind : str
        put, get, copy or stage. A stage with ``to_cluster`` is of a folder of that cluster.
    overwrite : bool
        Whether files of the destination that differ are replaced.
    delete : bool
        Whether a stage removes files of the copy that the folder does not have any more.
    job : mapping or None
        Options, context and origin of the job that copies within a cluster; None: a host of the cluster copies.
    """

    cluster: str
    kind: str
    sources: tuple[str, ...]
    dest: str
    to_cluster: str | None = None
    overwrite: bool = False
    delete: bool = False
    job: api.TransferWantedJob | None = field(default=None, compare=False)

    def digest(self, owner: str) -> str:
        """Return a name for the request on a computer, which is the same after an interruption."""
        named = json.dumps([owner, self.cluster, self.kind, self.sources, self.dest, self.to_cluster])
        return hashlib.sha256(named.encode("ascii")).hexdigest()[:12]

    @property
    def is_on_login_node(self) -> bool:
        """Return whether the login node carries the files, although the cluster may have a host for transfers."""
        return (self.kind == "stage" and self.to_cluster is None) or self.job is not None

    def shares_cluster(self, other: TransferRequest) -> bool:
        """Return whether another request has files of the same cluster."""
        return not {self.cluster, self.to_cluster or self.cluster}.isdisjoint({other.cluster, other.to_cluster})


@dataclass(eq=False)
class Transfer:
    """A transfer with its progress.

    Attributes
    ----------
    state : str
        running, finished, failed or stopped.
    total, files : int or None
        Bytes and files to copy; None: not known yet.
    dest : str
        Absolute path of the destination, as soon as it is known.
    unchanged : int
        Files that are the same on both sides.
    job_key : str or None
        Key of the job that copies.
    job, waits : str or None
        Its ID, and why it or the transfer waits.
    """

    id: str
    request: TransferRequest
    changed: Callable[[Transfer], None]
    state: str = "running"
    done: int = 0
    total: int | None = None
    files: int | None = None
    unchanged: int = 0
    warnings: list[str] = field(default_factory=list)
    error: SlurmError | None = None
    task: asyncio.Task[None] | None = None
    dest: str = ""
    started: float = field(default_factory=time.time)
    ended: float | None = None
    job_key: str | None = None
    job: str | None = None
    waits: str | None = None
    _samples: list[tuple[float, int]] = field(default_factory=list)
    _published: float = 0.0

    def note_choice(self, choice: TransferChoice, source: Mapping[str, Entry]) -> None:
        """Add the files of one directory."""
        files = sum(source[path].kind == FILE for path in choice.copied)
        self.total = (self.total or 0) + choice.total
        self.files = (self.files or 0) + files
        self.unchanged += sum(entry.kind == FILE for entry in source.values()) - files
        if choice.skipped:
            self.warnings.append(f"Not copied (links that lead out, or devices): {first_names(choice.skipped)}.")
        if choice.unreadable:
            self.warnings.append(f"Not copied (directories that you may not read): {first_names(choice.unreadable)}.")

    def note_bytes(self, done: int) -> None:
        """Take the number of copied bytes."""
        self.done, now = done, time.monotonic()
        if self.total is not None:
            self.done = min(self.done, self.total)
        if now - self._published >= _MIN_CHANGE_INTERVAL_S:
            self._published = now
            recent = [sample for sample in self._samples if now - sample[0] < _RATE_WINDOW_S]
            self._samples = [*recent, (now, self.done)]
            self.changed(self)

    def follow(self, step: Transfer) -> None:
        """Take the progress of a step of this transfer, which is a transfer itself."""
        self.total, self.files, self.unchanged, self.warnings = step.total, step.files, step.unchanged, step.warnings
        self.note_bytes(step.done)

    def to_api(self) -> api.Transfer:
        """Return the form of the API."""
        rate = None
        if self.state == "running" and len(self._samples) > 1:
            (first, before), (last, after) = self._samples[0], self._samples[-1]
            rate = max(0.0, (after - before) / (last - first))
        return {
            "id": self.id,
            "cluster": self.request.cluster,
            "kind": self.request.kind,
            "sources": list(self.request.sources),
            "dest": self.dest or self.request.dest,
            "to_cluster": self.request.to_cluster,
            "state": self.state,
            "bytes": self.done,
            "total": self.total,
            "files": self.files,
            "unchanged": self.unchanged,
            "rate": rate,
            "job": self.job,
            "waits": self.waits,
            "warnings": self.warnings,
            "error": None if self.error is None else self.error.to_problem(),
            "started": self.started,
            "ended": self.ended,
        }


@dataclass
class _Part:
    """Directory of a transfer: everything of the source, and what of it is copied."""

    group: Group
    source: dict[str, Entry]
    choice: TransferChoice
    whole: list[str]

    def wanted(self) -> dict[str, Entry]:
        """Return what may be received: the entries to copy, and their directories."""
        directories = {path: entry for path, entry in self.source.items() if entry.kind == DIRECTORY}
        return directories | {path: self.source[path] for path in self.choice.copied}


async def copy_files(
    transfer: Transfer, source: Side, dest: Side, carrier: Carrier, partial: str, *, mirrors: bool = False
) -> None:
    """Copy the files of a transfer from one side to the other.

    Files are received in a directory beside the destination, and moved when all have arrived. A later run with the same
    name of that directory continues. With ``mirrors``, the destination keeps nothing that the sources do not have.

    Raises
    ------
    CommandError
        Files of the destination would be replaced, or a side failed.
    TransportError
        The connection broke.
    """
    transfer.done, transfer.total, transfer.files, transfer.unchanged = 0, None, None, 0
    transfer.warnings.clear()
    request = transfer.request
    items = await source.resolve(request.sources)
    check_names(items)
    place = await dest.prepare(request.dest, len(items), partial)
    transfer.dest = posixpath.join(place.folder, place.rename or "")
    groups = group_items(items, place)
    if mirrors:
        await _drop_others(groups, source, dest, place)
    parts = [await _part(group, source, dest, place) for group in groups]
    if conflicts := _conflicts(parts, overwrite=request.overwrite):
        raise conflicts
    for part in parts:
        transfer.note_choice(part.choice, part.source)
    await dest.check_room(place, transfer.total or 0)
    await dest.make(place, [part.group for part in parts])
    loop = asyncio.get_running_loop()

    def moved(done: int) -> None:
        loop.call_soon_threadsafe(transfer.note_bytes, done)

    works = [await _work(part, place, dest, carrier) for part in parts]
    try:
        await carrier.copy(works, moved)
    except (SubmitRefused, UsageError):  # no job was submitted
        if not place.is_resumed:
            await dest.discard(place)
        raise
    if place.is_resumed:
        for part in parts:
            await _drop_beginnings(part, dest)
    met = await dest.finish(place, [part.group for part in parts], overwrite=request.overwrite)
    if met:
        raise _conflict(met)


async def _drop_others(groups: Sequence[Group], source: Side, dest: Side, place: Destination) -> None:
    """Remove everything from the destination that is not in the sources, or of another kind."""
    found = await dest.list_files(place.folder, [""])
    partial = posixpath.basename(place.partial)
    there = {path: entry for path, entry in found.items() if path and path.split("/", 1)[0] != partial}
    if not there:
        return
    wanted = dict[str, Entry]()
    for group in groups:
        for path, entry in (await source.list_files(group.folder, list(group.names))).items():
            name, slash, rest = path.partition("/")
            if name in group.names and is_copied(path, entry):
                wanted[group.names[name] + slash + rest] = entry
    await dest.drop(place.folder, await asyncio.to_thread(stale_entries, there, wanted))


async def _part(group: Group, source: Side, dest: Side, place: Destination) -> _Part:
    found, there = await asyncio.gather(
        source.list_files(group.folder, list(group.names)), dest.list_files(place.folder, list(group.names.values()))
    )
    names = {final: name for name, final in group.names.items()}
    other = dict[str, Entry]()
    for path, entry in there.items():
        final, slash, rest = path.partition("/")
        if final in names:  # a cluster may list anything
            other[names[final] + slash + rest] = entry
    choice = await asyncio.to_thread(choose, found, other, is_within=source is dest)
    in_parts = {path.split("/", 1)[0] for path in (*choice.skipped, *choice.unreadable, *choice.left_out)}
    whole = [name for name in group.names if name not in other and name in found and name not in in_parts]
    return _Part(group, found, choice, whole)


async def _work(part: _Part, place: Destination, dest: Side, carrier: Carrier) -> Work:
    """Return what is to be copied.

    What an earlier run has received is not copied again, or removed if the source does not have it any more.
    """
    entries = {path: part.source[path] for path in part.choice.copied}
    if place.is_resumed:
        await carrier.end_remains(part.group)
        received = await dest.list_files(part.group.received, [""])
        needed = set((await asyncio.to_thread(choose, entries, received, is_within=True)).copied)  # chosen before
        if stale := await asyncio.to_thread(stale_entries, received, part.wanted(), needed):
            await dest.drop(part.group.received, stale)
        entries = {path: entry for path, entry in entries.items() if path in needed}
    return Work(part.group, entries, part.whole, part.choice.total)


async def _drop_beginnings(part: _Part, dest: Side) -> None:
    """Remove the beginnings of files that an earlier run of rsync has left, where this run had another carrier."""
    received = await dest.list_files(part.group.received, [""])
    found = {path: entry for path, entry in received.items() if PARTIAL_FOLDER_NAME in path.split("/")}
    if stale := stale_entries(found, part.wanted()):
        await dest.drop(part.group.received, stale)


def _conflicts(parts: Sequence[_Part], *, overwrite: bool) -> CommandError | None:
    if blocked := [path for part in parts for path in part.choice.blocked]:
        return CommandError(
            f"The destination has a directory in place of a file, or the reverse: {first_names(blocked)}.",
            hint="Choose another destination, or remove them from it.",
        )
    changed = [path for part in parts for path in part.choice.changed]
    return _conflict(changed) if changed and not overwrite else None


def _conflict(paths: Sequence[str]) -> CommandError:
    return CommandError(
        f"The destination has other files of these names: {first_names(paths)}. They were not replaced.",
        hint="Add the word `overwrite` to replace them, or choose another destination.",
    )
