"""Removing what nobody needs any more. Only directories of jobs that are known to be over are ever touched."""

from __future__ import annotations

import logging

from jupyter_slurm.errors import TransportError
from jupyter_slurm.services.tracking import Tracker

__all__ = ["clean"]

log = logging.getLogger(__name__)


async def clean(tracker: Tracker, before: float, *, dry_run: bool) -> tuple[list[str], int]:
    """Remove the directories of jobs that ended before a time.

    Parameters
    ----------
    tracker : Tracker
        The jobs of a cluster.
    before : float
        Seconds since the epoch.
    dry_run : bool
        Only say which.

    Returns
    -------
    list of str, int
        The directories removed, and how many are kept.
    """
    removed, kept = [], 0
    for entry in list(tracker.entries.values()):
        over_since = entry.end_time or entry.submit_time or before
        if entry.folder is None or not entry.is_finished or over_since >= before:
            kept += 1
            continue
        if not dry_run:
            try:
                await tracker.client.transport.remove(entry.folder.path)
            except TransportError as error:
                log.warning("%s stays: %s", entry.folder.path, error.message)
                kept += 1
                continue
            tracker.drop(entry)
        removed.append(entry.folder.path)
    return removed, kept
