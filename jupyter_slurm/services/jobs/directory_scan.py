"""Job directories of a cluster: those of this agent and of other agents of the same user."""

from __future__ import annotations

import errno
import logging
from typing import Any

from jupyter_slurm.errors import SlurmError, TransportError, UntrustedFile
from jupyter_slurm.services.jobdir.job_directory import JobFolder, is_key
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.tracker import Tracker

__all__ = ["JobDirectoryScan", "is_momentary"]

log = logging.getLogger(__name__)

_SCAN_INTERVAL_S = 2.0
_REFUSED_PAUSE_S = 120.0  # seconds until a directory is read again that the user may not read now
# The directory may be fine: the agent has no file descriptor or memory left, or a network file system has hung.
_MOMENTARY = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN, errno.ESTALE})
_BROKEN = frozenset({errno.EISDIR, errno.ENOTDIR, errno.ELOOP})


class JobDirectoryScan:
    """Track the jobs that have a job directory.

    Parameters
    ----------
    tracker : Tracker
        Tracks the jobs; its ``on_unfinished`` receives each active one.
    """

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self._changed: float | None = None
        self._ignored: set[str] = set()  # reading them again cannot help
        self._refused: dict[str, float] = {}  # when the next reading is due

    async def refresh(self) -> None:
        """Update the jobs from the folder; nothing is read if no directory was added or removed since the last time."""
        tracker, now = self._tracker, self._tracker.clock()
        transport = tracker.client.transport
        try:
            changed = (await transport.stat(tracker.folder.path)).mtime
            if changed == self._changed and all(at > now for at in self._refused.values()):
                return
            known = set(tracker.entries)
            names = {name for name in await transport.list_dir(tracker.folder.path) if is_key(name)}
        except (FileNotFoundError, TransportError):
            return
        index = await tracker.store.finished(tracker.name) if self._changed is None else {}
        # A change within the same tick of the file system's clock would not be noticed.
        self._changed = changed if now - changed > _SCAN_INTERVAL_S else 0.0
        self._refused = {key: at for key, at in self._refused.items() if key in names - known and at > now}
        for key in names - known - self._ignored - self._refused.keys():
            try:
                if await self.get(key, index.get(key)) is None:
                    self._ignored.add(key)
            except TransportError as error:
                log.warning("job directory %s is read later: %s", key, error)
                if is_momentary(error):
                    self._changed = 0.0
                else:
                    self._refused[key] = now + _REFUSED_PAUSE_S
        for key in known - names:  # another agent has cleaned up, or sbatch refused the submission
            entry = tracker.entries.get(key)
            if entry is not None and entry.is_finished:
                tracker.drop(entry)

    async def get(self, key: str, indexed: Any = None) -> TrackedJob | None:
        """Return a job from its directory; None if there is no valid one.

        Parameters
        ----------
        key : str
            Any text: a text that is not a key has no directory.
        indexed : object, optional
            Record from the index, which saves reading the file.

        Raises
        ------
        TransportError
            The directory cannot be read now.
        """
        tracker = self._tracker
        if not is_key(key):
            return None
        folder = tracker.folder.job(key)
        try:
            entry = await self._recalled(folder, indexed)
        except FileNotFoundError:
            return None
        except Exception as error:  # whatever is wrong with one directory, the others are fine
            if isinstance(error, TransportError) and not _is_broken(error):
                raise
            log.warning("job directory %s is left alone: %s", folder.path, error)
            return None
        if key not in tracker.entries:  # another task may have added the job while the file was read
            entry = self._merged(entry)
            tracker.add(entry)
            if not entry.is_finished:
                for resume in tracker.on_unfinished:
                    resume(entry)
        return tracker.entries[key]

    async def has(self, key: str) -> bool:
        """Return whether a directory of that name exists, with any content."""
        try:
            await self._tracker.client.transport.stat(self._tracker.folder.job(key).path)
        except (FileNotFoundError, ValueError):
            return False
        except TransportError:
            return True
        return True

    async def _recalled(self, folder: JobFolder, indexed: Any) -> TrackedJob:
        tracker = self._tracker
        if indexed is not None:
            try:
                entry = TrackedJob(tracker.name, folder=folder)
                entry.recall(folder.check(indexed), tracker.clock())
                return entry
            except SlurmError as error:
                log.warning("the index has nonsense about %s: %s", folder.key, error)
        entry = TrackedJob(tracker.name, folder=folder)
        entry.recall(await folder.load(tracker.client.transport), tracker.clock())
        return entry

    def _merged(self, entry: TrackedJob) -> TrackedJob:
        """Merge a job with the queue's entry of the same ID; the next query confirms or separates them."""
        shown = self._tracker.find(str(entry.id)) if entry.id is not None and not entry.is_finished else None
        if shown is None or shown.folder is not None or shown.is_finished or entry.record is None:
            return entry
        shown.folder, shown.record, shown.slurm.submitted = entry.folder, entry.record, entry.slurm.submitted
        shown.slurm.lose_sight(self._tracker.clock())
        return shown


def _is_broken(error: TransportError) -> bool:
    """Return whether reading again cannot help."""
    cause = error.__cause__
    return isinstance(error, UntrustedFile) or (isinstance(cause, OSError) and cause.errno in _BROKEN)


def is_momentary(error: TransportError) -> bool:
    """Return whether a directory that cannot be read now may be readable at once: the error is not about its path."""
    cause = error.__cause__
    return "path" not in error.details or (isinstance(cause, OSError) and cause.errno in _MOMENTARY)
