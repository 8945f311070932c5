"""Submitter: from a front end's request to a job directory and an execution of sbatch."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from jupyter_slurm.config import Settings
from jupyter_slurm.domain.slurm_values import parse_count
from jupyter_slurm.errors import SubmissionUnknown, TransportError, UsageError
from jupyter_slurm.services.environments.resolver import Environments
from jupyter_slurm.services.inventory.facts import ClusterFacts, FeasibilityWarnings
from jupyter_slurm.services.jobdir.job_directory import is_key
from jupyter_slurm.services.jobdir.ownership import read_values
from jupyter_slurm.services.jobdir.runner_files import RUNNER, RunnerInstallation
from jupyter_slurm.services.jobs.array_parts import ArrayPart, divided
from jupyter_slurm.services.jobs.directory_scan import JobDirectoryScan
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.job_views import may_run
from jupyter_slurm.services.jobs.serialize import job_dict
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.results.record import read_job_values, sweep_table
from jupyter_slurm.services.slurm.client import SlurmClient, printable
from jupyter_slurm.services.slurm.location import ClusterFile, ClusterLocation
from jupyter_slurm.services.staging.cluster_paths import first_directory
from jupyter_slurm.services.staging.job_staging import Staging
from jupyter_slurm.services.submission import sbatch_execution
from jupyter_slurm.services.submission.git_origin import GitOrigins
from jupyter_slurm.services.submission.lost_answer_recovery import SubmissionRecovery
from jupyter_slurm.services.submission.preflight import Preflight
from jupyter_slurm.services.submission.remaining_array_parts import RemainingParts, parts_notice
from jupyter_slurm.services.submission.sbatch_execution import SbatchAnswer
from jupyter_slurm.services.submission.sbatch_plan import Plan, PlanRequest, make_plan
from jupyter_slurm.transport.base import Context, DetachedRun, Sent
from jupyter_slurm.transport.ssh.protocols import LinkLost

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.services.submission.request import SubmissionRequest

__all__ = ["SubmissionServices", "Submitter"]

_MAX_CONCURRENT_SUBMISSIONS = 4
_EXPLANATION_TIMEOUT_S = 2.0  # seconds that a refusal may be delayed to find its explanation
_RUNNERS = {"allocation": "allocation/hold.py", "session": "session/serve.py"}
_LINK_HINT = (
    "jupyter_slurm reconnects automatically. Check the network (VPN), and run the cell again when `%slurm list` "
    "shows the connection."
)
_VALUES_OVERHEAD_BYTES = 1 << 20  # bytes of a file of values beyond the values
_LIMITS = ("MaxArraySize", "MaxJobCount")


@dataclass(frozen=True)
class SubmissionServices:
    """Services of a cluster that a submission needs."""

    client: SlurmClient
    shelf: JobDirectoryScan
    settler: SubmissionRecovery
    tracker: Tracker
    facts: ClusterFacts
    staging: Staging


class Submitter:
    """Accept submissions for one cluster.

    Parameters
    ----------
    load_cluster_data : callable
        Returns the content of cluster.json.
    location : ClusterLocation
        Location of the cluster.
    settings : Settings
        User's settings.
    services : SubmissionServices
        Services of the cluster.
    """

    def __init__(
        self,
        load_cluster_data: Callable[[], ClusterFile],
        location: ClusterLocation,
        settings: Settings,
        services: SubmissionServices,
    ) -> None:
        self._location, self._settings = location, settings
        self._client, self._tracker, self._settler = services.client, services.tracker, services.settler
        self._shelf, self._facts, self._staging = services.shelf, services.facts, services.staging
        self._folder, self._transport = services.tracker.folder, services.client.transport
        self._origins = GitOrigins(self._tracker)
        self._environments = Environments(location, self._transport, self._tracker.clock)
        self._growth = RemainingParts(self._tracker, self._settler, settings.submit_timeout)
        self._installation = RunnerInstallation(
            self._transport, self._folder, load_cluster_data, is_remote=location.is_remote
        )
        self._first_directory = ""
        self.notices: list[Callable[[], str]] = []
        self._preflight = Preflight(location, self._client, self._tracker.entries)
        self._gate = asyncio.Semaphore(_MAX_CONCURRENT_SUBMISSIONS)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # a lock lives while a caller waits

    async def submit(self, requested: SubmissionRequest) -> api.Job | api.Preview:
        """Submit a job, or show the submission.

        Raises
        ------
        UsageError, SubmitRefused
            Nothing was submitted.
        """
        if not is_key(requested["key"]):
            raise UsageError(
                f"{requested['key']!r} is not a valid submission key.", hint="Run the cell again to get a new key."
            )
        lock = self._locks.setdefault(requested["key"], asyncio.Lock())
        try:
            async with lock, self._gate:
                return await self._submit(requested)
        except LinkLost as error:
            if self._tracker.find(requested["key"]) is not None:
                raise
            raise TransportError(f"Nothing was submitted: {error.message}", hint=_LINK_HINT) from error

    async def stop(self) -> None:
        """Stop tasks that no caller waits for."""
        await self._origins.stop()
        await self._growth.stop()

    async def _submit(self, requested: SubmissionRequest) -> api.Job | api.Preview:
        known = self._tracker.find(requested["key"])
        if (
            known is not None
            and (known.id is not None or known.is_finished)
            and not self._growth.has_missing_parts(known)
        ):
            return job_dict(await self._growth.wait(known))
        request = await self._prepare_request(requested)
        plan, parts = await self._plan(request)
        warnings = [*await self._preflight.warnings(request, plan), *parts_notice(parts)]
        warnings += filter(None, (notice() for notice in self.notices))
        if requested.get("dry_run"):
            return await self._show(request, plan, warnings)
        is_elsewhere = any(one.clusters for one in plan.requests)
        # sbatch says more of a cluster that does not exist
        if is_elsewhere and not self._facts.check_submission(plan.requests).refused:
            await self._preflight.check_cluster(plan)
        await self.prepare()
        warnings += [problem["text"] for problem in await self._preflight.folder_problems(request, plan)]
        warnings += await self._preflight.jupyter(request, plan)
        entry, doubts = await self._submit_directory(plan, request.context, warnings)
        if folder := (requested.get("origin") or {}).get("folder"):
            self._origins.note(entry, folder)
        if len(parts) > 1:

            async def hand_over(part: ArrayPart) -> TrackedJob:
                return (await self._submit_directory(make_plan(request, part), request.context, []))[0]

            self._growth.start(entry, parts, hand_over)
        return {**job_dict(await self._growth.wait(entry)), "doubts": list(doubts.collected)}

    async def _prepare_request(self, asked: SubmissionRequest) -> PlanRequest:
        """Collect the input of a plan: options and version of sbatch, environment, staged folders."""
        if (again := asked.get("again")) and not asked.get("sweep"):
            asked = {**asked, "sweep": await sweep_table(self._transport, self._folder.job(again))}
        runner = self.runner_path(_RUNNERS.get(asked["kind"], RUNNER[0]))
        context = await self._context(asked.get("context") or {})
        table = await self._client.options("sbatch")
        version = await self._client.version()
        prepared = None
        if asked.get("env") and asked["kind"] != "allocation":
            prepared = await self._environments.prepare(asked, context)
            context = replace(context, env={**(context.env or {}), **prepared.environment.variables})
        staged = await self._staging.prepare(asked)
        now = self._tracker.clock()
        preempting = (await self._client.cached_configuration()).get("PreemptMode") if asked.get("resume") else None
        return PlanRequest(
            folder=self._folder,
            runner=runner,
            table=table,
            asked=asked,
            context=context,
            now=now,
            version=version,
            prepared=prepared,
            staged=staged,
            user=self._location.user,
            advised_memory=self._location.advice.get("memory"),
            is_preemptible=preempting != "OFF",
        )

    async def _context(self, requested: api.Context) -> Context:
        """Return the context of sbatch, with a directory that the nodes see."""
        context = self._client.submission_context(requested)
        if requested.get("cwd"):
            return context
        if not self._first_directory:
            self._first_directory = await first_directory(self._location, self._transport)
        return replace(context, cwd=self._first_directory)

    async def _plan(self, request: PlanRequest) -> tuple[Plan, list[ArrayPart]]:
        """Return the plan (for an array in parts, that of the first) and the parts, if any."""
        plan = make_plan(request)
        parts = await self._parts(plan) if plan.record.array else []
        first = make_plan(request, parts[0]) if parts else plan
        if request.asked["kind"] == "allocation" and request.asked.get("env"):  # its own job runs without it
            held = (await self._environments.prepare_step(request.asked, request.context)).record()
            first = replace(first, record=replace(first.record, environment=held))
        return replace(first, values=await self._values(request.asked)), parts

    async def _show(self, request: PlanRequest, plan: Plan, warnings: list[str]) -> api.Preview:
        """Return the planned submission, with ``test_only`` also its estimated start."""
        doubts = self._facts.check_submission(plan.requests)
        folder = await self._preflight.folder_problems(request, plan)
        shown: api.Preview = {
            "argv": [*plan.wrapper, *plan.argv],
            "script": printable(plan.script.decode("utf-8", "surrogateescape")),
            "options": {name: printable(value) if value else value for name, value in plan.chosen.items()},
            "warnings": warnings,
            "doubts": [doubts.refused] if doubts.refused else [],
            "problems": [*doubts.problems(), *folder],
        }
        if request.asked.get("test_only"):
            from jupyter_slurm.services.submission.estimate import estimate

            longest = self._settings.submit_timeout
            found = await estimate(self._client, plan, request.context, longest, doubts)
            shown["estimate"] = {**found, "clock_offset": self._tracker.clock_offset}
        return shown

    async def _parts(self, plan: Plan) -> list[ArrayPart]:
        """Return the parts of an array to submit; none if Slurm accepts the array as it is."""
        told = await self._client.cached_configuration()
        limits = [parse_count(told.get(name, "")) or 0 for name in _LIMITS]
        return divided(plan.folder.key, plan.record.array_tasks, plan.chosen, (limits[0], limits[1] or math.inf))

    async def _submit_directory(
        self, plan: Plan, context: Context, warnings: list[str]
    ) -> tuple[TrackedJob, FeasibilityWarnings]:
        """Execute sbatch for a job directory, unless done before.

        Return the job, even if its ID is not known yet, and the warnings about the job.

        Raises
        ------
        SlurmError
            Nothing was submitted.
        """
        known = self._tracker.find(plan.folder.key)
        if known is not None and (known.id is not None or known.is_finished):
            return known, self._facts.check_submission(plan.requests)
        try:
            entry, once = (known, None) if known is not None else await self._start_sbatch(plan, context, warnings)
            doubts = self._facts.check_submission(plan.requests)  # while sbatch runs
            if once is not None:
                answer = await sbatch_execution.await_answer(once, plan, self._settings.submit_timeout)
            elif await self._settler.withdraw(entry):
                answer = await self._execute(entry, plan, context)
            else:
                await self._follow_foreign(entry)
                return entry, doubts
        except TransportError as error:
            lost = self._tracker.find(plan.folder.key)
            if lost is None or not may_run(error):
                raise
            self._settler.start(lost, plan, context)  # sbatch may have started: checked when the connection is back
            return lost, self._facts.check_submission(plan.requests)
        await self._handle_answer(entry, answer, plan, context, doubts)
        return entry, doubts

    async def _values(self, requested: SubmissionRequest) -> bytes:
        """Return the values for a Python cell: from a local file, or from the repeated job."""
        values = requested.get("values")
        if values is None:
            return b""
        if path := values.get("file"):
            return await asyncio.to_thread(read_values, path)
        if (key := requested.get("again")) and values["in"]:
            return await read_job_values(
                self._transport, self._folder.job(key), self._settings.values_limit + _VALUES_OVERHEAD_BYTES
            )
        return b""

    async def _start_sbatch(
        self, plan: Plan, context: Context, warnings: list[str]
    ) -> tuple[TrackedJob, DetachedRun | None]:
        """Make the job directory and start sbatch; otherwise the job belongs to another agent."""
        entry = TrackedJob(self._tracker.name, folder=plan.folder, record=plan.record, warnings=warnings)
        entry.submit_time = plan.record.created
        self._tracker.add(entry)  # known before others can see its directory
        try:
            with entry.submission.sending(str(entry.key)) as sent:
                async with self._yield_turn():
                    await self._staging.push(entry, sent)
                plan = replace(plan, record=entry.record or plan.record)  # it may be cancelled meanwhile
                once = await self._start(plan, context, sent)
        except BaseException as error:
            if not may_run(error):
                self._tracker.drop(entry)
            raise
        if once is not None:
            entry.submission.lock = once.lock
            return entry, once
        self._tracker.drop(entry)
        found = await self._shelf.get(plan.folder.key)
        if found is None:
            raise SubmissionUnknown(
                f"Another agent is submitting {plan.folder.key}.",
                hint="Find the job with jupyter_slurm.jobs() in a few seconds.",
            )
        return found, None

    @contextlib.asynccontextmanager
    async def _yield_turn(self) -> AsyncIterator[None]:
        """Let other submissions go first during a transfer of folders, which may take hours."""
        self._gate.release()
        try:
            yield
        finally:
            await self._gate.acquire()

    async def _start(self, plan: Plan, context: Context, sent: Sent) -> DetachedRun | None:
        try:
            return await sbatch_execution.start_unless_taken(self._transport, plan, context, sent)
        except FileNotFoundError as error:
            if error.errno is None:  # sbatch was started, and its directory removed
                raise SubmissionUnknown(
                    f"It is not known whether {plan.folder.key} was submitted: its job directory was removed.",
                    hint="Look for the job with `%squeue --me` before you submit it again.",
                ) from error
        await self._installation.prepare(is_removed=True)  # the folder was removed
        return await sbatch_execution.start_unless_taken(self._transport, plan, context, sent)

    async def _execute(self, entry: TrackedJob, plan: Plan, context: Context) -> SbatchAnswer | None:
        """Execute sbatch for an existing job directory, because an agent died before that."""
        try:
            return await sbatch_execution.execute(self._transport, plan, context, 1, self._settings.submit_timeout)
        except TransportError as error:
            if not may_run(error):  # sbatch could not be started: nothing was submitted
                await self._withdraw(entry)
            raise

    async def _follow_foreign(self, entry: TrackedJob) -> None:
        """Follow a job that another agent submits."""
        if entry.id is None and not entry.is_finished:
            self._settler.start(entry)
            await self._settler.wait(entry)

    async def _handle_answer(
        self,
        entry: TrackedJob,
        answer: SbatchAnswer | None,
        plan: Plan,
        context: Context,
        warnings: FeasibilityWarnings,
    ) -> None:
        """Process the answer of sbatch."""
        if answer is not None and answer.job is not None:
            await self._settler.accept(entry, answer.job, answer.remarks, answer.cluster)
            if entry.id is None and entry.error is not None:
                raise entry.error
            if warnings.is_old:
                self._facts.mark_stale()
            self._facts.refresh()  # for the next submission
        elif answer is not None and answer.is_clear:
            await self._withdraw(entry)
            if plan.record.array:
                self._client.forget_configuration()  # MaxArraySize may have changed
            if self._facts.facts is None and await self._facts.get(_EXPLANATION_TIMEOUT_S) is not None:
                warnings = self._facts.check_submission(plan.requests)
            raise sbatch_execution.refusal(answer, plan.argv, warnings, context.env)
        else:
            self._settler.start(entry, plan, context)

    async def _withdraw(self, entry: TrackedJob) -> None:
        try:
            if entry.folder is not None:
                await self._transport.remove(entry.folder.path)
        finally:
            self._tracker.drop(entry)

    async def prepare(self) -> None:
        """Install the cluster's folder and the runner, once, and again if they were removed."""
        await self._installation.prepare()

    def runner_path(self, name: str) -> str:
        """Return the path of a runner file."""
        return self._installation.path(name)
