"""Queries of the agent to accounting (slurmdbd), with a short time limit: a hanging slurmdbd delays nothing else."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.queries import job_history
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.errors import CommandError, CommandTimeout, ControllerError, SlurmError
from jupyter_slurm.services.large_answers import parse_answer
from jupyter_slurm.services.slurm.location import ClusterLocation

__all__ = ["ACCOUNTING_COMMANDS", "Accounting", "has_no_accounting", "why_no_answer"]

ACCOUNTING_COMMANDS: Final = frozenset({"sacct", "sacctmgr", "sreport"})

_TIMEOUT_S = 15.0
_PAUSE_S = 60.0  # seconds without a query after one without an answer
_TOO_LONG = "too wide of a date range"  # MaxQueryTimeRange of slurmdbd.conf
_NO_ACCOUNTING = ("accounting storage is disabled", "not running a supported accounting_storage")


class Accounting:
    """Ask slurmdbd for the agent. After a query without an answer, the next one is sent a minute later.

    Parameters
    ----------
    ask : callable
        Runs a query within a time limit in seconds.
    location : ClusterLocation
        Location of the cluster, with the owner of the jobs.
    timeout : float
        Time limit of all commands of Slurm, in seconds; a query to accounting has at most a quarter of a minute.
    clock : callable, optional
        Monotonic seconds.
    """

    def __init__(
        self,
        ask: Callable[[Sequence[str], float], Awaitable[bytes]],
        location: ClusterLocation,
        timeout: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask, self._location, self._timeout, self._clock = ask, location, min(timeout, _TIMEOUT_S), clock
        self._silent_until = -math.inf

    async def query(self, argv: Sequence[str]) -> bytes:
        """Return the answer to a query.

        Raises
        ------
        ControllerError
            There was no answer in time, or none to a query a moment ago.
        CommandError
            There is no accounting, or it refuses the query.
        """
        if self._clock() < self._silent_until:
            raise self._silence(argv, "gave no answer a moment ago")
        try:
            return await self._ask(argv, self._timeout)
        except CommandTimeout:
            self._silent_until = self._clock() + _PAUSE_S
            raise self._silence(argv, f"gave no answer within {self._timeout:g} s") from None

    @staticmethod
    def _silence(argv: Sequence[str], what: str) -> ControllerError:
        return ControllerError(
            f"Accounting does not answer: {argv[0]} {what}.",
            hint="Try again in a minute. Jobs and the queue are not affected. If it lasts, tell the administrators.",
            argv=list(argv),
        )

    async def history(
        self, jobs: Sequence[JobId], since: float, version: tuple[int, int] | None = None
    ) -> list[JobRecord]:
        """Ask about jobs; unknown ones are left out. With the version of Slurm, output files are known if it has them.

        Raises
        ------
        ControllerError, CommandError
            As :meth:`query` does.
        """
        mark, fields = secrets.token_hex(8), job_history.all_fields(version)
        argv = job_history.sacct_argv(list(jobs), int(since), mark, fields)
        return await parse_answer(argv, await self.query(argv), lambda raw: job_history.parse_sacct(raw, mark, fields))

    async def requests(self, job: JobId) -> list[Mapping[str, str]]:
        """Ask what a job, or each task of an array, has requested, by :data:`job_history.REQUEST_FIELDS`.

        Raises
        ------
        ControllerError, CommandError
            As :meth:`query` does.
        """
        mark = secrets.token_hex(8)
        argv = job_history.sacct_argv([job], 0, mark, job_history.REQUEST_FIELDS)
        return await parse_answer(argv, await self.query(argv), lambda raw: job_history.parse_requests(raw, mark))

    async def recent(self, since: float, version: tuple[int, int] | None) -> list[JobRecord]:
        """Ask for the user's jobs that were not over at a time of the cluster's clock.

        Raises
        ------
        ControllerError, CommandError
            As :meth:`query` does.
        """
        mark, fields = secrets.token_hex(8), job_history.all_fields(version)
        argv = job_history.user_argv(self._location.user, int(since), mark, fields)
        return await parse_answer(argv, await self.query(argv), lambda raw: job_history.parse_sacct(raw, mark, fields))

    async def recent_within(
        self, now: float, periods: Sequence[float], version: tuple[int, int] | None
    ) -> list[JobRecord]:
        """Ask for the jobs of the longest of some periods, in seconds, for which slurmdbd gives an answer.

        Raises
        ------
        ControllerError, CommandError
            As :meth:`query` does.
        """
        *longer, last = periods
        for period in longer:
            try:
                return await self.recent(max(now - period, 0.0), version)
            except CommandError as error:
                if _TOO_LONG not in error.message.lower():
                    raise
        return await self.recent(max(now - last, 0.0), version)

    async def submissions(self, script: str, since: float) -> list[tuple[JobId, int | None]]:
        """Ask for the jobs of a script (its path): ID and time of submission, latest last.

        Raises
        ------
        ControllerError, CommandError
            As :meth:`query` does.
        """
        mark = secrets.token_hex(8)
        argv = job_history.submissions_argv(self._location.user, int(since), mark)
        answer = await self.query(argv)
        return await parse_answer(argv, answer, lambda raw: job_history.parse_submissions(raw, mark, script))

    async def submit_times(self, script: str, job: int, since: float) -> set[int | None]:
        """Return the times at which a script was submitted as the job with this number; empty without an answer."""
        try:
            return {at for known, at in await self.submissions(script, since) if known.job == job}
        except (ControllerError, CommandError):
            return set()


def has_no_accounting(error: SlurmError) -> bool:
    """Return whether an error says that the cluster has no slurmdbd at all."""
    return isinstance(error, CommandError) and any(words in error.message.lower() for words in _NO_ACCOUNTING)


def why_no_answer(error: SlurmError) -> str:
    """Return in a sentence without its full stop why accounting gave no answer."""
    if has_no_accounting(error):
        return "this cluster keeps no accounting"
    said = error.message.strip().splitlines()[-1].removeprefix("Accounting does not answer: ").removesuffix(".")
    return f"accounting could not be asked ({said})"
