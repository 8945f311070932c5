"""Readable data of a job: script, record, usage and output."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.scripts.recorded_options import stored_script
from jupyter_slurm.errors import (
    CommandError,
    JobError,
    JobOutputMissing,
    TransportError,
    UntrustedFile,
    UsageError,
)
from jupyter_slurm.services.event_bus import Event
from jupyter_slurm.services.jobdir import job_directory
from jupyter_slurm.services.jobdir.job_written_files import read_whole
from jupyter_slurm.services.jobdir.ownership import check_ownership, is_owned
from jupyter_slurm.services.jobs.array_parts import shared_folder, task_index
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.results import output
from jupyter_slurm.services.results.output_growth import OutputGrowth
from jupyter_slurm.services.results.record import recorded
from jupyter_slurm.services.results.usage_report import report_to_api
from jupyter_slurm.services.results.usage_samples import sampled
from jupyter_slurm.services.slurm.client import SlurmClient, printable

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["ResultReader"]

_NFS_CACHE_S: Final = 60.0  # seconds for which an NFS client may not see a new file (acdirmax of nfs(5))
_CHECK_INTERVAL_S: Final = 1.0


class StateChecks(Protocol):
    """Requests for a state: :class:`jupyter_slurm.services.clusters.job_checks.JobChecks`."""

    def wake(self) -> None:
        """Request a query of the queue soon."""

    def note_news(self, entry: TrackedJob) -> None:
        """Look at a job soon, because it has written output or started."""


class ResultReader:
    """Read data and results of one cluster's jobs.

    Parameters
    ----------
    client : SlurmClient
        Queries Slurm.
    tracker : Tracker
        Tracks the jobs.
    checks : StateChecks
        Asks for the state of a job whose output shows that it starts or ends.
    reached : callable
        Returns the connection fields of the API.
    find : callable
        Returns the job of a reference; raises JobNotFound.
    display_entry : callable
        Returns the part that a reference means: one task, or the whole job.
    """

    def __init__(
        self,
        client: SlurmClient,
        tracker: Tracker,
        checks: StateChecks,
        reached: Callable[[], output.LinkState],
        find: Callable[[str], Awaitable[TrackedJob]],
        display_entry: Callable[[str, TrackedJob], TrackedJob],
    ) -> None:
        self._client, self._tracker, self._checks, self._reached = client, tracker, checks, reached
        self._find, self._display_entry = find, display_entry
        self._transport, self._clock = client.transport, tracker.clock
        self._tails = OutputGrowth(client.transport)

    async def stop(self) -> None:
        """Stop following output."""
        await self._tails.stop()

    async def script(self, reference: str) -> bytes:
        """Return the batch script of a job, unchanged.

        Raises
        ------
        JobError
            The job was submitted elsewhere, and neither the controller nor accounting has its script any more.
        ControllerError
            Slurm gives no answer.
        """
        entry = await self._find(reference)
        if entry.folder is not None and entry.record is not None:
            return await read_whole(self._transport, entry.folder.file(entry.record.script))
        script = b""  # also the answer of some versions of scontrol about a job that the controller has forgotten
        with contextlib.suppress(CommandError):
            script = await self._client.query(["scontrol", "write", "batch_script", str(entry.id), "-"])
        return script or await self._stored_script(entry, reference)

    async def _stored_script(self, entry: TrackedJob, reference: str) -> bytes:
        """Return the script that accounting keeps, on clusters where it does."""
        answer = b""
        if entry.id is not None:
            task = task_index(reference, entry)
            task = min(entry.slurm.tasks, default=None) if task is None else task  # else sacct prints it for each task
            with contextlib.suppress(CommandError):  # without accounting, or by sacct without this option
                asked = JobId(entry.id.job, task)
                answer = await self._client.query(["sacct", "--batch-script", f"--jobs={asked}"])
        script = stored_script(answer)
        if script is None:
            raise JobError(
                f"Slurm no longer has the script of job {printable(reference)}.",
                hint="The controller keeps it for MinJobAge after the end of the job, accounting only where "
                "AccountingStoreFlags has job_script. Submit the script from its file.",
            )
        return script

    async def source(self, reference: str) -> bytes:
        """Return the typed source, if different from the batch script."""
        entry = await self._find(reference)
        cell, folder = entry.record.cell if entry.record else None, shared_folder(entry)
        if cell is None and folder is not None:
            with contextlib.suppress(FileNotFoundError):
                return await read_whole(self._transport, folder.file(job_directory.SWEEP_SCRIPT))
        if cell is None:
            raise UsageError(
                f"Job {printable(reference)} is not a Python cell.", hint="Read its script with job.script."
            )
        return cell.source.encode("utf-8", "surrogateescape")

    async def record(self, reference: str) -> api.Record:
        """Return the record of a job."""
        return await recorded(self._transport, await self._find_single(reference), reference)

    async def report(self, reference: str) -> api.Report:
        """Return the usage report of a job."""
        return await report_to_api(self._client, await self._find_single(reference), self._clock())

    async def usage(self, reference: str) -> api.Usage:
        """Return the usage of a job over time."""
        return await sampled(self._transport, await self._find_single(reference))

    async def output(self, reference: str, stream: str, offset: int, limit: int | None) -> tuple[bytes, int]:
        """Return a part of a job's output and its total size in bytes; a negative offset counts from the end."""
        entry = await self._find(reference)
        asked = entry.task_view(task_index(reference, entry))
        try:
            if entry.folder and stream not in output.STREAMS and not (offset or limit):
                await check_ownership(self._transport, entry.folder.path)  # before anything is said of the file
            while True:
                try:
                    found, size = await output.read_output(
                        self._transport, asked, stream, offset, limit, finished=entry.is_finished
                    )
                    if not self._is_growing(asked, {stream: size}):
                        return found, size
                except JobOutputMissing:
                    if not await self._is_late(asked, stream):
                        raise
                await asyncio.sleep(_CHECK_INTERVAL_S)
        except UntrustedFile as error:
            raise JobOutputMissing(
                f"The results of the job were not read: {printable(str(error.details['reason']))}.",
                hint="Read its text output with job.stdout.",
            ) from None

    async def _is_late(self, entry: TrackedJob, stream: str) -> bool:
        """Return whether a missing file exists, and NFS does not show it yet: that of a job that has just ended.

        An NFS client keeps for a while that a file does not exist, but it asks for the names in a folder that it opens.
        """
        path = entry.path(stream)
        if path is None or not self._has_just_ended(entry):
            return False
        folder, _, name = path.rpartition("/")
        try:
            return name in await self._transport.list_dir(folder or "/")
        except (OSError, TransportError):
            return False

    def _has_just_ended(self, entry: TrackedJob) -> bool:
        """Return whether an NFS client may still have an older view of the files of a finished job."""
        since = 0.0 if entry.state_since is None else entry.state_since
        return entry.is_finished and 0 <= self._clock() - since < _NFS_CACHE_S

    def _is_growing(self, entry: TrackedJob, sizes: Mapping[str, int | None]) -> bool:
        """Return whether files of a job that has just ended are smaller than at its end: NFS keeps sizes, too.

        Only those in the job directory count: a path elsewhere may be another file on the node.
        """
        if entry.folder is None or not self._has_just_ended(entry):
            return False
        smaller = [name for name, size in sizes.items() if (size or 0) < entry.runner.sizes.get(name, 0)]
        return any((entry.path(name) or "").startswith(f"{entry.folder.path}/") for name in smaller)

    async def _is_incomplete(self, entry: TrackedJob, sizes: Mapping[str, int | None]) -> bool:
        """Return whether more is to come of the followed files of a job that has just ended."""
        sized = entry.runner.sizes
        # Most jobs have no display data: only the runner tells whether there are some.
        missing = [one for one, size in sizes.items() if size is None and (one in output.STREAMS or sized.get(one))]
        for name in missing:
            if await self._is_late(entry, name):
                return True
        return self._is_growing(entry, {name: size for name, size in sizes.items() if size is not None})

    async def stream(self, reference: str, offsets: dict[str, int]) -> AsyncIterator[Event]:
        """Yield the output and the states of a job until its end."""
        entry = await self._find(reference)
        positions: dict[str, int] = {}  # display data first: it has positions in the text
        if output.DISPLAY in offsets and entry.folder and await is_owned(self._transport, entry.folder.path):
            positions[output.DISPLAY] = offsets[output.DISPLAY]
        positions |= {name: offsets.get(name, 0) for name in output.STREAMS}
        with self._tracker.listening(entry) as changed:
            self._checks.wake()

            def look() -> TrackedJob:
                return self._display_entry(reference, self._tracker.find(reference) or entry)

            begun = functools.partial(self._note_output, entry)
            lost = functools.partial(output.why_lost, self._tracker.name, self._reached)
            heard = output.Listener(changed, begun, self._is_incomplete)
            async for event in output.follow(self._transport, self._tails, look, positions, heard, lost):
                yield event

    def _note_output(self, entry: TrackedJob) -> None:
        """Treat output in the directory of a job that never ran before as the sign of its start, and expect its end."""
        own = entry.folder is not None and (entry.paths()["stdout"] or "").startswith(f"{entry.folder.path}/")
        if own and entry.state.is_pending and not entry.restarts and entry.started(self._clock()):
            self._tracker.publish(entry)
        self._checks.note_news(entry)

    async def _find_single(self, reference: str) -> TrackedJob:
        return self._display_entry(reference, await self._find(reference))
