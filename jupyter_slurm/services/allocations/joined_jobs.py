"""Running jobs that were not started as allocations, joined: steps, cells and kernels run inside them.

A joined job is used like an allocation. A step of jupyter_slurm in it runs the holder of allocations
(``runner/allocation/hold.py``), with a job directory of its own, and shares all resources of the job (``--overlap``).
Leaving the job ends this step, never the job. The end of the job ends the step.
"""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from jupyter_slurm._version import __version__
from jupyter_slurm.config import Settings
from jupyter_slurm.domain.advice.endings import explain_end
from jupyter_slurm.domain.advice.reasons import explain
from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.domain.states import ENDING_STATES, JobState
from jupyter_slurm.errors import JobError, TransportError, UsageError
from jupyter_slurm.services.jobdir.job_directory import FORMAT, dump, is_key
from jupyter_slurm.services.jobdir.job_json_model import JobRecordFile, JoinedRecord, LeaseRecord, OutputsRecord
from jupyter_slurm.services.jobs.array_parts import task_index
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.lookup import check_not_suspended
from jupyter_slurm.services.jobs.serialize import job_dict
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.slurm.client import SlurmClient, decode_output, printable
from jupyter_slurm.transport.base import DetachedRun

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["JoinedJobs"]

_HOLDER = "allocation/hold.py"
_SCRIPT = "allocation"
_CHECK_INTERVAL_S = 30.0  # seconds between two checks whether the step still exists, because its signs may be lost
_MAX_TRIES = 5  # readings of the end of a step whose job is over
_START_CHECK_S = 0.2  # seconds between two checks whether the step has started
_FIND_HINT = "List your jobs with `%squeue --me`."


