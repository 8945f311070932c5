"""Steps of open allocations.

An allocation is a batch job that holds its nodes (``runner/allocation/hold.py``). It outlives the agent, the connection
and the user's machine. It starts steps from inside, with the environment that Slurm has set. A step has a job directory
of its own, made like that of a job. It is requested by a directory ``steps/KEY`` in the allocation's, not by Slurm.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import posixpath
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from jupyter_slurm.domain.options.step_options import NODES_BUSY_TEXT
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.domain.states import ENDING_STATES, JobState
from jupyter_slurm.errors import JobError, SubmissionUnknown, TransportError, UsageError
from jupyter_slurm.services.allocations.kernels import Kernels
from jupyter_slurm.services.allocations.step_environment import StepEnvironments
from jupyter_slurm.services.allocations.step_plan import is_alone, plan_step, ran_before_requeue, record_step
from jupyter_slurm.services.jobdir.job_directory import dump, is_key
from jupyter_slurm.services.jobdir.job_json_model import GrantRecord
from jupyter_slurm.services.jobdir.job_written_files import read_time, read_untrusted
from jupyter_slurm.services.jobdir.ownership import read_values
from jupyter_slurm.services.jobs.directory_scan import JobDirectoryScan
from jupyter_slurm.services.jobs.failures import contained, ended_with, lost_with
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.job_views import may_run
from jupyter_slurm.services.jobs.lookup import check_not_suspended
from jupyter_slurm.services.jobs.notebook_process import find_owner
from jupyter_slurm.services.jobs.serialize import job_dict
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.slurm.client import SlurmClient, decode_output, printable
from jupyter_slurm.transport.base import DetachedRun

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["Steps"]

log = logging.getLogger(__name__)

_RENEWALS_PER_LEASE = 4  # renewals of a lease while the allocation is in use
_MAX_TRIES = 5  # readings of an end after that of the allocation
_CHECK_INTERVAL_S = 30.0  # seconds between two reads of a step's state, because its signs may be lost
_MAX_NOTE_BYTES = 4096  # bytes of a process's note about itself
_STEP_START_S = 5.0  # seconds in which srun starts a step that nothing delays
_SIGNALS = {"INT": "INT", "SIGINT": "INT", "2": "INT", None: "KILL", "KILL": "KILL", "SIGKILL": "KILL", "9": "KILL"}


class Steps:
    """Start, find and end the steps of one cluster's allocations, and keep allocations in use open.

    Parameters
    ----------
    client, tracker, shelf, kernels, environments
        Services of the cluster.
    timeout : float
        Seconds that the request for a step may take.
    """

    def __init__(
        self,
        client: SlurmClient,
        tracker: Tracker,
        shelf: JobDirectoryScan,
        kernels: Kernels,
        environments: StepEnvironments,
        timeout: float,
    ) -> None:
        self._client, self._tracker, self._shelf, self._timeout = client, tracker, shelf, timeout
        self._kernels, self._environments = kernels, environments
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._renewed: dict[str, float] = {}
        self._read_at: dict[str, float] = {}
        self._tries: dict[str, int] = {}  # readings of the end of a step whose allocation is over
        self._tasks: set[asyncio.Task[None]] = set()
        tracker.on_unfinished.append(self.resume)

    # -- requests of front ends

    async def start(self, allocation: TrackedJob, requested: api.Step) -> api.Job:
        """Request a step, once.

        Raises
        ------
        UsageError, JobError
            The step is not possible.
        """
        if not is_key(requested["key"]):
            raise UsageError(
                f"{requested['key']!r} is not a valid submission key.", hint="Run the cell again to get a new key."
            )
        if allocation.kind != "allocation" or allocation.folder is None:
            raise UsageError(
                f"Job {allocation.id} is not an allocation, so no step can be started in it.",
                hint="Request an allocation with %salloc.",
            )
        async with self._locks.setdefault(requested["key"], asyncio.Lock()):
            known = self._tracker.find(requested["key"]) or await self._shelf.get(requested["key"])
            if known is not None:
                return job_dict(known)
            if allocation.is_finished or allocation.state.name in ENDING_STATES:
                raise ended_with(allocation, "" if allocation.joined else f"has ended ({allocation.state.name})")
            await check_not_suspended(self._tracker, allocation.id, "no step can start in it")
            return await self._start(allocation, requested)

    async def _start(self, allocation: TrackedJob, requested: api.Step) -> api.Job:
        process = find_owner(requested, self._tracker.find, allocation)
        folder = self._tracker.folder.job(requested["key"])
        prepared = await self._environments.find(requested, allocation)
        step = plan_step(requested, await self._client.options("srun"), allocation, prepared)
        kernel = self._kernels.plan(requested, prepared) if requested["kind"] == "kernel" else None
        if kernel is not None:
            step = {**step, **kernel.step}
        record, script = record_step(requested, step, allocation, self._tracker.folder, self._tracker.clock())
        if prepared is not None:
            record = replace(record, environment=prepared.record())
        if kernel is not None:
            record = replace(record, kernel=kernel.kernel, environment=kernel.environment)
        if process is not None and process.kind == "kernel":
            record = replace(record, kernel=process.record.kernel if process.record else None)
        files = {record.script: script, "job.json": dump(record.to_json()), "step.json": dump(step)}
        files |= kernel.files if kernel else {}
        if (values := requested.get("values")) and (path := values.get("file")):
            files["in.values"] = await asyncio.to_thread(read_values, path)
        entry = TrackedJob(self._tracker.name, folder=folder)
        entry.recall(record, self._tracker.clock())
        self._tracker.add(entry)
        try:
            argv = ["mkdir", "-p", "--", self._request(allocation, folder.key)]
            with entry.submission.sending(str(entry.key)) as sent:
                once = await self._client.transport.start_detached(folder.answer(1), argv, files=files, sent=sent)
        except FileExistsError:
            self._tracker.drop(entry)
            return await self._foreign_step(folder.key)
        except BaseException as error:
            self._tracker.drop(entry)
            if may_run(error):
                raise SubmissionUnknown(
                    f"It is not known whether the step was requested, because the connection failed: {error}",
                    hint="Look at .steps of its allocation when the connection is back, before you run the cell again.",
                ) from error
            raise
        await self._handle_answer(entry, once)
        await self._renew(allocation)
        return job_dict(entry)

    async def _foreign_step(self, key: str) -> api.Job:
        """Return a step that another agent requests."""
        found = await self._shelf.get(key)
        if found is None:
            raise SubmissionUnknown(
                f"Another agent is requesting the step {key}.",
                hint="Look at .steps of its allocation in a few seconds.",
            )
        return job_dict(found)

    async def _handle_answer(self, entry: TrackedJob, run: DetachedRun) -> None:
        """Withdraw a step whose request could not be made; if the outcome is unknown, repeat the request later."""
        done = await run.result(self._timeout)
        if run.lock is not None:
            run.lock.release()
        if done is None:
            entry.error = SubmissionUnknown(
                "It is not known yet whether the step was requested. The agent is checking.",
                hint="Wait for the result before you run the cell again.",
            )
        elif done.exit_code and entry.folder is not None:
            await self._client.transport.remove(entry.folder.path)
            self._tracker.drop(entry)
            raise JobError(
                f"The step could not be requested: {printable(decode_output(done.stderr)).strip()}",
                hint="Check the free space of the job folder on the cluster: `df ~`.",
            )

    @staticmethod
    def _request(allocation: TrackedJob, name: str) -> str:
        assert allocation.folder is not None
        return allocation.folder.file(posixpath.join("steps", name))

    def steps_to_api(self, allocation: TrackedJob) -> list[api.Job]:
        """Return the steps of an allocation, oldest first."""
        steps = [entry for entry in self._tracker.all_entries() if entry.is_step and entry.allocation == allocation.key]
        return [job_dict(entry) for entry in sorted(steps, key=lambda entry: entry.submit_time or 0.0)]

    async def send(self, step: TrackedJob, signal: str | None, cancel: Callable[[str], Awaitable[Any]]) -> api.Job:
        """Interrupt a step (INT) or end it; ``cancel`` cancels an allocation that waits only for this step.

        Raises
        ------
        UsageError
            The signal is not supported.
        """
        if signal not in _SIGNALS:
            raise UsageError(
                f"A step can only get the signals INT and KILL from jupyter_slurm, not {signal}.",
                hint=f"Use %scancel --signal {signal} {step.key}.",
            )
        allocation = await self._allocation(step)
        if not step.is_finished and allocation is not None and allocation.folder is not None:
            name = f"{step.key}.{_SIGNALS[signal]}.{secrets.token_hex(4)}"
            await self._client.transport.make_dir(self._request(allocation, name))
            is_alone = bool(allocation.record and allocation.record.lease and allocation.record.lease.once)
            if is_alone and allocation.state.is_pending:
                await cancel(allocation.key or "")
        return job_dict(step)

    async def with_memory(self, step: TrackedJob, text: api.Job) -> api.Job:
        """Add the memory of a process for cells, as the process recorded it on its node."""
        if step.kind == "process" and step.folder is not None and not step.is_finished:
            with contextlib.suppress(FileNotFoundError, TransportError, ValueError, KeyError, TypeError):
                noted = await read_untrusted(self._client.transport, step.folder.file("memory.json"), _MAX_NOTE_BYTES)
                text["memory"] = {"now": int(noted["now"]), "most": int(noted["most"])}
        return text

    # -- background work

    async def apply_start(self, entry: TrackedJob) -> None:
        """Record the start reported by the runner of an allocation or of a step."""
        if entry.folder is None or entry.record is None or not (entry.is_step or entry.kind == "allocation"):
            return
        name = "started.json" if entry.record.step else "granted.json"
        try:
            told = await read_untrusted(self._client.transport, entry.folder.file(name))
            if entry.record.step is not None:
                number, nodes, restarts = str(int(told["id"])), str(told["nodes"] or ""), int(told.get("restarts") or 0)
                step = replace(entry.record.step, id=number, nodes=nodes, restarts=restarts)
                entry.record = replace(entry.record, step=step)
                entry.start_time, entry.slurm.latest = read_time(told["time"]), None
                entry.started(self._tracker.clock())
            else:
                granted = GrantRecord(nodes=str(told["nodes"]), gpus=int(told["gpus"]))
                entry.record = replace(entry.record, granted=granted)
        except (FileNotFoundError, TransportError, ValueError, KeyError, TypeError):
            return
        await self._number(entry)
        self._tracker.schedule_save(entry)

    async def _number(self, step: TrackedJob) -> None:
        allocation = None
        with contextlib.suppress(TransportError):  # _follow tries again
            allocation = await self._allocation(step) if step.is_step else None
        if allocation is not None and step.record is not None and allocation.id is not None:
            number = step.record.step.id if step.record.step else None
            step.number = str(replace(allocation.id, step=number)) if number is not None else None

    async def tend(self) -> None:
        """Renew the leases of allocations in use, and end the steps of allocations that are over."""
        active = self._tracker.active()
        self._read_at = {key: at for entry in active if (at := self._read_at.get(key := entry.key or "")) is not None}
        for entry in active:
            with contained(entry):
                if entry.allocation is not None:
                    await self._follow(entry)
                elif entry.kind == "allocation" and entry.state.is_running and self._tracker.follows(entry):
                    await self._renew(entry)

    def resume(self, step: TrackedJob) -> None:
        """Continue with a step that an earlier agent requested; the request may not have been made."""
        if step.allocation is None:
            return
        task = asyncio.create_task(self._resume(step), name=f"step {step.key}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Stop, and leave all steps unchanged."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _resume(self, step: TrackedJob) -> None:
        with contextlib.suppress(TransportError):
            allocation = await self._allocation(step)
            if allocation is not None and not allocation.is_finished and step.state.is_pending:
                await self._client.transport.make_dir(self._request(allocation, step.key or ""))
        await self.apply_start(step)

    async def _follow(self, step: TrackedJob) -> None:
        if step.number is None:
            await self._number(step)
        try:
            allocation = await self._allocation(step)
        except TransportError as error:  # the step may run
            log.info("the allocation of step %s could not be read: %s", step.key, error)
            if self._is_check_due(step) and await self._has_ended(step):
                await self._tracker.finish(step)
            return
        if allocation is not None and not allocation.is_finished and not ran_before_requeue(step, allocation):
            waits = allocation.latest if allocation.state.is_pending else self._waiting_record(step, allocation)
            self._apply_wait_reason(step, waits)
            if step.kind == "session":
                from jupyter_slurm.services.allocations.session_steps import show_limit

                show_limit(step, allocation)
            await self._read_state(step, allocation)
            return
        if not await self._has_ended(step) and not step.is_finished:  # another task may have read its end meanwhile
            key = step.key or ""
            self._tries[key] = tries = self._tries.get(key, 0) + 1
            if tries < _MAX_TRIES and not await self._lacks_end_marker(step):
                return  # read again soon: an end that cannot be read is not an end that does not exist
            step.set_state(JobState("CANCELLED"), self._tracker.clock())
            step.error = lost_with(allocation)
            step.end_time = allocation.end_time if allocation else None
        self._tries.pop(step.key or "", None)
        await self._tracker.finish(step)

    def _is_check_due(self, step: TrackedJob) -> bool:
        now, key = self._tracker.clock(), step.key or ""
        if abs(now - self._read_at.setdefault(key, now)) < _CHECK_INTERVAL_S:
            return False
        self._read_at[key] = now
        return True

    async def _read_state(self, step: TrackedJob, allocation: TrackedJob) -> None:
        """Read the job directory at intervals: signs only make the agent faster and may be lost."""
        if not self._is_check_due(step):
            return
        if step.state.is_pending:
            await self.apply_start(step)
            if step.state.is_running:
                self._tracker.publish(step)
            elif allocation.restarts:
                await self._apply_begin(step)
        if await self._has_ended(step):
            await self._tracker.finish(step)

    async def _apply_begin(self, step: TrackedJob) -> None:
        """Record in which run of its allocation a pending step was begun."""
        record = step.record
        with contextlib.suppress(FileNotFoundError, TransportError, ValueError, TypeError):
            if step.folder is not None and record is not None and record.step is not None:
                run = int(await read_untrusted(self._client.transport, step.folder.file("begun")))
                step.record = replace(record, step=replace(record.step, restarts=run))

    def _waiting_record(self, step: TrackedJob, allocation: TrackedJob) -> JobRecord | None:
        """Report that a step waits for other steps: srun itself prints nothing for two minutes."""
        now, created = self._tracker.clock(), step.record.created if step.record else 0.0
        if not step.state.is_pending or not is_alone(step) or now - created < _STEP_START_S or allocation.id is None:
            return None
        others = (e for e in self._tracker.active() if e.allocation == step.allocation and e.state.is_running)
        return JobRecord(allocation.id, step.state, reason=NODES_BUSY_TEXT) if any(map(is_alone, others)) else None

    def _apply_wait_reason(self, step: TrackedJob, latest: JobRecord | None) -> None:
        """Give a step the pending reason of its allocation, or other steps as the reason."""
        if step.state.is_pending and step.latest != latest:
            step.slurm.latest = latest
            self._tracker.publish(step)

    async def _has_ended(self, step: TrackedJob) -> bool:
        if step.folder is None:
            return False
        with contextlib.suppress(FileNotFoundError, TransportError):
            await self._client.transport.list_dir(step.folder.path)  # read again files that were seen before
        return await self._tracker.read_end(step)

    async def _lacks_end_marker(self, step: TrackedJob) -> bool:
        """Return whether the directory of a step is known to have no end marker."""
        if step.folder is None:
            return True
        try:
            name = posixpath.basename(step.folder.end_marker(None))
            return name not in await self._client.transport.list_dir(step.folder.path)
        except FileNotFoundError:
            return True
        except TransportError:
            return False

    async def _renew(self, allocation: TrackedJob) -> None:
        """Mark the allocation as used on its node, a few times in each lease period."""
        now, key = self._tracker.clock(), allocation.key or ""
        seconds = allocation.record.lease.seconds if allocation.record and allocation.record.lease else 0.0
        if allocation.folder is None or abs(now - self._renewed.get(key, 0.0)) < seconds / _RENEWALS_PER_LEASE:
            return
        self._renewed[key] = now
        if allocation.record is None or allocation.record.granted is None:  # its sign was not seen
            await self.apply_start(allocation)
        transport, path = self._client.transport, allocation.folder.file("lease")
        try:
            try:
                await transport.write(path, f"{now:.3f}\n".encode())
            except TransportError:  # the disk is full, for example; setting the time still works
                if (await transport.run(["touch", "--", path], timeout=self._timeout)).exit_code:
                    raise
        except (FileNotFoundError, TransportError) as error:
            del self._renewed[key]
            log.info("the lease of allocation %s was not renewed: %s", allocation.id, error)

    async def _allocation(self, step: TrackedJob) -> TrackedJob | None:
        key = step.allocation or ""
        return self._tracker.entries.get(key) or await self._shelf.get(key)
