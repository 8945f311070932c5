"""Queries that users make now and then: one query for all viewers, with a cached answer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Generic, TypedDict, TypeVar

from jupyter_slurm.errors import ControllerError, SlurmError
from jupyter_slurm.services.slurm.rate_limit import TokenBucket

__all__ = ["AnswerAge", "SharedQuery"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_RETRY_AFTER_S = 1  # seconds after which a client should ask again for an answer that Slurm has not given yet


class AnswerAge(TypedDict):
    """Fields of an API answer about its age: since when it is outdated, and why."""

    unknown_since: float | None
    said: str


class SharedQuery(ABC, Generic[T]):
    """Cache of the last answer and the time since which it is outdated. No query runs while nobody looks.

    Parameters
    ----------
    interval : float
        Seconds between two queries.
    impatient : int
        Extra newer answers for users who press a button, before the limit of one in each interval.
    clock, monotonic : callable
        Seconds since the epoch, and monotonic seconds.
    """

    subject: ClassVar[str]  # name of the queried data in messages
    source: ClassVar[str] = "Slurm"  # that is queried

    def __init__(
        self,
        interval: float,
        *,
        impatient: int = 0,
        clock: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interval, self._clock, self._monotonic = interval, clock, monotonic
        self._impatient = TokenBucket(rate=1 / interval, burst=impatient, clock=monotonic) if impatient else None
        self._answer: T | None = None
        self._next_query_at = -1.0  # on the monotonic clock
        self._query_task: asyncio.Task[None] | None = None
        self._unknown_since: float | None = None
        self._error: SlurmError | None = None

    @abstractmethod
    async def _query_slurm(self, started_at: float) -> T:
        """Return the answer of Slurm; ``begun`` is the start of the query."""

    async def _current_answer(self, *, wait: float, is_newer: bool) -> tuple[T, AnswerAge]:
        """Return the known answer, with the age fields of the API.

        Parameters
        ----------
        wait : float
            Seconds to wait at most for a new answer, if one is due.
        is_newer : bool
            Whether a user pressed a button for a newer answer; too frequent requests are ignored.

        Raises
        ------
        SlurmError
            Nothing is known, and Slurm does not answer.
        """
        self._refresh(is_newer=is_newer)
        if self._query_task is not None and wait > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await asyncio.shield(self._query_task)
        if self._answer is None:
            raise self._error or ControllerError(
                f"{self.source} has not reported {self.subject} yet.",
                hint="Try again in a few seconds: jupyter_slurm is waiting for the answer.",
                retry_after=_RETRY_AFTER_S,
            )
        said = "" if self._error is None else self._error.message
        return self._answer, {"unknown_since": self._unknown_since, "said": said}

    async def stop(self) -> None:
        """Stop."""
        if self._query_task is not None:
            self._query_task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._query_task

    def _refresh(self, *, is_newer: bool) -> None:
        if self._query_task is not None:
            return
        if self._monotonic() < self._next_query_at:
            if not (is_newer and self._impatient is not None and self._impatient.is_ready()):
                return
            self._impatient.reserve()
        self._next_query_at = self._monotonic() + self._interval
        self._query_task = asyncio.create_task(self._run_query(), name=self.subject)

    async def _run_query(self) -> None:
        begun = self._clock()
        try:
            self._answer = await self._query_slurm(begun)
            self._unknown_since = self._error = None
        except SlurmError as error:
            log.info("%s is not known: %s", self.subject, error.message)
            self._unknown_since, self._error = self._unknown_since or begun, error
        finally:
            self._query_task = None
