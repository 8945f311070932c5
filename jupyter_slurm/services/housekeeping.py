"""Removing what nobody needs any more. Only directories of jobs that are known to be over are ever touched."""

from __future__ import annotations

import logging

from jupyter_slurm.errors import SlurmError, TransportError
from jupyter_slurm.services.entry import Entry
from jupyter_slurm.services.jobdir import is_draft, is_key
from jupyter_slurm.services.tracking import Tracker
from jupyter_slurm.services.watcher import Watcher

__all__ = ["clean"]

log = logging.getLogger(__name__)

_HOUR, _DAY = 3600.0, 86400.0


async def clean(tracker: Tracker, watcher: Watcher, before: float, *, dry_run: bool) -> tuple[list[str], int]:
    """Remove the directories of jobs that ended before a time.

    Parameters
    ----------
    tracker, watcher
        Of a cluster.
    before : float
        Seconds since the epoch.
    dry_run : bool
        Only say which.

    Returns
    -------
    list of str, int
        The directories removed, and how many are kept.
    """
    if any(_is_old(tracker.whole(entry), before) for entry in tracker.entries.values()):
        try:
            await watcher.fresh(within=0.0)  # a job that was requeued is not over
        except SlurmError as error:
            log.warning("jobs that ended today stay: %s", error.message)
            before = min(before, tracker.clock() - _DAY)  # a controller forgets what is over long before
    removed, kept = [], 0
    old = {entry.key for entry in tracker.entries.values() if _is_old(tracker.whole(entry), before)}
    for entry in list(tracker.entries.values()):
        if entry.folder is None or entry.key not in old or not await _is_over(tracker, entry, dry_run=dry_run):
            kept += 1
            if not entry.is_finished:
                watcher.wake()
            continue
        removed.append(entry.folder.path)
    return removed + await _remains(tracker, before, dry_run=dry_run), kept


def _is_old(entry: Entry, before: float) -> bool:
    return entry.is_finished and (entry.end_time or entry.submit_time or before) < before


async def _is_over(tracker: Tracker, entry: Entry, *, dry_run: bool) -> bool:
    """Remove a directory if what is written there says so too: another agent may know that the job goes on."""
    if entry.folder is None:
        return False
    transport = tracker.client.transport
    try:
        record = await entry.folder.load(transport)
        if not record.get("end"):
            entry.recall(record, tracker.clock())
            tracker.add(entry)
            return False
    except FileNotFoundError:
        pass  # it is gone, or lacks what makes it a job directory
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


async def _remains(tracker: Tracker, before: float, *, dry_run: bool) -> list[str]:
    """Remove what was never finished: its agent died, the disk was full, or the connection was ended meanwhile."""
    transport, removed = tracker.client.transport, []
    before = min(before, tracker.clock() - _HOUR)
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
        pass  # nothing was submitted yet, or somebody else tidies up
    except TransportError as error:
        log.warning("what was left of submissions stays: %s", error)
    return removed
