"""Pending jobs that a user looks at: what each one waits for, in numbers.

Slurm is asked once for what a job requests. Free resources and running jobs are shared queries, at most one a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import re
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyter_slurm.domain.advice import waiting, waiting_limits
from jupyter_slurm.domain.advice.reasons import KNOWN_REASONS, QOS_GPU_LIMIT, memory_step
from jupyter_slurm.domain.advice.waiting import Shortage
from jupyter_slurm.domain.free_resources import Resources
from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.queries.all_jobs import RunningJob
from jupyter_slurm.domain.queries.job_detail import WaitingRequest, parse_waiting, waiting_argv
from jupyter_slurm.errors import SlurmError
from jupyter_slurm.services.inventory.inventory import Inventory
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.job_views import WaitingNumbers
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.slurm.client import SlurmClient, decode_output
from jupyter_slurm.services.slurm.rate_limit import TokenBucket

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["WaitingJobs"]

log = logging.getLogger(__name__)

_ANSWER_S = 2.0  # seconds that the first look at a job waits for the numbers
_SHARED_S = 10.0  # seconds in which the shared queries answer
_INTERVAL_S = 30.0  # seconds between two answers for the same job and reason
_MAX_JOBS = 100
_MAX_DEPENDENCIES = 5  # jobs that are named
_LIMIT = re.compile(r"(?:QOS|Assoc|Max)\w*")


class WaitingJobs:
    """Explain pending jobs in numbers.

    Parameters
    ----------
    client : SlurmClient
        Asks Slurm for what a job requests, and for licences.
    tracker : Tracker
        Jobs of the user.
    inventory : Inventory
        Free resources, limits and running jobs.
    user : str
        User of the cluster.
    """

    def __init__(self, client: SlurmClient, tracker: Tracker, inventory: Inventory, user: str) -> None:
        self._client, self._tracker, self._inventory, self._user = client, tracker, inventory, user
        # Apart from the queries about single jobs, which the poller waits for.
        self.looks = TokenBucket(rate=0.05, burst=6)
        self._requests: dict[tuple[int, str], WaitingRequest] = {}
        self._looked_at: dict[tuple[int, str], float] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def stop(self) -> None:
        """Cancel running queries."""
        running = list(self._tasks.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def explain(self, entry: TrackedJob) -> None:
        """Find the numbers of a pending job; a slow answer is published when it comes."""
        if (task := self._refresh(entry)) is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ANSWER_S):
                    await asyncio.shield(task)

    def refresh_followed(self) -> None:
        """Renew the numbers of the pending jobs that a user follows."""
        for entry in self._tracker.active():
            if entry.state.is_pending and self._tracker.follows(entry):
                self._refresh(entry)

    def _refresh(self, entry: TrackedJob) -> asyncio.Task[None] | None:
        latest = entry.latest
        if entry.id is None or latest is None or not entry.state.is_pending or entry.is_step or not entry.is_current:
            return None
        if not _is_explained(latest.reason):
            return None
        known, now = (entry.id.job, latest.reason), self._tracker.clock()
        task = self._tasks.get(entry.id.job)
        if task is None and not 0 <= now - self._looked_at.get(known, -_INTERVAL_S) < _INTERVAL_S:
            self._looked_at[known] = now
            task = asyncio.create_task(self._look(entry, entry.id, latest.reason), name="waits")
            self._tasks[entry.id.job] = task
        return task

    async def _look(self, entry: TrackedJob, job: JobId, reason: str) -> None:
        try:
            numbers = await self._numbers(entry, job, reason)
        except SlurmError as error:
            log.info("what job %s waits for is not known: %s", job, error.message)
            return
        except Exception:  # an unexpected value must not hide the job
            log.exception("what job %s waits for could not be found out", job)
            return
        finally:
            self._tasks.pop(job.job, None)
        if numbers != entry.slurm.numbers:
            entry.slurm.numbers = numbers
            self._tracker.publish(entry)

    async def _numbers(self, entry: TrackedJob, job: JobId, reason: str) -> WaitingNumbers | None:
        request = await self._request(job, reason)
        if request is None:
            return None
        word = next((one for one in _words(reason) if one in KNOWN_REASONS or _LIMIT.fullmatch(one)), reason)
        if word in ("Dependency", "Licenses"):
            words = await self._words_of_job(word, request)
            return WaitingNumbers(reason, words) if words else None
        resources = await self._resources(entry, request)
        if words := await self._words_of_limits(word, entry, request, resources):
            return WaitingNumbers(reason, words)
        if word not in ("Resources", "Priority") and not QOS_GPU_LIMIT.fullmatch(word):
            return None
        short = waiting.shortages(request, resources.nodes)
        if short:
            return await self._of_shortages(entry, reason, request, resources, short)
        words = waiting.completing_words(request, resources.nodes) if word == "Resources" else ""
        return WaitingNumbers(reason, words) if words else None

    async def _resources(self, entry: TrackedJob, request: WaitingRequest) -> Resources:
        """Return resources that were queried after the submission, with the nodes that the job may use."""
        resources = await self._inventory.resources.current(wait=_SHARED_S)
        if entry.submit_time is not None and resources.requested_at + self._tracker.clock_offset < entry.submit_time:
            resources = await self._inventory.resources.current(wait=_SHARED_S, is_newer=True)
        if not request.reservation:
            return resources
        facts = await self._inventory.facts.get(0)
        nodes = waiting.reserved_nodes(request, resources.nodes, facts.reservations if facts else ())
        return replace(resources, nodes=tuple(nodes))

    async def _of_shortages(
        self, entry: TrackedJob, reason: str, request: WaitingRequest, resources: Resources, short: list[Shortage]
    ) -> WaitingNumbers:
        words = " ".join(one.text for one in short)
        if reason.startswith("Priority"):
            words = f"{KNOWN_REASONS['Priority'][0]} {words}"
        advised = entry.record.advised.memory if entry.record and entry.record.advised else None
        is_memory = any(one.kind == "memory" for one in short)
        step = memory_step(request.memory, advised) if is_memory else KNOWN_REASONS["Resources"][1]
        running: tuple[RunningJob, ...] = ()
        with contextlib.suppress(SlurmError):
            running = await self._inventory.running.current(wait=_SHARED_S)
        now = self._tracker.clock() + self._tracker.clock_offset
        found = waiting.next_to_end(request, resources.nodes, short, running, now)
        return WaitingNumbers(reason, words, step, None if found is None else self._next_end(found))

    def _next_end(self, job: RunningJob) -> api.JobNextEnd:
        is_own = job.user == self._user
        entry = self._tracker.find(job.id) if is_own else None
        return {"id": job.id, "name": _name(entry) if entry else "", "own": is_own, "time": job.end_time}

    async def _request(self, job: JobId, reason: str) -> WaitingRequest | None:
        """Ask Slurm once what a job requests; again when it waits for another reason."""
        known = (job.job, reason)
        if known not in self._requests:
            if not self._may_ask():
                return None
            mark = secrets.token_hex(8)
            found = await self._client.read(waiting_argv(job, mark), lambda raw: parse_waiting(raw, mark))
            if found is None:
                return None
            self._requests[known] = found
            for old in (self._requests, self._looked_at):
                while len(old) > _MAX_JOBS:
                    del old[next(iter(old))]
        return self._requests[known]

    def _may_ask(self) -> bool:
        """Return whether a query about one job may be sent now; otherwise a later look at the job repeats it."""
        if not self.looks.is_ready():
            return False
        self.looks.reserve()
        return True

    async def _words_of_job(self, word: str, request: WaitingRequest) -> str:
        """Return the numbers of a reason that is not about resources of nodes."""
        if word == "Licenses":
            if not self._may_ask():
                return ""
            argv = ["scontrol", "--local", "--oneliner", "show", "licenses"]
            known = await self._client.read(argv, lambda raw: waiting_limits.parse_licences(decode_output(raw)))
            return waiting_limits.licence_words(request, known)
        return self._depends(request.dependency)

    def _depends(self, dependency: str) -> str:
        """Return the jobs that a job waits for, with their names and states as far as they are known."""
        said, numbers = [], (found[1] for found in re.finditer(r":(\d{1,10})", dependency))
        for number in dict.fromkeys(itertools.islice(numbers, _MAX_DEPENDENCIES + 1)):
            other = self._tracker.find(number)
            about = ", ".join(filter(None, (_name(other), other.state.name))) if other else ""
            said.append(f"{number} ({about})" if about else number)
        if not said:
            return ""
        more = " …" * (len(said) > _MAX_DEPENDENCIES)
        return f"Waits for job{'s' * (len(said) > 1)} {', '.join(said[:_MAX_DEPENDENCIES])}{more}."

    async def _words_of_limits(
        self, word: str, entry: TrackedJob, request: WaitingRequest, resources: Resources
    ) -> str:
        """Return a limit of a QOS, an account, a partition or a reservation in numbers; empty if none is known."""
        facts = await self._inventory.facts.get(0)
        if _LIMIT.fullmatch(word) and resources.limits is not None:
            partitions = facts.partitions if facts else ()
            return waiting_limits.limit_words(word, request, resources.limits.limits, partitions)
        if facts is None:
            return ""
        if word == "Reservation":
            return waiting_limits.reservation_words(request, facts)
        limit = entry.latest.time_limit if entry.latest else None
        if words := waiting_limits.partition_words(word, request, facts, limit):
            return words
        if word in ("BadConstraints", "Constraints", "PartitionNodeLimit", "ReqNodeNotAvail", "NodeDown"):
            return waiting_limits.availability_words(request, resources.nodes)
        return ""


def _name(entry: TrackedJob) -> str:
    return (entry.record.name if entry.record else None) or (entry.latest.name if entry.latest else None) or ""


def _words(reason: str) -> list[str]:
    return re.split(r"[,:]\s*", reason)


def _is_explained(reason: str) -> bool:
    """Return whether numbers can be found for a reason."""
    known = {
        *("Resources", "Priority", "Licenses", "Dependency", "Reservation", "BadConstraints"),
        *("Constraints", "PartitionNodeLimit", "PartitionTimeLimit", "ReqNodeNotAvail", "NodeDown"),
    }
    return any(word in known or _LIMIT.fullmatch(word) for word in _words(reason))