class JoinedJobs:
    """Join running jobs of the user on one cluster, and leave them.

    Parameters
    ----------
    client, tracker
        Services of the cluster.
    find : callable
        Finds a job by its ID, without its details.
    installed_path : callable
        Installs the runner, and returns the path of one of its files.
    apply_start : callable
        Records the start of a holder.
    settings : Settings
        Have the time in which the step must start, and the lease where the caller names none.
    """

    def __init__(
        self,
        client: SlurmClient,
        tracker: Tracker,
        find: Callable[[str], Awaitable[TrackedJob]],
        installed_path: Callable[[str], Awaitable[str]],
        apply_start: Callable[[TrackedJob], Awaitable[None]],
        settings: Settings,
    ) -> None:
        self.default_lease = settings.allocation_lease
        self._client, self._tracker, self._find, self._timeout = client, tracker, find, settings.submit_timeout
        self._installed_path, self._apply_start = installed_path, apply_start
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._checked_at: dict[str, float] = {}
        self._tries: dict[str, int] = {}

    async def join(self, reference: str, requested: api.JoinJobRequest) -> api.Job:
        """Join a running job, once: a job that is joined already is returned.

        Raises
        ------
        UsageError, JobError
            The job cannot be joined; nothing was started.
        """
        if not is_key(requested["key"]):
            raise UsageError(
                f"{requested['key']!r} is not a valid submission key.", hint="Run the cell again to get a new key."
            )
        host = await self._find(reference)
        lease = host.record.lease if host.record is not None and not host.is_finished else None
        if lease is not None and lease.once:
            raise UsageError(
                f"Job {reference} ends with its only step: no open allocation has this name or job ID.",
                hint="Request an allocation with %salloc.",
            )
        if lease is not None:
            return job_dict(host)  # it is an allocation
        task = _task(reference, host)
        assert host.id is not None  # `_task` refuses steps and jobs without an ID
        job = JobId(host.id.job, task)
        await check_not_suspended(self._tracker, job, "nothing can start in it")
        async with self._locks.setdefault(str(job), asyncio.Lock()):
            known = self._open_one(job) or self._tracker.find(requested["key"])
            if known is not None:
                return job_dict(known)
            record = await self._running_record(job)
            return job_dict(await self._start(job, record, requested))

    async def leave(self, entry: TrackedJob) -> api.Job:
        """End the step that holds a joined job, with all that it has started; the job continues."""
        if not entry.is_finished and entry.folder is not None and entry.record is not None:
            request = f"steps/{entry.key}.KILL.{secrets.token_hex(4)}"
            await self._client.transport.make_dir(entry.folder.file(request))
            entry.record = replace(entry.record, released="asked")
            self._tracker.schedule_save(entry)
            self._tracker.publish(entry)
        return job_dict(entry)

    async def tend(self) -> None:
        """Record the ends of joined jobs, and of their steps."""
        for entry in [entry for entry in self._tracker.active() if entry.joined is not None]:
            if entry.state.is_pending:
                await self._apply_start(entry)
                if entry.record and entry.record.granted is not None:
                    entry.started(self._tracker.clock())
            host = self._tracker.find(str(entry.id.job)) if entry.id is not None else None
            if host is not None and entry.id is not None:
                host = host.task_view(entry.id.task)
                self._show_resources(entry, host.latest)
            if host is not None and (host.is_finished or host.state.is_pending):
                await self._end_with_job(entry, host)
            else:
                if host is not None and entry.state.is_running and entry.set_state(host.state, self._tracker.clock()):
                    self._tracker.publish(entry)  # suspended, or resumed
                await self._check(entry)

    def _open_one(self, job: JobId) -> TrackedJob | None:
        """Return the step that holds a job already."""
        mine = (entry for entry in self._tracker.active() if entry.joined is not None and entry.id == job)
        return next((entry for entry in mine if entry.record is not None and not entry.record.released), None)

    async def _running_record(self, job: JobId) -> JobRecord:
        """Return Slurm's record of a job that can be joined now.

        Raises
        ------
        UsageError, JobError
            The job cannot be joined.
        """
        ask = self._client.describe if self._client.singles.is_ready() else self._client.find_jobs
        records = await ask(job)
        if any(record.id.het is not None for record in records):
            raise UsageError(
                f"Job {job} is heterogeneous. A step can join only a job with one component.",
                hint="Use srun in the job's own script.",
            )
        record = next((record for record in records if record.id.task == job.task), None)
        if record is None or record.state.is_finished or record.state.name in ENDING_STATES:
            how = f" ({record.state.name})" if record is not None else ""
            raise JobError(f"Job {job} has ended{how}, so nothing can run in it.", hint=_FIND_HINT)
        if record.state.name != "RUNNING":
            why = explain(record.reason, record)[0] if record.state.is_pending else ""
            raise JobError(
                f"Job {job} is not running ({record.state.name}). {why}".rstrip(),
                hint="Wait until it runs, then run the cell again.",
            )
        return record

    async def _start(self, job: JobId, record: JobRecord, requested: api.JoinJobRequest) -> TrackedJob:
        holder = await self._installed_path(_HOLDER)
        folder, now = self._tracker.folder.job(requested["key"]), self._tracker.clock()
        step = ["srun", f"--jobid={record.raw_id or job.job}", "--overlap", "--nodes=1", "--ntasks=1", "--input=none"]
        argv = [*step, "--mpi=none", requested["python"], "-u", holder, folder.path]
        written = JobRecordFile(
            format=FORMAT,
            key=folder.key,
            kind="allocation",
            created=now,
            writer=__version__,
            script=_SCRIPT,
            argv=argv,
            work_dir=record.work_dir,
            events=self._tracker.folder.events,
            outputs=OutputsRecord(stdout=f"{folder.answer(1)}.out", stderr=f"{folder.answer(1)}.err"),
            lease=LeaseRecord(seconds=requested["lease"], keep=True),
            joined=JoinedRecord(job=str(job)),
            given=frozenset({"label", "work_dir", "end"}),
        )
        files = {_SCRIPT: b"", "job.json": dump(written.to_json())}
        context = self._client.submission_context(requested.get("context") or {})
        run = await self._client.transport.start_detached(folder.answer(1), argv, files=files, context=context)
        entry = TrackedJob(self._tracker.name, folder=folder)
        entry.recall(written, now)
        self._show_resources(entry, record)
        self._tracker.add(entry)
        try:
            await self._await_start(entry, run)
        finally:
            if run.lock is not None:
                run.lock.release()
        return entry

    async def _await_start(self, entry: TrackedJob, run: DetachedRun) -> None:
        """Wait until the holder runs.

        Raises
        ------
        JobError
            Slurm did not start the step, or not in time.
        """
        assert entry.folder is not None
        until = asyncio.get_running_loop().time() + self._timeout
        while entry.record is not None and entry.record.granted is None:
            done = await run.result(_START_CHECK_S)
            await self._apply_start(entry)
            if done is not None and entry.record.granted is None:
                await self._client.transport.remove(entry.folder.path)
                self._tracker.drop(entry)
                lines = printable(decode_output(done.stderr)).strip().splitlines()
                raise JobError(
                    f"Slurm started no step in job {entry.joined}: {'; '.join(lines[-2:]) or 'it gave no reason'}",
                    hint="Try `srun --jobid=JOB --overlap hostname` on the login node.",
                )
            if asyncio.get_running_loop().time() > until:
                await self.leave(entry)
                raise JobError(
                    f"Slurm has not started a step in job {entry.joined} for {self._timeout:g} s.",
                    hint="The step ends as soon as it starts. Run the cell again later.",
                )
        entry.started(self._tracker.clock())
        self._tracker.publish(entry)

    def _show_resources(self, entry: TrackedJob, latest: JobRecord | None) -> None:
        """Show nodes and times of the job: they are those of the step."""
        if latest is not None and entry.id is not None:
            entry.slurm.latest = replace(latest, id=entry.id, restarts=None)
            entry.start_time = latest.start_time or entry.start_time

    async def _end_with_job(self, entry: TrackedJob, host: TrackedJob) -> None:
        """Record the end of a job, which has ended its steps."""
        key = entry.key or ""
        if not await self._tracker.read_end(entry) and not entry.is_finished:
            self._tries[key] = tries = self._tries.get(key, 0) + 1
            if tries < _MAX_TRIES:
                return  # read again soon: an end that cannot be read is not an end that does not exist
            entry.set_state(JobState("CANCELLED"), self._tracker.clock())
        self._tries.pop(key, None)
        how = "was requeued" if host.state.is_pending else "has ended"
        why = explain_end(host.latest)[0] if host.is_finished and host.latest is not None else ""
        entry.error = JobError(
            f"Job {entry.joined} {how}. {why}".rstrip(), hint="Name a running job with on=.", with_allocation=True
        )
        await self._tracker.finish(entry)

    async def _check(self, entry: TrackedJob) -> None:
        """Check at intervals whether the step exists: its srun holds a lock while it runs."""
        now, key = self._tracker.clock(), entry.key or ""
        if entry.folder is None or abs(now - self._checked_at.setdefault(key, now)) < _CHECK_INTERVAL_S:
            return
        self._checked_at[key] = now
        if not await self._tracker.read_end(entry) and not await self._is_gone(f"{entry.folder.answer(1)}.out"):
            return
        if not entry.is_finished:
            entry.set_state(JobState("CANCELLED"), now)
        del self._checked_at[key]
        await self._tracker.finish(entry)

    async def _is_gone(self, path: str) -> bool:
        """Return whether srun has ended without an end marker of its step."""
        with contextlib.suppress(TransportError):
            try:
                held = await self._client.transport.acquire_lock(path)
            except FileNotFoundError:
                return True
            if held is None:
                return False
            held.release()
            return posixpath.basename(path) in await self._client.transport.list_dir(posixpath.dirname(path))
        return False


def _task(reference: str, host: TrackedJob) -> int | None:
    """Return the task that a reference to a job names.

    Raises
    ------
    UsageError, JobError
        The reference names a step, a whole array, or a job without an ID.
    """
    if host.is_step or "." in reference:
        raise UsageError(f"{reference} is a step of a job.", hint="Name the job without the number of the step.")
    if host.id is None:
        raise JobError(f"Job {reference} has no job ID yet.", hint="Try again in a few seconds.")
    task = task_index(reference, host)
    if task is None and host.is_array:
        raise UsageError(
            f"Job {host.id} is an array. A step runs in one of its tasks.", hint=f"Name a task: on={host.id.job}_INDEX."
        )
    return task if task is not None else host.id.task
