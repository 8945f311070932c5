"""What a person does with many jobs at once: they go to Slurm in one command, and each has an answer of its own."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.queries.job_actions import COSTS, DONE, act_argv, refusals
from jupyter_slurm.domain.slurm_values import parse_time_limit
from jupyter_slurm.errors import JobError, SlurmError, SubmissionUnknown, UsageError
from jupyter_slurm.services.allocations.leases import Leases
from jupyter_slurm.services.allocations.steps import Steps
from jupyter_slurm.services.clusters.job_catalog import JobCatalog, JobSources
from jupyter_slurm.services.jobs import array_tasks
from jupyter_slurm.services.jobs.array_parts import task_of
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.serialize import job_dict
from jupyter_slurm.services.slurm.client import printable, text_of
from jupyter_slurm.services.submission.recovery import SubmissionRecovery

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["JobActions"]

_AT_ONCE = 50  # jobs in one command
_QUEUE = 120.0  # seconds that jobs may stand in line
_LOOK_AGAIN = "Its state may have changed meanwhile: look again."
_LIMITS = "While a job runs, its time can only be made shorter; before, partition and QOS say how long it can be."
_FEW = 3  # of so many it is asked at once what became of them; of more, the next look at the queue tells


@dataclass
class _JobAction:
    """A job with which something is to be done: which, and what Slurm calls it."""

    reference: str
    entry: TrackedJob
    task: int | None
    targets: dict[str, TrackedJob]
    error: SlurmError | None = None


class JobActions:
    """Cancel, hold, release and requeue, and set time limits.

    Parameters
    ----------
    sources : JobSources
        Where what is known of the jobs comes from.
    jobs : JobCatalog
        Finds a job by its key or number.
    recovery, leases, steps
        Of the cluster.
    """

    def __init__(
        self, sources: JobSources, jobs: JobCatalog, recovery: SubmissionRecovery, leases: Leases, steps: Steps
    ) -> None:
        self._client, self._tracker, self._poller = sources.client, sources.tracker, sources.poller
        self._jobs, self._recovery, self._leases, self._steps = jobs, recovery, leases, steps

    async def cancel(self, reference: str, signal: str | None = None) -> api.Job:
        """Cancel a job or send it a signal; what then became of it is asked for at once."""
        entry = await self._jobs.find(reference, is_shown=False)
        if signal is None and entry.submission.upload is not None and entry.submission.upload.give_up():
            return job_dict(entry)
        if entry.is_step:
            return await self._steps.send(entry, signal, self.cancel)
        task = task_of(reference, entry)
        parts = self._tracker.parts(entry) if task is None else [entry]
        if task is None and signal is None:
            parts[0].submission.is_growing = False
        for part in parts:
            is_named = entry.part is None and reference != entry.key
            target = reference if is_named else str(part.of_task(task).id)
            await self._cancel_one(part, target, signal, task)
        return job_dict(self._jobs.select_task(reference, entry))

    async def _cancel_one(self, entry: TrackedJob, target: str, signal: str | None, task: int | None = None) -> None:
        if entry.id is None and not entry.is_finished:
            if signal:
                raise SubmissionUnknown(f"{entry.key} has no id yet: it can get no signal", hint="Wait a moment.")
            self._leases.note(entry, signal)
            self._recovery.give_up(entry)
        elif not entry.is_finished:
            await self._recovery.scancel(entry, target, signal)
            self._leases.note(entry, signal)
            if task is not None and signal is None:
                array_tasks.cancelled(entry, task, self._tracker.clock())
                self._tracker.tell(entry)
            # In a loop over many jobs the next look at the queue tells.
            if entry.id is not None and not entry.is_finished and self._client.singles.is_ready():
                await self._tracker.see(entry, await self._client.describe(entry.id))
            self._poller.wake()

    async def act(
        self, act: str, references: Sequence[str], time_limit: str | None = None
    ) -> list[api.ActOnJobsResponseItem]:
        """Do the same with some jobs; return for each what went wrong, and how it is now, in their order.

        Raises
        ------
        UsageError
            They are to have a time limit, and ``time_limit`` is none, or there is one for something else.
        """
        minutes = _minutes(act, time_limit)
        named = list(dict.fromkeys(references))
        # Together: of those that nobody knows, which Slurm is asked about, some would wait for minutes in a row.
        found = await asyncio.gather(*(self._case_or_answer(act, reference) for reference in named))
        cases = [one for one in found if isinstance(one, _JobAction)]
        await self._run(act, cases, minutes)
        if cases:
            await self._look(cases)
        return [
            self._answer(one.reference, one.error, one.entry) if isinstance(one, _JobAction) else one for one in found
        ]

    async def _case_or_answer(self, act: str, reference: str) -> _JobAction | api.ActOnJobsResponseItem:
        try:
            case = await self._case(act, reference)
            return case or self._answer(reference, None, await self._jobs.find(reference, is_shown=False))
        except SlurmError as error:
            return self._answer(reference, error, None)

    async def _case(self, act: str, reference: str) -> _JobAction | None:
        """Return what is to be done by a command; None: it is done, or there is nothing to do."""
        entry = await self._jobs.find(reference, is_shown=False)
        if entry.is_step or entry.id is None:  # or it ended without a number
            if act != "cancel":
                raise _refused(entry)
            await self.cancel(reference)
            return None
        if _is_a_part(reference, entry):
            if act != "cancel":
                raise UsageError(f"{reference} is only a part of job {entry.id}.", hint=f"Name all of it: {entry.id}.")
            await self.cancel(reference)
            return None
        if not entry.is_finished:
            await self._recovery.check_number(entry)
        if entry.is_finished:
            if act == "cancel":
                return None
            if act != "requeue" or self._tracker.find(str(entry.id)) is not entry:
                raise _refused(entry)
        task = task_of(reference, entry)
        parts = self._tracker.parts(entry) if task is None else [entry]
        if act == "cancel" and task is None:
            parts[0].submission.is_growing = False
        going = [part for part in parts if part.id is not None and (part is entry or not part.is_finished)]
        return _JobAction(reference, entry, task, {str(part.of_task(task).id): part for part in going})

    async def _run(self, act: str, cases: Sequence[_JobAction], minutes: int | None) -> None:
        for some in _batches(cases):
            targets = {target: case for case in some for target in case.targets}
            try:
                await self._client.cancels.take(len(targets) * COSTS[act], longest=_QUEUE)
                done = await self._client.act(act_argv(act, list(targets), minutes))
            except SlurmError as error:
                for case in some:
                    case.error = error
                continue
            said = refusals(act, list(targets), text_of(done.stderr))
            if done.exit_code and not said:  # it says no, and not of which: of none we know that all is well
                said = dict.fromkeys(targets, text_of(done.stderr).strip() or f"exit code {done.exit_code}")
            for target, case in targets.items():
                if target in said:
                    what = printable(said[target])
                    hint = _LIMITS if act == "limit" else _LOOK_AGAIN
                    case.error = JobError(f"Job {target} was not {DONE[act]}: {what}.", hint=hint)
                elif act == "cancel":
                    self._note_cancelled(case.targets[target], case.task)

    def _note_cancelled(self, entry: TrackedJob, task: int | None) -> None:
        self._leases.note(entry, None)
        if task is not None:
            array_tasks.cancelled(entry, task, self._tracker.clock())
            self._tracker.tell(entry)

    async def _look(self, cases: Sequence[_JobAction]) -> None:
        """Learn what became of them: a few are asked for, of more the queue tells, at the latest to the poller."""
        singles = self._client.singles
        was_over = any(case.entry.is_finished for case in cases)  # for those the poller does not look
        self._poller.wake()
        with contextlib.suppress(SlurmError):
            if was_over or (len(cases) > _FEW and singles.is_ready(_FEW)):
                singles.reserve(_FEW)
                await self._poller.fresh(0.0)
                return
            for case in cases if len(cases) <= _FEW else ():
                if case.entry.id is not None and singles.is_ready():
                    await self._tracker.see(case.entry, await self._client.describe(case.entry.id))

    def _answer(self, reference: str, error: SlurmError | None, entry: TrackedJob | None) -> api.ActOnJobsResponseItem:
        return {
            "job": reference,
            "error": error.to_problem() if error else None,
            "now": job_dict(self._jobs.select_task(reference, entry)) if entry is not None else None,
        }


def _minutes(act: str, time_limit: str | None) -> int | None:
    """Return the time limit that is asked for, in whole minutes, as Slurm counts it."""
    if (act == "limit") != (time_limit is not None):
        raise UsageError("A time limit goes with `limit`, and with nothing else.", hint="Say both or neither.")
    if time_limit is None:
        return None
    seconds = parse_time_limit(time_limit)
    if not seconds:
        raise UsageError("A time limit has to be at least a minute, and to have an end.", hint="For example 4:00:00.")
    return math.ceil(seconds / 60)


def _is_a_part(reference: str, entry: TrackedJob) -> bool:
    """Whether somebody else's step of a job is named, or a component of it: less than the entry that was found."""
    named = JobId.parse(reference) if reference != entry.key else None
    return named is not None and (named.step is not None or named.het is not None)


def _refused(entry: TrackedJob) -> SlurmError:
    if entry.is_step:
        return UsageError("A step cannot be held or requeued.", hint="Its allocation can.")
    if entry.is_finished:
        return JobError(f"Job {entry.id or entry.key} is over: {entry.state.name}.", hint="Submit it again.")
    return JobError("The job is still being submitted.", hint="Try again when it has a number.")


def _batches(cases: Sequence[_JobAction]) -> Iterator[list[_JobAction]]:
    """Divide jobs so that a command has not too many; the parts of an array stay together."""
    some: list[_JobAction] = []
    for case in cases:
        if some and sum(len(each.targets) for each in some) + len(case.targets) > _AT_ONCE:
            yield some
            some = []
        some.append(case)
    if some:
        yield some
