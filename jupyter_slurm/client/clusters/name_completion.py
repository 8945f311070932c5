"""Names for the completion of a line: requested in the background, with a short wait."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jupyter_slurm.client import event_loop
from jupyter_slurm.client.clusters.cluster import Cluster, chosen, current
from jupyter_slurm.client.clusters.option_tables import named_options, option_table
from jupyter_slurm.domain.cluster_facts import NamedEntity

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["clusters", "names", "options"]

_CACHE_AGE_S = 10.0  # seconds for which an answer of the agent is used; the agent asks Slurm far less often
_RETRY_INTERVAL_S = 2.0  # seconds until a failed request is repeated
_FIRST_WAIT_S, _LATER_WAIT_S = (
    0.8,
    0.2,
)  # seconds that a key press waits: for the first press, and after another one has waited
_REQUEST_TIMEOUT_S = 10.0  # seconds for an answer of the agent in the background

_CLUSTERS_KEY = "clusters of profiles"
_OPTIONS_KEY_PREFIX = "options of "


@dataclass
class _CachedNames:
    """The last answers, and the running requests."""

    names: list[NamedEntity] = field(default_factory=list)
    next_request_at: float = 0.0
    request: Future[tuple[list[NamedEntity], bool]] | None = None


_lock = threading.Lock()
_known: dict[tuple[str, ...], _CachedNames] = {}


def names(*kinds: str, partition: str = "") -> list[NamedEntity]:
    """Return the names of some kinds from the agent, without those that are not known at once.

    Parameters
    ----------
    *kinds : str
        Kinds of the API's ``listNames``.
    partition : str
        Partition to which generic resources, GPUs, memory and time limits are restricted.
    """
    return [name for kind in kinds for name in _names(kind, partition)]


def clusters() -> list[NamedEntity]:
    """Return the available clusters, each with the state of its login."""
    return _names(_CLUSTERS_KEY)


def options(command: str) -> list[NamedEntity]:
    """Return the long options of a command on the cluster, with their help; empty while unknown."""
    return _names(_OPTIONS_KEY_PREFIX + command)


def _names(kind: str, partition: str = "") -> list[NamedEntity]:
    key = (kind, partition, chosen(), os.environ.get("SLURM_CONF", ""), os.environ.get("PATH", ""))
    patience = _LATER_WAIT_S
    with _lock:
        known = _known.setdefault(key, _CachedNames())
        if known.request is None and time.monotonic() >= known.next_request_at:
            known.request = event_loop.spawn(
                asyncio.to_thread(_request_names, kind, partition), contextvars.copy_context()
            )
            patience = _LATER_WAIT_S if known.names else _FIRST_WAIT_S
        asking = known.request
    if asking is None:
        return known.names
    try:
        found, is_known = asking.result(patience)
    except Exception:  # noqa: BLE001  no Slurm, no agent, nobody logged in: then there is nothing new to offer
        if not asking.done():
            return known.names
        found, is_known = [], False
    with _lock:
        known.request, known.next_request_at = (
            None,
            time.monotonic() + (_CACHE_AGE_S if is_known else _RETRY_INTERVAL_S),
        )
        known.names = found if is_known else known.names or found
    return known.names


def _request_names(kind: str, partition: str) -> tuple[list[NamedEntity], bool]:
    """Ask the agent, in a thread: it may be slow; False: only the profile has answered, not yet the cluster."""
    cluster = current(log_in=False)  # completion must not prompt for a code
    if kind == _CLUSTERS_KEY:
        return _clusters(cluster), True
    if kind.startswith(_OPTIONS_KEY_PREFIX):
        return named_options(option_table(cluster, kind.removeprefix(_OPTIONS_KEY_PREFIX))), True
    asked = {"wait": f"{_REQUEST_TIMEOUT_S / 2}", "partition": partition}
    answer = cluster.client.get(cluster.path("names", kind), params=asked, timeout=_REQUEST_TIMEOUT_S)
    found = [NamedEntity(str(one["name"]), str(one["about"])) for one in answer["names"]]
    return found, answer["taken"] is not None


def _clusters(cluster: Cluster) -> list[NamedEntity]:
    told: list[api.Cluster] = cluster.client.get("/v1/clusters", timeout=_REQUEST_TIMEOUT_S)
    far = [NamedEntity(str(one["id"]), str(way["state"])) for one in told if (way := one.get("connection"))]
    return [NamedEntity("local", "this computer"), *far]
