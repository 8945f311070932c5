"""Actions on many jobs: one Slurm command for a batch, with a separate answer for each job."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.queries.job_actions import ACTION_COSTS, ACTION_RESULTS, act_argv, refusals
from jupyter_slurm.domain.slurm_values import parse_time_limit
from jupyter_slurm.domain.states import JobState
from jupyter_slurm.errors import JobError, SlurmError, SubmissionUnknown, UsageError
from jupyter_slurm.services.allocations.joined_jobs import JoinedJobs
from jupyter_slurm.services.allocations.leases import Leases
from jupyter_slurm.services.allocations.steps import Steps
from jupyter_slurm.services.clusters.act_progress import ActProgress, RunningAct
from jupyter_slurm.services.clusters.job_catalog import JobCatalog, JobSources
from jupyter_slurm.services.jobs import array_tasks
from jupyter_slurm.services.jobs.array_parts import task_index
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.serialize import job_dict
from jupyter_slurm.services.slurm.client import decode_output, printable
from jupyter_slurm.services.submission.lost_answer_recovery import SubmissionRecovery

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["JobActions"]

# Jobs in one command. It begins small and grows while Slurm answers fast: few commands, and an early answer to a stop.
_FIRST_JOBS, _MIN_JOBS, _MAX_JOBS = 100, 25, 500
_FAST_S, _SLOW_S = 1.0, 3.0
_JOBS_PER_TOKEN = 50  # the user has confirmed these actions: the rate limit is against loops, and counts commands
_STATES = {"suspend": "SUSPENDED", "resume": "RUNNING", "requeue": "PENDING", "requeuehold": "PENDING"}
_QUEUE_TIMEOUT_S = 120.0  # seconds that jobs may wait in the queue of requests
_UNKNOWN_STATE_HINT = "The state of the job may have changed. Refresh the list, then try again."
_TIME_LIMIT_HINT = (
    "You can only shorten the time limit of a running job. Partition and QOS limit the time of a pending job."
)
_MAX_CHECKED_JOBS = (
    3  # for up to this number, ask Slurm at once; for more, the next query of the queue shows the result
)


@dataclass
class _JobAction:
    """Target of an action: a job and its ID in Slurm."""

    reference: str
    entry: TrackedJob
    task: int | None
    targets: dict[str, TrackedJob]
    error: SlurmError | None = None


class JobActions:
    """Cancel, hold, release, requeue, suspend and resume jobs, and set their time limits.

    Parameters
    ----------
    sources : JobSources
        Sources of job data.
    jobs : JobCatalog
        Finds a job by key or ID.
    recovery, leases, steps, joined
        Services of the cluster; :attr:`joined` joins running jobs.
    """

    def __init__(
        self,
        sources: JobSources,
        jobs: JobCatalog,
        recovery: SubmissionRecovery,
        leases: Leases,
        steps: Steps,
        joined: JoinedJobs,
    ) -> None:
        self._client, self._tracker, self._poller = sources.client, sources.tracker, sources.poller
        self._checks = sources.checks
        self._jobs, self._recovery, self._leases, self._steps, self.joined = jobs, recovery, leases, steps, joined
        self.progress = ActProgress(self._tracker.name, self._tracker.bus, self._tracker.clock)
        self._running: set[asyncio.Task[list[api.ActOnJobsResponseItem]]] = set()

    async def cancel(self, reference: str, signal: str | None = None) -> api.Job:
        """Cancel a job or send it a signal, then ask for its new state at once."""
        entry = await self._jobs.find(reference, is_shown=False)
        if signal is None and entry.submission.upload is not None and entry.submission.upload.cancel():
            return job_dict(entry)
        if entry.joined is not None:
            return await self.joined.leave(entry)
        if entry.is_step:
            return await self._steps.send(entry, signal, self.cancel)
        task = task_index(reference, entry)
        parts = self._tracker.parts(entry) if task is None else [entry]
        if task is None and signal is None:
            parts[0].submission.is_growing = False
        for part in parts:
            part.slurm.is_cancel_requested |= task is None and signal is None
            is_named = entry.part is None and reference != entry.key
            target = reference if is_named else str(part.task_view(task).id)
            await self._cancel_one(part, target, signal, task)
        return job_dict(self._jobs.select_task(reference, entry))

    async def _cancel_one(self, entry: TrackedJob, target: str, signal: str | None, task: int | None = None) -> None:
        if entry.id is None and not entry.is_finished:
            if signal:
                raise SubmissionUnknown(
                    f"Submission {entry.key} has no job ID yet, so it cannot get a signal.",
                    hint="Try again in a few seconds.",
                )
            self._leases.note(entry, signal)
            self._recovery.cancel(entry)
        elif not entry.is_finished:
            await self._recovery.scancel(entry, target, signal)
            self._leases.note(entry, signal)
            if task is not None and signal is None:
                array_tasks.cancelled(entry, task, self._tracker.clock())
                self._tracker.publish(entry)
            # In a loop over many jobs, the next query of the queue shows the new state.
            if entry.id is not None and not entry.is_finished and self._client.singles.is_ready():
                await self._tracker.update_from_slurm(entry, await self._client.describe(entry.id))
            elif not entry.is_finished:
                await self._poller.poll_early()
            if signal is None:
                self._checks.note_cancel(entry)
            self._poller.wake()

    async def act(
        self, act: str, references: Sequence[str], time_limit: str | None = None
    ) -> list[api.ActOnJobsResponseItem]:
        """Apply an action to some jobs; return for each, in order, its error and its present state.

        The action continues if the caller goes away, such as a page that is loaded again. :attr:`progress` then has its
        result.

        Raises
        ------
        UsageError
            ``time_limit`` is missing or not valid, or it was given for another action.
        """
        named, minutes = list(dict.fromkeys(references)), _minutes(act, time_limit)
        progress = self.progress.start(act, len(named))
        task = asyncio.create_task(self._act(progress, named, minutes))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            progress.is_unattended = True
            raise

    async def stop(self) -> None:
        """End actions that still run."""
        for task in tuple(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _act(
        self, progress: RunningAct, named: Sequence[str], minutes: int | None
    ) -> list[api.ActOnJobsResponseItem]:
        try:
            if sum(self._tracker.find(reference) is None for reference in named) > _MAX_CHECKED_JOBS:
                with contextlib.suppress(SlurmError):
                    await self._poller.wait_fresh(0.0)  # one query instead of one for each job
            # Concurrently: Slurm is asked about unknown jobs, and one after the other could take minutes.
            found = await asyncio.gather(*(self._case_or_answer(progress, reference) for reference in named))
            cases = [one for one in found if isinstance(one, _JobAction)]
            await self._run(progress, cases, minutes)
            if cases:
                await self._refresh_states(cases)
        finally:
            self.progress.end(progress)
        return [
            self._answer(one.reference, one.error, one.entry) if isinstance(one, _JobAction) else one for one in found
        ]

    async def _case_or_answer(self, progress: RunningAct, reference: str) -> _JobAction | api.ActOnJobsResponseItem:
        try:
            case = await self._case(progress.act, reference)
            if case is not None:
                return case
            answer = self._answer(reference, None, await self._jobs.find(reference, is_shown=False))
            progress.note(None)
        except SlurmError as error:
            answer = self._answer(reference, error, None)
            progress.note(error)
        return answer

    async def _case(self, act: str, reference: str) -> _JobAction | None:
        """Return the target of a command; None: done, or nothing to do."""
        entry = await self._jobs.find(reference, is_shown=False)
        if entry.is_step or entry.id is None:  # or the job ended without an ID
            if act != "cancel":
                raise _refused(entry)
            await self.cancel(reference)
            return None
        if _is_a_part(reference, entry):
            if act != "cancel":
                raise UsageError(
                    f"{reference} is only a part of job {entry.id}.", hint=f"Give the ID of the whole job: {entry.id}."
                )
            await self.cancel(reference)
            return None
        task = task_index(reference, entry)
        parts = self._tracker.parts(entry) if task is None else [entry]
        for part in parts:
            if not part.is_finished and part.id is not None:
                await self._recovery.check_number(part)
        going = [part for part in parts if not part.is_finished]
        if going and all(part.id is None for part in going):  # parts that are being submitted
            if act != "cancel":
                raise _refused(going[0])
            await self.cancel(reference)
            return None
        if not going:
            if act == "cancel":
                return None
            if act not in ("requeue", "requeuehold"):
                raise _refused(entry)
            await self._poller.wait_fresh(0.0)  # its number may be that of another job now
            if not self._is_in_queue(entry):
                raise _refused(entry)
            going = [part for part in parts if self._is_in_queue(part)]
        return _JobAction(reference, entry, task, {str(part.task_view(task).id): part for part in going if part.id})

    def _is_in_queue(self, entry: TrackedJob) -> bool:
        """Return whether Slurm still has a job, and no other job has its number."""
        return (
            entry.id is not None
            and self._tracker.find(str(entry.id)) is entry
            and entry.id.job in self._tracker.in_queue
        )

    async def _run(self, progress: RunningAct, cases: Sequence[_JobAction], minutes: int | None) -> None:
        waiting, size = deque(cases), _FIRST_JOBS
        while waiting and not progress.is_stopped:
            some = _next_batch(waiting, size)
            targets = {target: case for case in some for target in case.targets}
            try:
                cost = math.ceil(len(targets) * ACTION_COSTS[progress.act] / _JOBS_PER_TOKEN)
                if not await progress.unless_stopped(self._client.cancels.acquire(cost, max_wait=_QUEUE_TIMEOUT_S)):
                    waiting.extend(some)
                    break
                for case in some:
                    if progress.act == "cancel" and case.task is None:
                        self._tracker.parts(case.entry)[0].submission.is_growing = False
                        for entry in case.targets.values():
                            entry.slurm.is_cancel_requested = True
                begun = time.monotonic()
                await self._run_command(progress.act, targets, minutes)
                size = _next_size(size, time.monotonic() - begun)
            except SlurmError as error:
                for case in some:
                    case.error = error
            for case in some:
                progress.note(case.error)
            self.progress.publish(progress)
        for case in waiting:
            case.error = JobError(
                f"Job {case.reference} was not {ACTION_RESULTS[progress.act]}: the action was stopped.",
                hint="Repeat the action for the remaining jobs.",
            )

    async def _run_command(self, act: str, targets: dict[str, _JobAction], minutes: int | None) -> None:
        """Run one command, and note for each job whether Slurm refused."""
        done = await self._client.act(act_argv(act, list(targets), minutes))
        said = refusals(act, list(targets), decode_output(done.stderr))
        if done.exit_code and not said:  # the command failed without naming a job: success is known for none
            said = dict.fromkeys(targets, decode_output(done.stderr).strip() or f"exit code {done.exit_code}")
        for target, case in targets.items():
            if target in said:
                what = printable(said[target])
                hint = _TIME_LIMIT_HINT if act == "limit" else _UNKNOWN_STATE_HINT
                case.error = JobError(f"Job {target} was not {ACTION_RESULTS[act]}: {what}.", hint=hint)
            elif act == "cancel":
                if case.task is None:
                    self._checks.note_cancel(case.targets[target])
                self._note_cancelled(case.targets[target], case.task)
            elif act in ("release", "requeue", "requeuehold"):
                self._checks.note_submission(case.targets[target])
            if target not in said:
                self._note_state(act, case)

    def _note_state(self, act: str, case: _JobAction) -> None:
        """Record the state after an action that Slurm has accepted, in case that no query is available for it."""
        name, entry = _STATES.get(act), case.entry
        is_one = case.task is None and not entry.is_array and not entry.is_finished
        if name and is_one and entry.set_state(JobState(name), self._tracker.clock()):
            self._tracker.publish(entry)

    def _note_cancelled(self, entry: TrackedJob, task: int | None) -> None:
        self._leases.note(entry, None)
        if task is not None:
            array_tasks.cancelled(entry, task, self._tracker.clock())
            self._tracker.publish(entry)

    async def _refresh_states(self, cases: Sequence[_JobAction]) -> None:
        """Learn the new states: ask Slurm about a few jobs, else query the queue; else the next poll shows them.

        The poller does not watch finished jobs: for those, the queue is queried in any case.
        """
        was_over = any(case.entry.is_finished for case in cases)
        self._poller.wake()
        with contextlib.suppress(SlurmError):
            if not was_over and self._client.singles.is_ready(len(cases)) and len(cases) <= _MAX_CHECKED_JOBS:
                for case in cases:
                    if case.entry.id is not None:
                        await self._tracker.update_from_slurm(case.entry, await self._client.describe(case.entry.id))
            elif not await self._poller.poll_early() and was_over:
                await self._poller.wait_fresh(0.0)

    def _answer(self, reference: str, error: SlurmError | None, entry: TrackedJob | None) -> api.ActOnJobsResponseItem:
        return {
            "job": reference,
            "error": error.to_problem() if error else None,
            "now": job_dict(self._jobs.select_task(reference, entry)) if entry is not None else None,
        }


def _minutes(act: str, time_limit: str | None) -> int | None:
    """Return the requested time limit in whole minutes, the unit of Slurm."""
    if (act == "limit") != (time_limit is not None):
        raise UsageError(
            "A time limit was given without the action `limit`, or `limit` without a time limit.",
            hint="Give both, or neither.",
        )
    if time_limit is None:
        return None
    seconds = parse_time_limit(time_limit)
    if not seconds:
        raise UsageError(
            "The time limit must be at least one minute and must not be unlimited.", hint="Write it like 4:00:00."
        )
    return math.ceil(seconds / 60)


def _is_a_part(reference: str, entry: TrackedJob) -> bool:
    """Return whether the reference names a foreign step or a component of a job: less than the entry found."""
    named = JobId.parse(reference) if reference != entry.key else None
    return named is not None and (named.step is not None or named.het is not None)


def _refused(entry: TrackedJob) -> SlurmError:
    if entry.is_step:
        return UsageError(
            "Only its allocation can be held, requeued or suspended, not a step.", hint="Give the ID of the allocation."
        )
    if entry.is_finished:
        return JobError(f"Job {entry.id or entry.key} has ended ({entry.state.name}).", hint="Submit it again.")
    return JobError("The job is still being submitted and has no job ID yet.", hint="Try again when it has a job ID.")


def _next_batch(waiting: deque[_JobAction], size: int) -> list[_JobAction]:
    """Take the jobs of the next command; the parts of an array stay together."""
    some = [waiting.popleft()]
    count = len(some[0].targets)
    while waiting and count + len(waiting[0].targets) <= size:
        some.append(waiting.popleft())
        count += len(some[-1].targets)
    return some


def _next_size(size: int, seconds: float) -> int:
    """Return the number of jobs in the next command, from the time that the last one took."""
    if seconds < _FAST_S:
        return min(2 * size, _MAX_JOBS)
    return max(size // 2, _MIN_JOBS) if seconds > _SLOW_S else size
