"""Search for a job whose submission got no answer: in the queue, in its directory, and in accounting."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.errors import CommandError, ControllerError, SlurmError
from jupyter_slurm.retry_delays import RetryDelays
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.slurm.client import SlurmClient
from jupyter_slurm.services.slurm.cluster_clock import earliest_on_cluster
from jupyter_slurm.services.submission.sbatch_execution import SbatchAnswer

__all__ = ["LookupResult", "SubmissionLookup"]

log = logging.getLogger(__name__)

_MIN_LOOKUPS = 2
_LOOKUP_INTERVAL_S = 5.0
_ACCOUNTING_LAG_S = 60.0
_MAX_PAUSE_S = 60.0
_MAX_ID_CHARACTERS = 20  # characters


@dataclass(frozen=True)
class LookupResult:
    """Job found; or None, and whether it is certain that the job never existed."""

    job: JobId | None
    is_certain: bool = True


class SubmissionLookup:
    """Search for jobs by the path of their script, which is unique.

    Parameters
    ----------
    client : SlurmClient
        Queries Slurm.
    clock : callable
        Seconds since the epoch.
    """

    def __init__(self, client: SlurmClient, clock: Callable[[], float]) -> None:
        self._client, self._clock = client, clock

    async def in_queue(self, entry: TrackedJob, since: float, answer: SbatchAnswer | None) -> LookupResult:
        """Search until the controller has answered no twice: after a freeze it first processes pending requests.

        A no is certain only while the controller would still remember a job that started at ``since`` (seconds since
        the
        epoch) and is over. The agent may have been suspended, restarted or disconnected for longer than that.
        """
        absent, delays, remembers = 0, RetryDelays(2.0, _MAX_PAUSE_S), 0.0
        while absent < _MIN_LOOKUPS:
            try:
                found = await self._client.find_script(entry.script_path or "")
                if found is not None:
                    return LookupResult(JobId(found.id.job))
                remembers = await self._client.min_job_age()
            except SlurmError as error:
                log.info("submission %s is still looked for: %s", entry.key, error.message)
                absent = 0
                await asyncio.sleep(delays.next())
                continue
            absent += 1
            await asyncio.sleep(_LOOKUP_INTERVAL_S if absent < _MIN_LOOKUPS else 0)
        never_asked = answer is None or answer.is_unsent
        if answer is not None and answer.is_ambiguous:  # sbatch accepted the job: it may be over, but it was there
            return LookupResult(None, is_certain=False)
        return LookupResult(None, never_asked or 0 <= self._clock() - since < remembers)

    async def in_folder(self, entry: TrackedJob) -> tuple[JobId | None, bool]:
        """Search for signs that the job ran: return the ID from its claim, and whether there are any signs."""
        if entry.folder is None:
            return None, False
        transport = self._client.transport
        try:
            names = await transport.list_dir(entry.folder.path)
            if "claim" in names:
                claim = (await transport.read(entry.folder.file("claim"), 0, _MAX_ID_CHARACTERS)).strip()
                if claim.isdigit():
                    return JobId(int(claim)), True
        except FileNotFoundError:  # the directory was removed
            return None, False
        return None, any(name.startswith(("stdout", "stderr", "claim", "end")) for name in names)

    async def in_accounting(self, entry: TrackedJob, since: float) -> LookupResult:
        """Search for a job that may have started and ended unseen.

        Without accounting, the job certainly never ran if it would have left its claim or its output.
        """
        start = await earliest_on_cluster(self._client.transport, since, self._clock()) - 60
        while True:
            try:
                jobs = await self._client.accounting.submissions(entry.script_path or "", start)
            except ControllerError:
                raise
            except CommandError:  # there is no accounting
                return LookupResult(None, _leaves_traces(entry))
            if jobs:
                return LookupResult(jobs[-1][0])
            if self._clock() - since >= _ACCOUNTING_LAG_S:
                return LookupResult(None)
            await asyncio.sleep(_LOOKUP_INTERVAL_S)


def _leaves_traces(entry: TrackedJob) -> bool:
    stdout = (entry.record.outputs.stdout if entry.record else None) or ""
    return entry.kind == "python" or (entry.folder is not None and stdout.startswith(entry.folder.file("stdout")))
