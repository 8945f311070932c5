"""Removal of data that is no longer needed, only from job directories whose jobs are known to be over.

Ages are counted by the clocks of the cluster, which wrote the times: the clock of a laptop may be wrong by months.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import posixpath
import secrets
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from jupyter_slurm.domain.staging_rules import STAGE_FOLDER_NAME
from jupyter_slurm.errors import SlurmError, TransportError
from jupyter_slurm.services.jobdir.job_directory import is_draft, is_key
from jupyter_slurm.services.jobdir.job_json_model import FolderRecord, JobRecordFile
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.slurm.cluster_clock import cluster_time
from jupyter_slurm.services.slurm.poller import Poller
from jupyter_slurm.services.staging.job_staging import Staging

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["Housekeeping", "StagedCopies"]

log = logging.getLogger(__name__)

_HOUR_S, _DAY_S = 3600.0, 86400.0


class CleanedCluster(Protocol):
    """Parts of a cluster that are needed to clean up job directories and copies of folders."""

    @property
    def tracker(self) -> Tracker: ...
    @property
    def poller(self) -> Poller: ...
    @property
    def staging(self) -> Staging: ...


class Housekeeping:
    """Clean up once a day, and on request.

    Parameters
    ----------
    reached : callable
        Returns the clusters that answer now.
    days : float
        Age in days at which the directory of a finished job is removed; 0: never automatically.
    """

    def __init__(self, reached: Callable[[], Iterable[CleanedCluster]], days: float) -> None:
        self._reached, self._days = reached, days
        self._daily: asyncio.Task[None] | None = None
        self._arrived = asyncio.Event()

    def start(self) -> None:
        """Start."""
        self._daily = asyncio.create_task(self._clean_daily(), name="housekeeping")

    async def stop(self) -> None:
        """Stop."""
        if self._daily is not None:
            self._daily.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._daily

    def arrived(self) -> None:
        """Clean up soon, because a cluster is newly reachable."""
        self._arrived.set()

    async def clean(self, *, older_than_days: float | None = None, dry_run: bool = False) -> api.Cleaned:
        """Remove the directories of jobs that ended long ago; return the removed ones and the number kept."""
        days = self._days if older_than_days is None else older_than_days
        removed: list[str] = []
        kept = 0
        for cluster in self._reached():
            try:
                now = await _cluster_time(cluster.tracker)
            except (SlurmError, FileNotFoundError, ValueError) as error:
                log.info("nothing is removed, because the time of the cluster is not known: %s", error)
                kept += len(cluster.tracker.entries)
                continue
            copies = StagedCopies(cluster.tracker, cluster.staging)
            gone, left = await _clean(cluster, copies, now, now - days * _DAY_S, dry_run=dry_run)
            removed += gone
            kept += left
        return {"removed": removed, "kept": kept}

    async def _clean_daily(self) -> None:
        while self._days > 0:
            self._arrived.clear()
            try:
                gone = (await self.clean())["removed"]
                if gone:
                    log.info("%d job directories were older than %g days", len(gone), self._days)
            except (SlurmError, OSError):
                log.exception("housekeeping")
            with contextlib.suppress(TimeoutError):  # few logins last a day
                async with asyncio.timeout(_DAY_S):
                    await self._arrived.wait()


async def _cluster_time(tracker: Tracker) -> float:
    """Return the present time by the clock of the login node, or by that of the file server if that is earlier."""
    transport, probe = tracker.client.transport, f"{tracker.folder.path}/.{secrets.token_hex(8)}.tmp"
    now = await cluster_time(transport) + 1.0  # the answer has whole seconds
    try:
        await transport.write(probe, b"")
        now = min(now, (await transport.stat(probe)).mtime)
        await transport.remove(probe)
    except TransportError:
        pass  # the disk may be full
    return now


async def _clean(
    cluster: CleanedCluster, copies: StagedCopies, now: float, before: float, *, dry_run: bool
) -> tuple[list[str], int]:
    """Remove the directories of jobs that ended before a given time.

    Parameters
    ----------
    cluster, copies
        Services of a cluster.
    now, before : float
        Present time and latest time of an end, in seconds since the epoch by the clock of the cluster.
    dry_run : bool
        Only list the directories.

    Returns
    -------
    list of str, int
        Removed directories, and the number of those kept.
    """
    tracker, watcher = cluster.tracker, cluster.poller
    if any(_is_old(tracker.whole(entry), before) for entry in tracker.entries.values()):
        try:
            await watcher.wait_fresh(within=0.0)  # a requeued job is not over
        except SlurmError as error:
            log.warning("jobs that ended today stay: %s", error.message)
            before = min(before, now - _DAY_S)  # a controller forgets finished jobs long before
    removed, kept = list[TrackedJob](), list[TrackedJob]()
    old = {entry.key for entry in tracker.entries.values() if _is_old(tracker.whole(entry), before)}
    for entry in list(tracker.entries.values()):
        if entry.folder is None or entry.key not in old or not await _is_over(tracker, entry, before, dry_run=dry_run):
            kept.append(entry)
            if not entry.is_finished:
                watcher.wake()
            continue
        removed.append(entry)
    paths = [entry.folder.path for entry in removed if entry.folder]
    paths += await copies.remove(removed, kept, before, dry_run=dry_run)
    return paths + await _remains(tracker, min(before, now - _HOUR_S), dry_run=dry_run), len(kept)


def _is_old(entry: TrackedJob, before: float) -> bool:
    is_over = entry.is_finished and not entry.has_remote_results
    return is_over and (entry.end_time or entry.submit_time or before) < before


async def _is_over(tracker: Tracker, entry: TrackedJob, before: float, *, dry_run: bool) -> bool:
    """Remove a directory if its record also says that the job is over: another agent may know otherwise.

    If the end of a job is not known, the time of its submission counts, by the clock of the computer that submitted it.
    Then the record must be old, too.
    """
    if entry.folder is None:
        return False
    transport = tracker.client.transport
    try:
        record = await entry.folder.load(transport)
        if not record.end:
            if not (entry.is_finished and _is_of_run(record, entry)):
                entry.recall(record, tracker.clock())
                tracker.add(entry)
            elif not dry_run:  # the disk was full at its end
                await tracker.save_end(entry)
            return False
        if entry.end_time is None and (await transport.stat(entry.folder.file("job.json"))).mtime > before:
            return False
    except FileNotFoundError:
        pass  # gone, or not a complete job directory
    except SlurmError as error:
        log.warning("%s stays: %s", entry.folder.path, error.message)
        return False
    if dry_run:
        return True
    try:
        await transport.remove(entry.folder.path)
    except TransportError as error:
        log.warning("%s stays: %s", entry.folder.path, error.message)
        return False
    tracker.drop(entry)
    return True


def _is_of_run(record: JobRecordFile, entry: TrackedJob) -> bool:
    """Return whether a record on disk is of the run of a job that is tracked, not of one after a requeue."""
    if record.job is None:
        return entry.submission.is_end_unwritten
    return record.job.id == str(entry.id) and record.job.submit_time in (None, entry.submitted)


async def _remains(tracker: Tracker, before: float, *, dry_run: bool) -> list[str]:
    """Remove unfinished job directories: the agent died, the disk was full, or the connection was closed."""
    transport, removed = tracker.client.transport, []
    try:
        for name in await transport.list_dir(tracker.folder.path):
            path = f"{tracker.folder.path}/{name}"
            if not (is_draft(name) or (is_key(name) and name not in tracker.entries)):
                continue
            if (await transport.stat(path)).mtime >= before:
                continue
            if is_key(name) and "job.json" in await transport.list_dir(path):
                continue
            if not dry_run:
                await transport.remove(path)
            removed.append(path)
    except FileNotFoundError:
        pass  # nothing was submitted yet, or another process cleans up
    except TransportError as error:
        log.warning("what was left of submissions stays: %s", error)
    return removed


class StagedCopies:
    """Copies of folders on one cluster.

    Parameters
    ----------
    tracker, staging
        Services of the cluster.
    """

    def __init__(self, tracker: Tracker, staging: Staging) -> None:
        self._tracker, self._staging = tracker, staging

    async def remove(
        self, gone: Iterable[TrackedJob], retained: Iterable[TrackedJob], before: float, *, dry_run: bool
    ) -> list[str]:
        """Remove copies that belonged only to removed jobs; never a folder that the user has named.

        A copy with data that this computer lacks stays: files excluded by a filter, such as checkpoints, or files
        changed
        on both sides.

        Parameters
        ----------
        gone, retained : iterable of TrackedJob
            Jobs; the results of removed ones have been copied back.
        before : float
            Seconds since the epoch: copies synchronised later stay.
        dry_run : bool
            Only list the copies.

        Returns
        -------
        list of str
            Paths of the copies.
        """
        try:
            candidates = {folder.dest: folder for entry in gone for folder in await self._own_copies(entry)}
        except SlurmError as error:  # for example, a variable of the profile is no longer set
            log.warning("copies of folders stay: %s", error.message)
            return []
        for dest in {folder.dest for entry in retained for folder in _folders(entry)}:
            candidates.pop(dest, None)
        removed = [folder for _, folder in sorted(candidates.items())]
        return [folder.dest for folder in removed if await self._is_removed(folder, before, dry_run=dry_run)]

    async def _own_copies(self, entry: TrackedJob) -> list[FolderRecord]:
        is_ours = await self._staging.is_local(entry)
        return [folder for folder in _folders(entry) if is_ours and await self._staging.has_default_copy(folder)]

    async def _is_removed(self, folder: FolderRecord, before: float, *, dry_run: bool) -> bool:
        transport, dest = self._tracker.client.transport, folder.dest
        try:
            async with self._staging.alone(dest):
                if (await transport.stat(posixpath.join(dest, STAGE_FOLDER_NAME))).mtime >= before:
                    return False
                if await (await self._staging.folder_sync(folder)).has_more():
                    log.info("%s stays: it has files that are not here", dest)
                    return False
                if not dry_run:
                    await transport.remove(dest)
        except FileNotFoundError:
            return False  # gone, or never a copy
        except SlurmError as error:
            log.warning("%s stays: %s", dest, error.message)
            return False
        return True


def _folders(entry: TrackedJob) -> list[FolderRecord]:
    return list(entry.folders.folders) if entry.folders else []
