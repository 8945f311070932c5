"""Submissions whose answer was not heard: found, proved absent and tried again, or reported. Never simply repeated."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.errors import ControllerError, SlurmError, SubmissionUnknown, TransportError
from jupyter_slurm.services import submission
from jupyter_slurm.services.entry import NOT_SUBMITTED, UNKNOWN, Entry
from jupyter_slurm.services.slurm import SlurmClient
from jupyter_slurm.services.submission import Answer, Plan
from jupyter_slurm.services.tracking import Tracker
from jupyter_slurm.services.watcher import Watcher
from jupyter_slurm.transport.base import Context

__all__ = ["Settler"]

log = logging.getLogger(__name__)

_ATTEMPTS = 3
_LOOK_AGAIN = 5.0
_LOOKS = 2
_STILL_RUNNING = 1.0


@dataclass
class _Case:
    """One submission under way; ``plan`` and ``context`` are None after a restart of the agent."""

    entry: Entry
    plan: Plan | None
    context: Context | None


class Settler:
    """Bring submissions to an end in the background.

    Parameters
    ----------
    tracker, client, watcher
        Of the cluster.
    timeout : float
        Seconds that sbatch may take.
    """

    def __init__(self, tracker: Tracker, client: SlurmClient, watcher: Watcher, timeout: float) -> None:
        self._tracker, self._client, self._watcher, self._timeout = tracker, client, watcher, timeout
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._cancelled: set[str] = set()

    @property
    def under_way(self) -> int:
        """How many submissions have no answer yet."""
        return len(self._tasks)

    def begin(self, entry: Entry, plan: Plan | None = None, context: Context | None = None) -> None:
        """Take over a submission whose answer is not known."""
        entry.known, entry.unknown_since = False, self._tracker.clock()
        entry.error = SubmissionUnknown(
            "sbatch has not answered yet: whether the job is in the queue is being found out",
            hint="Do not submit it again; it will be found here as soon as the controller answers.",
        )
        self._tracker.tell(entry)
        key = entry.key or ""
        task = asyncio.create_task(self._guard(_Case(entry, plan, context)), name=f"settle {key}")
        self._tasks[key] = task
        task.add_done_callback(lambda done: self._tasks.pop(key) if self._tasks.get(key) is done else None)

    async def take_back(self, entry: Entry) -> None:
        """Stop finding out: whoever asked for the submission asks again and brings everything that it needs."""
        task = self._tasks.pop(entry.key or "", None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def give_up(self, entry: Entry) -> None:
        """Do not try again: the person cancelled it. If it is found in the queue it is cancelled there."""
        if entry.key:
            self._cancelled.add(entry.key)

    async def stop(self) -> None:
        """Leave everything as it is; the job directories know enough to go on later."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def accept(self, entry: Entry, job: JobId, remarks: list[str]) -> None:
        """Note the id of a job that sbatch accepted."""
        now = self._tracker.clock()
        entry.id, entry.error, entry.known, entry.unknown_since = job, None, True, None
        entry.warnings.extend(remarks)
        entry.submit_time = entry.submit_time or now
        entry.set_state(submission.ACCEPTED, now)
        self._tracker.add(entry)
        if entry.record is not None and entry.folder is not None:
            entry.record["job"] = {"id": str(job), "submit_time": entry.submit_time}
            self._tracker.save_soon(entry)
        self._tracker.tell(entry)
        self._watcher.wake()

    async def _guard(self, case: _Case) -> None:
        try:
            await self._settle(case)
        except SlurmError as error:
            log.warning("submission %s: %s", case.entry.key, error.message)
            await self._refuse(case.entry, error)

    async def _settle(self, case: _Case) -> None:
        entry, attempt = case.entry, int((case.entry.record or {}).get("attempts") or 1)
        while True:
            answer = await self._answer(case, attempt)
            if answer is not None and answer.job is not None:
                return await self._found(entry, answer.job, answer.remarks)
            if answer is not None and answer.is_clear:
                return await self._refuse(entry, submission.refusal(answer, (entry.record or {}).get("argv") or []))
            job = await self._look_up(entry)
            if job is not None:
                return await self._found(entry, job, [])
            ran = await self._traces(entry)
            if ran is not None:
                return await (self._found(entry, ran, []) if ran.job else self._lose(entry))
            if case.plan is None or case.context is None or attempt >= _ATTEMPTS or entry.key in self._cancelled:
                return await self._refuse(entry, _absent(answer))
            attempt += 1
            await self._again(case, case.plan, case.context, attempt)

    async def _traces(self, entry: Entry) -> JobId | None:
        """Look for signs in the folder that the job ran and the queue has forgotten it: the claim tells its id.

        Output without a claim is of a script: it ran under an id that nobody knows, ``JobId(0)``.
        """
        if entry.folder is None:
            return None
        transport = self._client.transport
        names = await transport.list_dir(entry.folder.path)
        if "claim" in names:
            claim = (await transport.read(entry.folder.file("claim"))).strip()
            if claim.isdigit():
                return JobId(int(claim))
        return JobId(0) if any(name.startswith(("stdout", "stderr", "claim", "end")) for name in names) else None

    async def _lose(self, entry: Entry) -> None:
        """Note a job that ran, and of which neither the id nor the end is known."""
        entry.error, entry.known, entry.unknown_since = None, True, None
        entry.set_state(UNKNOWN, self._tracker.clock())
        await self._tracker.finish(entry)

    async def _answer(self, case: _Case, attempt: int) -> Answer | None:
        """Wait while sbatch lives; return what it left."""
        folder, transport = case.entry.folder, self._client.transport
        if folder is None:
            return None
        try:
            while (held := await transport.hold(folder.answer(attempt) + ".out")) is None:
                await asyncio.sleep(_STILL_RUNNING)
        except FileNotFoundError:
            return None
        try:
            return await submission.read_answer(transport, folder, attempt)
        finally:
            held.release()

    async def _look_up(self, entry: Entry) -> JobId | None:
        """Look for the job until the controller has said no twice: after a freeze it works off what it holds."""
        path = entry.as_dict()["script_path"]
        absent, pause = 0, 1.0
        while absent < _LOOKS:
            try:
                found = await self._client.find_script(path)
            except (ControllerError, TransportError):
                absent, pause = 0, min(60.0, pause * 2)
                await asyncio.sleep(pause)
                continue
            if found is not None:
                return JobId(found.id.job)
            absent += 1
            await asyncio.sleep(_LOOK_AGAIN if absent < _LOOKS else 0)
        return None

    async def _again(self, case: _Case, plan: Plan, context: Context, attempt: int) -> None:
        log.info("submission %s is not in the queue: sbatch is run again (%d)", case.entry.key, attempt)
        plan.record["attempts"] = attempt
        await plan.folder.save(self._client.transport, plan.record)
        await submission.execute(self._client.transport, plan, context, attempt, self._timeout)

    async def _found(self, entry: Entry, job: JobId, remarks: list[str]) -> None:
        await self.accept(entry, job, remarks)
        if entry.key in self._cancelled:
            await self._client.ask(["scancel", str(job)])

    async def _refuse(self, entry: Entry, error: SlurmError) -> None:
        entry.error, entry.known, entry.unknown_since = error, True, None
        entry.set_state(NOT_SUBMITTED, self._tracker.clock())
        await self._tracker.finish(entry)


def _absent(answer: Answer | None) -> SlurmError:
    said = "; ".join(answer.remarks) if answer else "sbatch died without an answer"
    return ControllerError(
        f"The job is not in the queue ({said}).",
        hint="It is neither in the queue nor are there traces of a run: run the cell again.",
    )
