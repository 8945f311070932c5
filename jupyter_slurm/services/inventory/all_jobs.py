"""The jobs of others in the queue of one cluster, asked for when a person wants to see them."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jupyter_slurm.domain.queries.all_jobs import COLUMNS, everybody_argv, hides_jobs, parse_everybody
from jupyter_slurm.services.inventory.shared_query import SharedQuery
from jupyter_slurm.services.slurm.client import SlurmClient, printable

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["AllJobs"]

_FRESH = 30.0  # seconds for which an answer serves everybody
_MARK = 4  # bytes: no field holds free text, and each mark stands eleven times in each of fifty thousand rows
_LONGEST = 45.0  # seconds in line, where much was asked of Slurm


@dataclass(frozen=True)
class _AllJobsAnswer:
    asked_at: float
    is_private: bool
    rows: list[list[Any]]


class AllJobs(SharedQuery[_AllJobsAnswer]):
    """Keep what the queue holds of others.

    Parameters
    ----------
    client : SlurmClient
        Asks: two requests to the controller, counted with the questions of the person (``SlurmClient.people``).
    user : str
        Whose own jobs are left out: the poller knows them.
    interval : float
        Seconds between two questions, where that is more than half a minute: as the site wishes it.
    clock, monotonic : callable, optional
        Seconds since the epoch, and monotonic ones.
    """

    what = "what is in the queue"

    def __init__(
        self,
        client: SlurmClient,
        user: str,
        *,
        interval: float,
        clock: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(max(_FRESH, interval), clock=clock, monotonic=monotonic)
        self._client, self._user = client, user

    async def told(self, *, wait: float) -> api.Queue:
        """Return the jobs of others as the API tells them; see :meth:`SharedQuery._look`."""
        known, standing = await self._look(wait=wait, is_newer=False)
        return {
            "asked_at": known.asked_at,
            **standing,
            "interval": self._interval,
            "user": printable(self._user),
            "is_private": known.is_private,
            "columns": list(COLUMNS),
            "rows": known.rows,
        }

    async def _ask_slurm(self, begun: float) -> _AllJobsAnswer:
        await self._client.people.take(longest=_LONGEST)
        mark = secrets.token_hex(_MARK)
        answer = await self._client.ask(everybody_argv(mark))
        rows = await asyncio.to_thread(_read, answer, mark, self._user)  # fifty thousand take a second
        return _AllJobsAnswer(begun, hides_jobs(await self._client.known_configuration()), rows)


def _read(answer: bytes, mark: str, user: str) -> list[list[Any]]:
    rows = parse_everybody(answer, mark, user)
    return [[printable(cell) if isinstance(cell, str) and not cell.isascii() else cell for cell in row] for row in rows]
