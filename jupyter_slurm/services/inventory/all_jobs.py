"""Jobs of other users in the queue of one cluster, and the use of it by all users, queried on request."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jupyter_slurm.domain.advice.reasons import explain_wait_of_others
from jupyter_slurm.domain.queries.all_jobs import (
    COLUMNS,
    RunningJob,
    all_jobs_argv,
    hides_jobs,
    parse_all_jobs,
    parse_running,
    running_argv,
    sum_running,
)
from jupyter_slurm.services.inventory.shared_query import SharedQuery
from jupyter_slurm.services.slurm.client import SlurmClient, printable

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["AllJobs", "RunningJobs"]

_CACHE_AGE_S = 30.0  # seconds for which an answer is reused
_MARK_BYTES = 4  # bytes: no field holds free text, and each mark occurs eleven times in each of 50,000 rows
_QUEUE_TIMEOUT_S = 45.0  # seconds to wait in the queue of requests after many of them


@dataclass(frozen=True)
class _AllJobsAnswer:
    requested_at: float
    is_private: bool
    rows: list[list[Any]]
    reasons: dict[str, str]


class AllJobs(SharedQuery[_AllJobsAnswer]):
    """Cache the other users' jobs in the queue.

    Parameters
    ----------
    client : SlurmClient
        Sends two requests to the controller, counted with those of the user (``SlurmClient.people``).
    user : str
        User whose own jobs are left out: the poller knows them.
    interval : float
        Seconds between two queries as set by the site, if more than 30.
    clock, monotonic : callable, optional
        Seconds since the epoch, and monotonic seconds.
    clock_offset : callable, optional
        Returns by how many seconds the clock of the cluster is ahead.
    """

    subject = "what is in the queue"

    def __init__(
        self,
        client: SlurmClient,
        user: str,
        *,
        interval: float,
        clock: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
        clock_offset: Callable[[], float] = lambda: 0.0,
    ) -> None:
        super().__init__(max(_CACHE_AGE_S, interval), clock=clock, monotonic=monotonic)
        self._client, self._user, self._clock_offset = client, user, clock_offset

    async def to_api(self, *, wait: float) -> api.Queue:
        """Return the jobs of other users in the form of the API; see :meth:`SharedQuery._current_answer`."""
        known, standing = await self._current_answer(wait=wait, is_newer=False)
        return {
            "asked_at": known.requested_at,
            **standing,
            "interval": self._interval,
            "clock_offset": self._clock_offset(),
            "user": printable(self._user),
            "is_private": known.is_private,
            "columns": list(COLUMNS),
            "rows": known.rows,
            "reasons": known.reasons,
        }

    async def _query_slurm(self, started_at: float) -> _AllJobsAnswer:
        await self._client.people.acquire(max_wait=_QUEUE_TIMEOUT_S)
        mark = secrets.token_hex(_MARK_BYTES)
        rows = await self._client.read(all_jobs_argv(mark), lambda raw: _read(raw, mark, self._user))
        is_private = hides_jobs(await self._client.cached_configuration())
        return _AllJobsAnswer(started_at, is_private, rows, _explained(rows))


@dataclass(frozen=True)
class _RunningAnswer:
    requested_at: float
    is_private: bool
    jobs: tuple[RunningJob, ...]


class RunningJobs(SharedQuery[_RunningAnswer]):
    """Cache the running jobs of all users: what they have, and the ends of their time limits.

    Parameters
    ----------
    client : SlurmClient
        Sends two requests to the controller, at most once a minute.
    user : str
        The user's name on the cluster.
    interval : float
        Seconds between two queries as set by the site, if more than 60.
    clock : callable
        Seconds since the epoch.
    """

    subject = "which jobs run"

    def __init__(self, client: SlurmClient, user: str, *, interval: float, clock: Callable[[], float]) -> None:
        super().__init__(max(2 * _CACHE_AGE_S, interval), clock=clock)
        self._client, self._user = client, user

    async def current(self, *, wait: float) -> tuple[RunningJob, ...]:
        """Return the running jobs that this user may see.

        Parameters
        ----------
        wait : float
            Seconds to wait at most for a new answer, if one is due.
        """
        return (await self._current_answer(wait=wait, is_newer=False))[0].jobs

    async def to_api(self, *, wait: float) -> api.RunningUse:
        """Return the sums by user, account and partition in the form of the API."""
        known, standing = await self._current_answer(wait=wait, is_newer=False)
        return {
            "asked_at": known.requested_at,
            **standing,
            "user": printable(self._user),
            "is_private": known.is_private,
            "sums": [
                {
                    "user": printable(one.user),
                    "account": printable(one.account),
                    "partition": printable(one.partition),
                    "jobs": one.jobs,
                    "cpus": one.cpus,
                    "gpus": {printable(kind): count for kind, count in one.gpus.items()},
                }
                for one in sum_running(known.jobs)
            ],
        }

    async def _query_slurm(self, started_at: float) -> _RunningAnswer:
        mark = secrets.token_hex(_MARK_BYTES)
        jobs = tuple(await self._client.read(running_argv(mark), lambda raw: parse_running(raw, mark)))
        return _RunningAnswer(started_at, hides_jobs(await self._client.cached_configuration()), jobs)


def _explained(rows: list[list[Any]]) -> dict[str, str]:
    """Return the reasons that occur, each with its sentence: fifty thousand jobs have few of them."""
    place = COLUMNS.index("reason")
    return {reason: explain_wait_of_others(reason) for reason in {str(row[place]) for row in rows} if reason}


def _read(answer: bytes, mark: str, user: str) -> list[list[Any]]:
    rows = parse_all_jobs(answer, mark, user)
    return [[printable(cell) if isinstance(cell, str) and not cell.isascii() else cell for cell in row] for row in rows]
