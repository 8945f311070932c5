"""Signs of the runners in their jobs, and of other agents, in the cluster's events folder."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace

from jupyter_slurm.errors import CommandTimeout, ParseError, TransportError
from jupyter_slurm.services.jobs.directory_scan import JobDirectoryScan, is_momentary
from jupyter_slurm.services.jobs.failures import contained
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.tracker import Tracker

__all__ = ["RunnerEvents"]

_EVENT_KINDS = "started|warned|renamed|ended"
_EVENT_FILE = re.compile(rf"(?P<key>[0-9]{{8}}-[0-9]{{6}}-[0-9a-f]+)(?:\.(?P<task>[0-9]+))?\.(?P<what>{_EVENT_KINDS})")
_EVENT_MAX_AGE_S = 60.0


class RunnerEvents:
    """Process the events folder. Other agents of the user read it too, so a sign stays for a minute.

    Parameters
    ----------
    tracker, shelf
        Services of the cluster.
    on_start : callable
        Receives each job that has started, before listeners do.
    request_end : callable
        Requests the end of a job from Slurm soon.
    """

    def __init__(
        self,
        tracker: Tracker,
        shelf: JobDirectoryScan,
        on_start: Callable[[TrackedJob], Awaitable[None]],
        request_end: Callable[[TrackedJob], object],
    ) -> None:
        self._tracker, self._shelf, self._on_start, self._request_end = tracker, shelf, on_start, request_end
        self._handled: dict[str, float] = {}
        self._late: dict[str, float] = {}  # signs of an end whose marker has not appeared, since when

    @property
    def has_unremoved(self) -> bool:
        """Return whether signs that were read are still to be removed."""
        return any(at < math.inf for at in self._handled.values())

    async def read(self) -> None:
        """Read the signs of the runners."""
        folder, transport = self._tracker.folder.events, self._tracker.client.transport
        try:
            names = await transport.list_dir(folder)
        except (FileNotFoundError, TransportError):
            return
        signs = [sign for name in names if (sign := _EVENT_FILE.fullmatch(name))]
        self._handled = {sign[0]: self._handled[sign[0]] for sign in signs if sign[0] in self._handled}
        self._late = {sign[0]: self._late[sign[0]] for sign in signs if sign[0] in self._late}
        now = self._tracker.clock()
        for sign in sorted(signs, key=lambda sign: sign["what"] == "ended"):
            is_readable_again = self._handled.get(sign[0]) == math.inf and sign["key"] in self._tracker.entries
            if sign[0] not in self._handled or is_readable_again:
                await self._apply_events(sign, now)
            elif now - self._handled[sign[0]] >= _EVENT_MAX_AGE_S:
                with contextlib.suppress(TransportError):
                    await transport.remove(f"{folder}/{sign[0]}")
                    await self._read_session_note(self._tracker.entries.get(sign["key"]), sign["what"])

    async def _read_session_note(self, entry: TrackedJob | None, subject: str) -> None:
        """Request a read of a server's warnings, or read the new name of a session.

        This is repeated when the sign is removed, because the sign may have been written twice.
        """
        if entry is None or entry.is_finished:
            return
        if subject == "warned" and entry.session.server is not None:
            entry.session.server.is_stale = True
        if subject == "renamed" and entry.folder is not None and entry.record is not None:
            with contextlib.suppress(FileNotFoundError, TransportError, ParseError):
                label = (await entry.folder.load(self._tracker.client.transport)).label
                if label != entry.record.label:
                    entry.record = replace(entry.record, label=label)
                    self._tracker.publish(entry)

    async def _apply_events(self, sign: re.Match[str], now: float) -> None:
        tracker = self._tracker
        try:
            entry = tracker.entries.get(sign["key"]) or await self._shelf.get(sign["key"])
        except TransportError as error:
            if is_momentary(error) and not isinstance(error, CommandTimeout):
                return  # read again
            entry = None
        if entry is None:
            # An unreadable directory keeps its sign, because it may be foreign. A sign without directory is not needed.
            self._handled[sign[0]] = math.inf if await self._shelf.has(sign["key"]) else now
            return
        if entry.id is None and not entry.is_finished and not entry.is_step:
            return  # its ID is not known yet: read again
        self._handled[sign[0]] = now
        with contained(entry):
            await self._apply_event(entry, sign, now)

    async def _apply_event(self, entry: TrackedJob, sign: re.Match[str], now: float) -> None:
        tracker = self._tracker
        if sign["task"] is not None or entry.is_finished:
            return
        if sign["what"] in ("warned", "renamed"):
            await self._read_session_note(entry, sign["what"])
        elif sign["what"] == "started":
            await self._on_start(entry)
            if entry.started(tracker.clock()) or entry.reports_events:
                tracker.publish(entry)
        elif entry.record is not None and entry.record.heterogeneous:
            self._request_end(entry)  # only the queue has the ends of the components
        elif await tracker.read_end(entry):
            await tracker.finish(entry)
        elif now - self._late.setdefault(sign[0], now) < _EVENT_MAX_AGE_S and await self._is_awaited(entry):
            del self._handled[sign[0]]  # read again
        else:
            self._request_end(entry)  # it ended by a signal, whose reason Slurm knows

    async def _is_awaited(self, entry: TrackedJob) -> bool:
        """Return whether an end marker, which was written before its sign, has not appeared: NFS keeps directories."""
        if entry.folder is None:
            return False
        try:
            await self._tracker.client.transport.stat(entry.folder.end_marker(None))
        except FileNotFoundError:
            return True
        except TransportError:
            return False
        return False
