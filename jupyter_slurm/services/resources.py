"""What is free on a cluster, asked for when somebody looks, and once for all who do."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

from jupyter_slurm.domain import limits
from jupyter_slurm.domain.cluster import nodes_argv, parse_nodes
from jupyter_slurm.domain.facts import Facts
from jupyter_slurm.domain.limits import Limits
from jupyter_slurm.domain.resources import Resources
from jupyter_slurm.errors import ControllerError, SlurmError
from jupyter_slurm.services.facts import FactsKeeper
from jupyter_slurm.services.slurm import SlurmClient
from jupyter_slurm.services.throttle import Bucket

__all__ = ["ResourcesKeeper"]

log = logging.getLogger(__name__)

_FRESH = 60.0  # seconds for which an answer serves everybody
_BURST = 3  # newer answers that a person may have beside that, before one a minute


class ResourcesKeeper:
    """Keep what was last known of one cluster, and since when it is not.

    Parameters
    ----------
    client : SlurmClient
        Asks: three or four requests to the controller, at most once a minute and, for those who press a button, once
        more; nothing while nobody looks.
    facts : FactsKeeper
        Has the partitions and what a person may use, which change seldom.
    user : str
        Whose limits are asked for.
    interval : float
        Seconds between two questions, where that is more than a minute: as the site wishes it.
    cost : mapping
        What the site takes, as the profile says it.
    clock, monotonic : callable, optional
        Seconds since the epoch, and monotonic ones.
    """

    def __init__(
        self,
        client: SlurmClient,
        facts: FactsKeeper,
        user: str,
        *,
        interval: float,
        cost: Mapping[str, Any],
        clock: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._facts, self._user, self._cost = client, facts, user, dict(cost)
        self._clock, self._monotonic = clock, monotonic
        self._interval = max(_FRESH, interval)
        self._impatient = Bucket(rate=1 / self._interval, burst=_BURST, clock=monotonic)
        self._known: Resources | None = None
        self._due = -1.0  # on the monotonic clock
        self._asking: asyncio.Task[None] | None = None
        self._unknown_since: float | None = None
        self._error: SlurmError | None = None

    async def told(self, *, wait: float, is_newer: bool = False, has_nodes: bool = True) -> dict[str, Any]:
        """Return what is free as the API tells it.

        Parameters
        ----------
        wait : float
            Seconds to wait at most for a new answer, where one is due.
        is_newer : bool
            Somebody pressed a button: what is known is not new enough, unless that was pressed too often.
        has_nodes : bool
            Whether each node is told.

        Raises
        ------
        SlurmError
            Nothing is known, and Slurm does not say it.
        """
        self._want(is_newer=is_newer)
        if self._asking is not None and wait > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await asyncio.shield(self._asking)
        if self._known is None:
            raise self._error or ControllerError(
                "Slurm has not yet said what is free.", hint="Its answer is waited for; try again in a moment."
            )
        return {
            **self._known.as_dict(has_nodes=has_nodes),
            "unknown_since": self._unknown_since,
            "said": "" if self._error is None else self._error.message,
            "cost": self._cost or None,
        }

    async def stop(self) -> None:
        """End."""
        if self._asking is not None:
            self._asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._asking

    def _want(self, *, is_newer: bool) -> None:
        if self._asking is not None:
            return
        if self._monotonic() < self._due:
            if not (is_newer and self._impatient.is_ready()):
                return
            self._impatient.reserve()
        self._due = self._monotonic() + self._interval
        self._asking = asyncio.create_task(self._ask(), name="resources")

    async def _ask(self) -> None:
        begun = self._clock()
        try:
            self._known = await self._of_controller(begun)
            self._unknown_since = self._error = None
        except SlurmError as error:
            log.info("what is free on the cluster is not known: %s", error.message)
            self._unknown_since, self._error = self._unknown_since or begun, error
        finally:
            self._asking = None

    async def _of_controller(self, begun: float) -> Resources:
        mark = secrets.token_hex(8)
        answer = await self._client.ask(nodes_argv(mark, has_load=True))
        nodes = parse_nodes(answer, mark, has_load=True)
        facts = await self._facts.get(self._interval)
        shown = tuple(one for one in facts.partitions if not one.is_hidden) if facts else ()
        return Resources(begun, tuple(nodes), shown, await self._limits(facts))

    async def _limits(self, facts: Facts | None) -> Limits | None:
        """Return limits and use; what the controller does not say of them hides nothing of the rest."""
        try:
            if facts is not None and "limits" in facts.words_of("AccountingStorageEnforce"):
                usable = {name for one in facts.associations or () for name in one.qos}
                name = facts.config.get("ClusterName", "")
                answer = await self._client.ask(limits.limits_argv(self._user))
                return limits.parse_limits(answer, self._user, name, facts.qos or (), usable)
            mark = secrets.token_hex(8)
            return Limits((), limits.parse_use(await self._client.ask(limits.use_argv(mark)), mark))
        except SlurmError as error:
            log.info("the limits of %s are not known: %s", self._user, error.message)
            return None
