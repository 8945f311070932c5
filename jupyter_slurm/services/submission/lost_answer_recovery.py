"""Recovery of submissions whose answer was lost: found, proved absent and retried, or reported. Never simply repeated.

Several agents of one user may see the same job directories: on two login nodes, or with two runtime directories. The
agent with the lock of the directory settles a submission. The others read its result from the directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.states import JobState
from jupyter_slurm.errors import (
    CommandError,
    ControllerError,
    JobError,
    ParseError,
    SlurmError,
    SubmissionUnknown,
)
from jupyter_slurm.retry_delays import RetryDelays
from jupyter_slurm.services.jobdir.job_json_model import SlurmJobRecord
from jupyter_slurm.services.jobs.job import NOT_SUBMITTED, UNKNOWN, TrackedJob
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.slurm.client import SlurmClient
from jupyter_slurm.services.slurm.poller import Poller
from jupyter_slurm.services.submission import sbatch_execution
from jupyter_slurm.services.submission.sbatch_execution import SbatchAnswer, foreign_cluster_error, refusal
from jupyter_slurm.services.submission.sbatch_plan import Plan
from jupyter_slurm.services.submission.submission_lookup import SubmissionLookup
from jupyter_slurm.transport.base import Context

__all__ = ["SubmissionRecovery"]

log = logging.getLogger(__name__)

_MAX_ATTEMPTS = 3
_CHECK_INTERVAL_S = 1.0
_MAX_PAUSE_S = 60.0
_MAX_REFUSED_CANCELS = 5
_CANCEL_START_S = 6.0  # seconds; scancel tries again after five


@dataclass
class _UnansweredSubmission:
    """One unsettled submission.

    ``plan`` and ``context`` are None after a restart of the agent; ``since`` is the latest possible start of sbatch, in
    seconds since the epoch.
    """

    entry: TrackedJob
    plan: Plan | None
    context: Context | None
    since: float

    @property
    def attempt(self) -> int:
        return (self.entry.record.attempts if self.entry.record else None) or 1


class SubmissionRecovery:
    """Settle submissions in the background.

    Parameters
    ----------
    tracker, client, watcher
        Services of the cluster.
    timeout : float
        Seconds that sbatch may take.
    """

    def __init__(self, tracker: Tracker, client: SlurmClient, watcher: Poller, timeout: float) -> None:
        self._tracker, self._client, self._watcher, self._timeout = tracker, client, watcher, timeout
        self._search, self._tasks = SubmissionLookup(client, tracker.clock), dict[str, asyncio.Task[None]]()
        tracker.on_unfinished.append(self.resume)

    @property
    def open_count(self) -> int:
        """Return the number of submissions without an answer for which this agent is responsible."""
        entries = (self._tracker.entries.get(key) for key in self._tasks)
        return sum(e is not None and (e.submission.lock is not None or e.id is not None) for e in entries)

    def resume(self, entry: TrackedJob) -> None:
        """Continue the work of an earlier agent: a submission, a cancellation, or tracking."""
        if entry.is_step:
            return
        self._watcher.wake()
        if entry.id is None:
            self.start(entry)
        elif entry.is_to_be_cancelled:
            self._spawn(entry, self._cancel(entry))

    def start(self, entry: TrackedJob, plan: Plan | None = None, context: Context | None = None) -> None:
        """Start the recovery of a submission whose answer is unknown."""
        entry.slurm.lose_sight(self._tracker.clock())
        entry.error = sbatch_execution.awaited(is_cancelled=entry.is_to_be_cancelled)
        self._tracker.publish(entry)
        created = entry.record.created if entry.record else 0.0
        self._spawn(entry, self._run(_UnansweredSubmission(entry, plan, context, created)))

    async def withdraw(self, entry: TrackedJob) -> bool:
        """Stop a recovery: the caller repeats the submission with all its data.

        Returns
        -------
        bool
            Whether this agent is responsible; otherwise another agent works on the submission, or has settled it.
        """
        task = self._tasks.pop(entry.key or "", None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return entry.id is None and not entry.is_finished and await self._is_held(entry)

    async def wait(self, entry: TrackedJob) -> None:
        """Wait until another agent has settled a submission, at most as long as for sbatch itself."""
        task = self._tasks.get(entry.key or "")
        if task is not None:
            await asyncio.wait([task], timeout=self._timeout)

    def cancel(self, entry: TrackedJob) -> None:
        """Stop retrying, because the user cancelled the submission. If the job is found in the queue, cancel it."""
        if entry.record is None:
            return
        entry.record = replace(entry.record, cancel=True)
        if entry.submission.lock is not None:
            self._tracker.schedule_save(entry)
        entry.error = sbatch_execution.awaited(is_cancelled=True)
        self._tracker.publish(entry)

    def schedule_cancel(self, entry: TrackedJob) -> None:
        """Cancel a job as soon as the controller answers, also after a restart of the agent."""
        if entry.record is None or entry.is_finished:
            return
        if entry.id is None:
            self.cancel(entry)
            return
        entry.record = replace(entry.record, cancel=True)
        self._tracker.schedule_save(entry)
        self._spawn(entry, self._cancel(entry))

    async def stop(self) -> None:
        """Stop without changes; the job directories have the data to continue later."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def accept(
        self, entry: TrackedJob, job: JobId, remarks: list[str], cluster: str = "", *, is_owner: bool = True
    ) -> None:
        """Record the ID of a job that sbatch accepted, unless it has put the job on another cluster."""
        error = cluster and foreign_cluster_error(job, cluster, await self._client.cached_configuration())
        if error:
            return await self._conclude(entry, NOT_SUBMITTED, error)
        now = self._tracker.clock()
        entry.id, entry.error = job, None
        entry.slurm.regain_sight()
        entry.warnings.extend(remarks)
        entry.submit_time = entry.submit_time or now
        entry.set_state(sbatch_execution.ACCEPTED, now)
        self._tracker.add(entry)
        if entry.record is not None and entry.folder is not None:
            entry.record = replace(entry.record, job=SlurmJobRecord(id=str(job)))
            if is_owner:
                self._tracker.schedule_save(entry)
        return self._after_settling(entry)

    async def check_number(self, entry: TrackedJob) -> None:
        """Check that a job still owns its ID: the queue has shown the job, or sbatch has just returned the ID.

        Raises
        ------
        SlurmError
            The owner is unknown. No error is raised for a job that turns out to be over.
        """
        if entry.slurm.submitted is not None or not entry.is_current:
            await self._watcher.wait_fresh()
        if not entry.is_finished and (not entry.is_current or self._tracker.find(str(entry.id)) is not entry):
            raise ControllerError(
                f"Job {entry.id} was not changed: it is not known yet whether the ID still belongs to the job.",
                hint="Try again in a minute. `%squeue --me` shows the job that has the ID now.",
            )

    async def scancel(self, entry: TrackedJob, target: str, signal: str | None = None) -> None:
        """Cancel a job, after the queue has shown that its ID is still its own.

        Raises
        ------
        SlurmError
            The job was not cancelled.
        """
        await self.check_number(entry)
        if entry.is_finished:
            return
        argv = ["scancel", *(["--signal", signal] if signal else []), target]
        try:
            # With a signal, scancel waits for a job to start, for a minute or longer.
            async with asyncio.timeout(_CANCEL_START_S if signal and entry.state.is_pending else None):
                await self._client.query(argv)
        except TimeoutError:
            raise JobError(
                f"Job {target} has not started, so it cannot get a signal.",
                hint="Use job.cancel() without a signal to cancel it.",
            ) from None

    def _spawn(self, entry: TrackedJob, work: Coroutine[Any, Any, None]) -> None:
        key = entry.key or ""
        task = asyncio.create_task(work, name=f"settle {key}")
        self._tasks[key] = task
        task.add_done_callback(lambda done: self._tasks.pop(key) if self._tasks.get(key) is done else None)

    def _after_settling(self, entry: TrackedJob) -> None:
        self._tracker.publish(entry)
        self._watcher.wake()
        if entry.is_to_be_cancelled and not entry.is_finished:
            self._spawn(entry, self._cancel(entry))

    async def _run(self, case: _UnansweredSubmission) -> None:
        """Settle a submission; errors on the way prove nothing, and the step is repeated."""
        delays = RetryDelays(1.0, _MAX_PAUSE_S)
        while True:
            try:
                if await self._wait_owned(case.entry):
                    await self._settle(case)
                return
            except (SlurmError, OSError, ValueError) as error:  # ValueError: of an answer that cannot be read
                log.warning("submission %s: %s", case.entry.key, error)
                said = error.message if isinstance(error, SlurmError) else str(error)
                case.entry.error = sbatch_execution.awaited(said, is_cancelled=case.entry.is_to_be_cancelled)
                self._tracker.publish(case.entry)
            await asyncio.sleep(delays.next())

    async def _wait_owned(self, entry: TrackedJob) -> bool:
        """Wait until this agent is responsible for a submission (True), or another agent has settled it (False)."""
        while not await self._is_held(entry):
            if entry.id is not None or entry.is_finished or await self._is_accepted(entry):
                return False
            await asyncio.sleep(_CHECK_INTERVAL_S)
        return True

    async def _is_accepted(self, entry: TrackedJob) -> bool:
        """Take the ID from sbatch's answer: after a cut, a login node may keep a session, with its lock, for hours."""
        folder, attempt = entry.folder, (entry.record.attempts if entry.record else None) or 1
        with contextlib.suppress(FileNotFoundError):  # sbatch has not started
            answer = folder and await sbatch_execution.read_answer(self._client.transport, folder, attempt)
            if answer and answer.job and not answer.cluster:
                await self.accept(entry, answer.job, answer.remarks, is_owner=False)
                return True
        return False

    async def _is_held(self, entry: TrackedJob) -> bool:
        """Return whether this agent holds the lock of a job directory; after a broken connection, lock again."""
        if entry.submission.lock is not None and entry.submission.lock.is_lost:
            entry.submission.release_lock()
        return entry.submission.lock is not None or await self._acquire_lock(entry)

    async def _acquire_lock(self, entry: TrackedJob) -> bool:
        """Lock a job directory and read its record; False: another agent has the lock, or it is settled."""
        if entry.folder is None or entry.script_path is None:
            return False
        hold = None
        try:
            hold = await self._client.transport.acquire_lock(entry.script_path)
            if not await self._is_settled_on_disk(entry):
                entry.submission.lock, hold = hold, None
        except FileNotFoundError:
            self._withdrawn(entry)
        finally:
            if hold is not None:
                hold.release()
        return entry.submission.lock is not None

    async def _is_settled_on_disk(self, entry: TrackedJob) -> bool:
        """Read the record from disk; return whether another agent has settled the submission."""
        if entry.folder is None:
            return False
        record, is_cancelled = await entry.folder.load(self._client.transport), entry.is_to_be_cancelled
        if is_cancelled:
            record = replace(record, cancel=True)
        if not (record.job or record.end):
            entry.record = record
            return False
        entry.recall(record, self._tracker.clock())
        self._tracker.add(entry)
        self._after_settling(entry)
        return True

    def _withdrawn(self, entry: TrackedJob) -> None:
        entry.error = sbatch_execution.withdrawal()
        entry.slurm.regain_sight()
        entry.set_state(NOT_SUBMITTED, self._tracker.clock())
        self._tracker.publish(entry)
        self._tracker.drop(entry)

    async def _settle(self, case: _UnansweredSubmission) -> None:
        entry = case.entry
        while True:
            answer = await self._answer(case)
            if answer is not None and answer.job is not None:
                return await self.accept(entry, answer.job, answer.remarks, answer.cluster)
            if answer is not None and answer.is_clear:
                return await self._refuse(entry, refusal(answer, entry.record.argv if entry.record else []))
            found = await self._search.in_queue(entry, case.since, answer)
            job, has_run, is_certain = found.job, False, found.is_certain
            if job is None:
                job, has_run = await self._search.in_folder(entry)
            if job is None and (has_run or not is_certain):
                found = await self._search.in_accounting(entry, case.since)
                job = found.job
            if job is not None:
                return await self.accept(entry, job, [])
            hold = entry.submission.lock
            if hold is not None and hold.is_lost:  # another agent may have continued in the meantime
                if not await self._wait_owned(entry):
                    return None
                continue
            if has_run:  # a script, under an unknown ID
                return await self._conclude(entry, UNKNOWN, None)
            if not is_certain:
                return await (
                    self._refuse(entry, sbatch_execution.absence(answer)) if found.is_certain else self._lose(entry)
                )
            if case.plan is None or case.context is None or case.attempt >= _MAX_ATTEMPTS or entry.is_to_be_cancelled:
                return await self._refuse(entry, sbatch_execution.absence(answer))
            await self._submit_again(case, case.plan, case.context)

    async def _answer(self, case: _UnansweredSubmission) -> SbatchAnswer | None:
        """Wait while sbatch lives; return its answer."""
        folder, transport = case.entry.folder, self._client.transport
        if folder is None:
            return None
        with contextlib.suppress(FileNotFoundError):
            while True:
                if answer := await sbatch_execution.read_answer(transport, folder, case.attempt):
                    return answer
                await asyncio.sleep(_CHECK_INTERVAL_S)
        return None

    async def _lose(self, entry: TrackedJob) -> None:
        """Record that it is unknown whether the job ran."""
        output = entry.record.outputs.stdout if entry.record else None
        error = SubmissionUnknown(
            "It cannot be found out whether the job ran: sbatch gave no answer, and the queue does "
            "not show jobs that ended a while ago.",
            hint=f"Look for its output ({output}) before you run the cell again.",
        )
        await self._conclude(entry, UNKNOWN, error)

    async def _refuse(self, entry: TrackedJob, error: SlurmError) -> None:
        try:
            if await self._is_settled_on_disk(entry):  # without working locks
                return
        except (FileNotFoundError, ParseError) as damage:
            log.warning("submission %s: %s", entry.key, damage)
        await self._conclude(entry, NOT_SUBMITTED, error)

    async def _conclude(self, entry: TrackedJob, state: JobState, error: SlurmError | None) -> None:
        entry.error = error
        entry.slurm.regain_sight()
        entry.set_state(state, self._tracker.clock())
        await self._tracker.finish(entry)
        entry.submission.release_lock()

    async def _submit_again(self, case: _UnansweredSubmission, plan: Plan, context: Context) -> None:
        entry, case.since = case.entry, self._tracker.clock()
        log.info("submission %s is not in the queue: sbatch is run again (%d)", entry.key, case.attempt + 1)
        if entry.record is not None:
            entry.record = replace(entry.record, attempts=case.attempt + 1)
            await plan.folder.save(self._client.transport, entry.record)
        await sbatch_execution.execute(self._client.transport, plan, context, case.attempt, self._timeout)

    async def _cancel(self, entry: TrackedJob) -> None:
        """Cancel a job whose cancellation preceded its ID; repeat the request, but a refused one only a few times."""
        delays, refusals = RetryDelays(1.0, _MAX_PAUSE_S), 0
        while not entry.is_finished:
            try:
                await self.scancel(entry, str(entry.id))
            except SlurmError as error:
                log.info("job %s is still to be cancelled: %s", entry.id, error.message)
                refusals += isinstance(error, CommandError)
                if refusals < _MAX_REFUSED_CANCELS:
                    await asyncio.sleep(delays.next())
                    continue
                hint = f"The job continues. Try `%scancel {entry.id}`, or ask the administrators."
                entry.error = JobError(f"Job {entry.id} was not cancelled: {error.message}", hint=hint)
                self._tracker.publish(entry)
            if entry.record is not None:
                entry.record = replace(entry.record, cancel=False)
                self._tracker.schedule_save(entry)
            self._watcher.wake()
            return
