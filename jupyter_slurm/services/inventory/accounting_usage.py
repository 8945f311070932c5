"""Usage of a cluster in a period, from accounting: one query for identical requests within a minute."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from jupyter_slurm.domain.queries import accounting_usage, associations
from jupyter_slurm.domain.queries.accounting_usage import AccountedJob
from jupyter_slurm.errors import UsageError
from jupyter_slurm.services.slurm.client import SlurmClient, cluster_name, printable

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.domain.profile_tables import CostTable

__all__ = ["TrackedRun", "UsageReports"]

_DEFAULT_DAYS = 30
_CACHE_AGE_S = 60  # seconds for which an answer is reused
_ACCOUNTING_LAG_S = 6.0  # slurmctld sends the starts of jobs to slurmdbd every 5 s
_MAX_REPORTS = 16
_QUEUE_TIMEOUT_S = 60.0  # seconds to wait in the queue of requests after many of them
_MAX_LISTED_JOBS = 10_000  # that are listed one by one


@dataclass(frozen=True)
class TrackedRun:
    """A job that jupyter_slurm knows to have run in a period.

    Parameters
    ----------
    number : str
        Its number, for an array that of all tasks.
    account : str
        Empty if not known.
    seconds : float
        Duration within the period.
    ended : float, optional
        Its end, in seconds since the epoch by the clock of this computer; None while it runs.
    """

    number: str
    account: str
    seconds: float
    ended: float | None


@dataclass(frozen=True)
class _Report:
    requested_at: float
    until: float  # on the monotonic clock
    accounts: tuple[str, ...]
    jobs: list[AccountedJob]


class UsageReports:
    """Query accounting for the resources of jobs in a period.

    Parameters
    ----------
    client : SlurmClient
        Queries slurmdbd, as often as a user may (``SlurmClient.people``); never slurmctld.
    user : str
        Default owner of the jobs.
    cost : mapping
        Prices of the site, from the profile.
    tracked_runs : callable
        Returns the jobs of the user that ran in a period (seconds since the epoch), as far as jupyter_slurm knows.
    clock, monotonic : callable, optional
        Seconds since the epoch, and monotonic seconds.
    """

    def __init__(
        self,
        client: SlurmClient,
        user: str,
        *,
        cost: CostTable,
        tracked_runs: Callable[[float, float], list[TrackedRun]],
        clock: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._user, self._cost, self._tracked_runs = client, user, cost, tracked_runs
        self._clock, self._monotonic = clock, monotonic
        self._reports: dict[tuple[Any, ...], _Report] = {}
        self._gate = asyncio.Lock()

    async def to_api(
        self, *, start: int | None, end: int | None, account: str | None, has_jobs: bool
    ) -> api.AccountedUsage:
        """Return the usage in the form of the API.

        Parameters
        ----------
        start, end : int
            Seconds since the epoch; defaults: now, and 30 days before the end.
        account : str, optional
            Account of a project or lab, with the accounts below it and all their users; default: the user's own jobs.
        has_jobs : bool
            Whether to list each job.

        Raises
        ------
        UsageError
            The period is not valid.
        SlurmError
            There is no accounting, or no answer from it.
        """
        now = int(self._clock())
        if start is None:
            start = (end or now - now % _CACHE_AGE_S) - _DEFAULT_DAYS * 86400
        if (end or now) <= start:
            raise UsageError(
                "The period ends before it begins.",
                hint="Give a start= before end=. Without end=, the period ends now.",
            )
        report = await self._report(start, end, account)
        jobs = sorted(report.jobs, key=lambda job: (job.start or 0, job.id)) if has_jobs else []
        return {
            "asked_at": report.requested_at,
            "start": start,
            "end": end or int(report.requested_at),
            "user": None if account else self._user,
            "accounts": list(report.accounts),
            "sums": [cast("api.AccountedUsageSum", _plain(one)) for one in accounting_usage.summed(report.jobs)],
            "jobs": [cast("api.AccountedUsageJob", _plain(job.as_dict())) for job in jobs[-_MAX_LISTED_JOBS:]],
            "left_out": max(0, len(jobs) - _MAX_LISTED_JOBS),
            "cost": self._cost or None,
            "note": "" if report.jobs else self._why_empty(account, start, end or now),
        }

    def _why_empty(self, account: str | None, start: int, end: int) -> str:
        """Return why a report has no job: nothing ran, or accounting does not have (or show) what ran."""
        if account:
            return (
                f"Accounting shows no job of account {printable(account)} that ran in this period. "
                "Many sites show only your own jobs."
            )
        said = f"Accounting has no job of {self._user} that ran in this period."
        if known := sum(run.seconds >= 1 for run in self._tracked_runs(start, end)):
            jobs = "1 job that ran" if known == 1 else f"{known} jobs that ran"
            said += (
                f" jupyter_slurm knows {jobs} in it, so accounting lags or does not record your jobs: "
                "ask the administrators if this lasts longer than some minutes."
            )
        return said

    async def _report(self, start: int, end: int | None, account: str | None) -> _Report:
        asked = (start, end, account)
        async with self._gate:
            known = self._reports.get(asked)
            if known is None or self._monotonic() >= known.until or self._lag(known, start, end):
                known = await self._query_slurm(start, end, account)
                if lag := self._lag(known, start, end):
                    await asyncio.sleep(lag)
                    known = await self._query_slurm(start, end, account)
                self._reports.pop(asked, None)
                self._reports[asked] = known
                while len(self._reports) > _MAX_REPORTS:
                    del self._reports[next(iter(self._reports))]
        return known

    def _lag(self, report: _Report, start: int, end: int | None) -> float:
        """Return for how many seconds accounting may still lack the end of a job that ran in the period; 0: it has all.

        A report that was requested later is taken as it is.
        """
        now, listed = self._clock(), {re.split(r"[_+]", job.id)[0] for job in report.jobs}
        missing = [
            run.ended
            for run in self._tracked_runs(start, end or now)
            if run.ended is not None
            and run.number not in listed
            and run.ended <= now
            and report.requested_at < run.ended + _ACCOUNTING_LAG_S
            and (not report.accounts or run.account.lower() in report.accounts)
        ]
        return max(0.01, max(missing) + _ACCOUNTING_LAG_S - now) if missing else 0.0

    async def _query_slurm(self, start: int, end: int | None, account: str | None) -> _Report:
        await self._client.people.acquire(max_wait=_QUEUE_TIMEOUT_S)
        now, mark = self._clock(), secrets.token_hex(8)
        accounts = tuple(await self._accounts(account)) if account else ()
        users = [] if account else [self._user]
        argv = accounting_usage.accounted_argv(start, end or int(now), mark, users, accounts)
        jobs = await self._client.read(argv, lambda raw: accounting_usage.parse_accounted(raw, mark))
        return _Report(now, self._monotonic() + _CACHE_AGE_S, accounts, jobs)

    async def _accounts(self, account: str) -> list[str]:
        """Return an account and those below it, as far as the site shows them."""
        name = cluster_name(await self._client.cached_configuration(), "")
        argv = associations.accounts_argv(name)
        above = await self._client.read(argv, associations.parse_accounts) if name else {}
        if above and account.lower() not in above:
            raise UsageError(
                f"There is no account {printable(account)!r} on this cluster.",
                hint="List your accounts with `%sacctmgr show associations user=$USER`.",
            )
        return accounting_usage.below(account, above)


def _plain(text: Mapping[str, object]) -> dict[str, object]:
    return {name: printable(value) if isinstance(value, str) else value for name, value in text.items()}
