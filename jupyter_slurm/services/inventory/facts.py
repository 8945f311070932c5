"""Slowly changing facts about a cluster, queried on demand and seldom."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jupyter_slurm.domain.advice.capacity import FeasibilityWarning
from jupyter_slurm.domain.advice.feasibility import feasibility_warnings
from jupyter_slurm.domain.advice.site_advice import advised
from jupyter_slurm.domain.clock_text import clock_text
from jupyter_slurm.domain.cluster_facts import Facts
from jupyter_slurm.domain.options.request import Request
from jupyter_slurm.domain.queries import associations
from jupyter_slurm.domain.queries.cluster import (
    nodes_argv,
    parse_nodes,
    parse_partitions,
    partitions_argv,
)
from jupyter_slurm.errors import SlurmError
from jupyter_slurm.services.slurm.client import SlurmClient, decode_output

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.domain.profile_tables import AdviceTable

__all__ = ["ClusterFacts", "FeasibilityWarnings"]

log = logging.getLogger(__name__)

_CACHE_AGE_S = 600.0  # seconds for which facts are used without a new query
_RETRY_INTERVAL_S = 60.0  # seconds after which unanswered queries are repeated
_MAX_AGE_S = 86400.0  # seconds after which the facts are no longer used
_ANY_NAME = "ALL"


@dataclass(frozen=True)
class FeasibilityWarnings:
    """Reasons against a job, from the known facts.

    Attributes
    ----------
    refused : str
        Possible cause if sbatch refuses the job; empty if nothing is known.
    taken : tuple of str
        Warnings that remain valid if sbatch accepts the job.
    is_old : bool
        Whether the facts are wrong if sbatch accepts the job.
    reasons : tuple of FeasibilityWarning
        The same reasons, one by one.
    """

    refused: str = ""
    collected: tuple[str, ...] = ()
    is_old: bool = False
    reasons: tuple[FeasibilityWarning, ...] = ()

    def problems(self) -> list[api.OptionProblem]:
        """Return the reasons by option, for a form."""
        return [
            {"option": one.option, "scope": one.scope, "limit": one.limit, "text": one.text} for one in self.reasons
        ]


class ClusterFacts:
    """Cache of the facts of one cluster. Callers wait only if they give a time.

    Parameters
    ----------
    client : SlurmClient
        Sends five requests to the controller and three to slurmdbd (four if partitions name accounts), at most once
        in ten minutes.
    user : str
        User whose accounts are queried.
    clock : callable
        Seconds since the epoch.
    advice : mapping, optional
        Advice of the site about jobs, from the profile.
    monotonic : callable, optional
        Monotonic seconds.
    """

    def __init__(
        self,
        client: SlurmClient,
        user: str,
        clock: Callable[[], float],
        advice: AdviceTable | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._user, self._clock, self._monotonic = client, user, clock, monotonic
        self._advice = advice or {}
        self._facts: Facts | None = None
        self._next_query_at = -1.0  # on the monotonic clock
        self._query_task: asyncio.Task[None] | None = None

    @property
    def facts(self) -> Facts | None:
        """Return the known facts; None before the first answer, and after the last one has expired."""
        facts = self._facts
        # Facts from the future were noted when the clock was wrong.
        return facts if facts is not None and 0 <= self._clock() - facts.collected_at < _MAX_AGE_S else None

    def refresh(self) -> None:
        """Query the facts in the background, if due."""
        if self._query_task is None and self._monotonic() >= self._next_query_at:
            self._next_query_at = self._monotonic() + _RETRY_INTERVAL_S
            self._query_task = asyncio.create_task(self._query_slurm(), name="facts")

    def mark_stale(self) -> None:
        """Note that a fact was wrong: a request after a minute or later starts a new query."""
        self._next_query_at = min(self._next_query_at, self._monotonic() + _RETRY_INTERVAL_S)

    def check_submission(self, requests: Sequence[Request]) -> FeasibilityWarnings:
        """Compare a submission, component by component, with facts and advice, without a query."""
        known = self._compare(requests)
        if not self._advice:
            return known
        said = dict.fromkeys(text for one in requests for text in advised(self._advice, one))
        return replace(known, collected=(*known.collected, *said))

    def _compare(self, requests: Sequence[Request]) -> FeasibilityWarnings:
        facts = self.facts
        if facts is None:
            return FeasibilityWarnings()
        try:
            found = list(dict.fromkeys(doubt for one in requests for doubt in feasibility_warnings(facts, one)))
        except Exception:  # an unexpected value must not prevent the submission
            log.exception("what speaks against a job could not be found out")
            return FeasibilityWarnings()
        if not found:
            return FeasibilityWarnings()
        since = f"(checked {clock_text(facts.collected_at, self._clock())})"
        refused = " ".join([*(doubt.text for doubt in found), since])
        taken = tuple(f"{doubt.text} {since}" for doubt in found if not doubt.is_about_names)
        return FeasibilityWarnings(refused, taken, any(doubt.is_about_names for doubt in found), tuple(found))

    async def get(self, timeout: float) -> Facts | None:
        """Return the facts; if there are none, wait at most ``patience`` seconds."""
        self.refresh()
        is_partial = self.facts is None or self.facts.qos is None  # accounting answers last
        if is_partial and self._query_task is not None and timeout > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await asyncio.shield(self._query_task)
        return self.facts

    async def stop(self) -> None:
        """Stop."""
        if self._query_task is not None:
            self._query_task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._query_task

    async def _query_slurm(self) -> None:
        before = self._facts
        try:
            facts = await self._controller_facts()
            if before is not None:  # until accounting has answered
                known = {name: getattr(before, name) for name in ("associations", "qos", "clusters", "accounts")}
                facts = replace(facts, **known)
            self._facts = facts
            self._facts = await self._with_accounting(facts)
            self._next_query_at = self._monotonic() + _CACHE_AGE_S
        except SlurmError as error:
            log.info("the facts of the cluster are not known: %s", error.message)
        finally:
            self._query_task = None

    async def _controller_facts(self) -> Facts:
        ask, mark, taken = self._client.read, secrets.token_hex(8), self._clock()
        partitions = await ask(partitions_argv(), parse_partitions)
        nodes = await ask(nodes_argv(mark), lambda raw: parse_nodes(raw, mark))
        reservations = await ask(associations.reservations_argv(), associations.parse_reservations)
        config = await self._client.configuration()
        is_grouped = any(one.fields.get("AllowGroups", _ANY_NAME) != _ANY_NAME for one in partitions)
        groups = await self._groups() if is_grouped else frozenset[str]()
        is_placed = any(one.fields.get("AllocNodes", _ANY_NAME) != _ANY_NAME for one in partitions)
        host = await self._host() if is_placed else ""
        return Facts(taken, tuple(partitions), tuple(nodes), tuple(reservations), config, groups=groups, host=host)

    async def _host(self) -> str:
        try:
            return decode_output(await self._client.query(["uname", "-n"])).strip().partition(".")[0]
        except SlurmError:
            return ""

    async def _groups(self) -> frozenset[str]:
        try:  # a name may contain a blank
            return frozenset(filter(None, decode_output(await self._client.query(["id", "-Gnz"])).split("\0")))
        except SlurmError:
            return frozenset()

    async def _with_accounting(self, facts: Facts) -> Facts:
        """Query slurmdbd; without an answer, the former facts remain."""
        if "slurmdbd" not in facts.config.get("AccountingStorageType", ""):
            return facts
        ask, name = self._client.read, facts.config.get("ClusterName", "")
        try:
            mine = await ask(
                associations.associations_argv(self._user), lambda raw: associations.parse_associations(raw, name)
            )
            qos = await ask(associations.qos_argv(), associations.parse_qos)
            clusters = await ask(associations.clusters_argv(), associations.parse_clusters)
            is_listed = any(one.allow_accounts or one.fields.get("DenyAccounts") for one in facts.partitions)
            accounts = await ask(associations.accounts_argv(name), associations.parse_accounts) if is_listed else None
        except SlurmError as error:
            log.info("accounting did not say what can be used: %s", error.message)
            return facts
        return replace(facts, associations=tuple(mine), qos=tuple(qos), clusters=tuple(clusters), accounts=accounts)
