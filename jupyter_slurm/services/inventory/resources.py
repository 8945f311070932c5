"""Free resources of a cluster, queried on demand, once for all viewers."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from jupyter_slurm.domain.cluster_facts import Facts
from jupyter_slurm.domain.free_resources import Resources
from jupyter_slurm.domain.queries import limits
from jupyter_slurm.domain.queries.cluster import Partition, nodes_argv, parse_nodes
from jupyter_slurm.domain.queries.limits import Limits
from jupyter_slurm.errors import SlurmError
from jupyter_slurm.services.inventory.facts import ClusterFacts
from jupyter_slurm.services.inventory.shared_query import SharedQuery
from jupyter_slurm.services.slurm.client import SlurmClient
from jupyter_slurm.services.slurm.location import ClusterLocation

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["ResourceInventory"]

log = logging.getLogger(__name__)

_CACHE_AGE_S = 60.0  # seconds for which an answer is reused
_MAX_BURST_QUERIES = 3  # extra newer answers for a user, before the limit of one a minute
_PARTITIONS_TIMEOUT_S = 5.0  # seconds in which the controller lists its partitions


class ResourceInventory(SharedQuery[Resources]):
    """Cache of the last known resources of one cluster.

    Parameters
    ----------
    client : SlurmClient
        Sends three or four requests to the controller, at most once a minute and once more for users who press a
        button; none while nobody looks.
    facts : ClusterFacts
        Has the partitions and the user's permissions, which change seldom.
    location : ClusterLocation
        User whose limits are queried, seconds between two queries as set by the site, if more than 60, and prices.
    clock : callable
        Seconds since the epoch.
    further_tasks : callable
        Returns how many array tasks of the user run beyond one for each array.
    """

    subject = "what is free"

    def __init__(
        self,
        client: SlurmClient,
        facts: ClusterFacts,
        location: ClusterLocation,
        *,
        clock: Callable[[], float],
        further_tasks: Callable[[], int],
    ) -> None:
        interval = max(_CACHE_AGE_S, location.min_poll_interval)
        super().__init__(interval, impatient=_MAX_BURST_QUERIES, clock=clock)
        self._client, self._facts, self._user, self._cost = client, facts, location.user, location.cost
        self._further_tasks = further_tasks

    async def to_api(self, *, wait: float, is_newer: bool = False, has_nodes: bool = True) -> api.Resources:
        """Return the free resources in the form of the API; see :meth:`SharedQuery._current_answer`.

        Parameters
        ----------
        has_nodes : bool
            Whether to list each node.
        """
        known, standing = await self._current_answer(wait=wait, is_newer=is_newer)
        cost = cast("api.ResourcesCost", self._cost) if self._cost else None
        return {**known.as_dict(has_nodes=has_nodes), **standing, "cost": cost}

    async def current(self, *, wait: float, is_newer: bool = False) -> Resources:
        """Return the free resources; see :meth:`SharedQuery._current_answer`."""
        return (await self._current_answer(wait=wait, is_newer=is_newer))[0]

    async def _query_slurm(self, started_at: float) -> Resources:
        mark = secrets.token_hex(8)
        argv = nodes_argv(mark, has_load=True)
        nodes = tuple(await self._client.read(argv, lambda raw: parse_nodes(raw, mark, has_load=True)))
        if self._answer is None and (facts := await self._facts.get(_PARTITIONS_TIMEOUT_S)):
            self._answer = Resources(
                started_at, nodes, _visible_partitions(facts), None
            )  # accounting answers last, and may take long
        facts = await self._facts.get(self._interval)
        return Resources(started_at, nodes, _visible_partitions(facts), await self._limits(facts))

    async def _limits(self, facts: Facts | None) -> Limits | None:
        """Return limits and use; if the controller omits some, the rest is still shown."""
        try:
            if facts is not None and "limits" in facts.setting_words("AccountingStorageEnforce"):
                usable = {name for one in facts.associations or () for name in one.qos}
                usable |= {one.qos for one in _visible_partitions(facts) if one.qos}
                name = facts.config.get("ClusterName", "")
                qos = facts.qos or ()
                known = await self._client.read(
                    limits.limits_argv(self._user),
                    lambda raw: limits.parse_limits(raw, self._user, name, qos, usable),
                )
            else:
                mark = secrets.token_hex(8)
                use = await self._client.read(limits.use_argv(mark), lambda raw: limits.parse_use(raw, mark))
                known = Limits((), use)
            return replace(known, use=limits.fold_arrays(known.use, self._further_tasks()))
        except SlurmError as error:
            log.info("the limits of %s are not known: %s", self._user, error.message)
            return None


def _visible_partitions(facts: Facts | None) -> tuple[Partition, ...]:
    return tuple(one for one in facts.partitions if not one.is_hidden) if facts else ()
