"""What a site's profile says of the names of its cluster.

The cluster wins: what it tells itself is taken from it, and of the profile only what Slurm does not know (what a
partition is for, what it costs, how a type of GPU is asked for). Before that, the profile is all there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from jupyter_slurm.domain.cluster_facts import NamedEntity

if TYPE_CHECKING:
    from jupyter_slurm.domain.profile_tables import TomlTable

__all__ = ["beside", "named_in"]

#: The table of the profile for each kind of name.
_TABLES: Final = {
    "partition": "partitions",
    "account": "accounts",
    "qos": "qos",
    "gpu": "gpus",
    "gpu-of-node": "gpus",
    "feature": "gpus",
}
_OFFERED: Final = ("partition", "account", "qos", "gpu", "gpu-of-node")  # a type need not be a feature as well


def named_in(site: Mapping[str, TomlTable], kind: str) -> list[NamedEntity]:
    """Return the names of a kind that the profile tells, with all that it says of them.

    Parameters
    ----------
    site : mapping
        ``partitions``, ``accounts``, ``qos``, ``gpus`` and ``cost`` of the profile.
    kind : str
        One of :data:`jupyter_slurm.domain.cluster_facts.NAMED`.
    """
    if kind not in _OFFERED:
        return []
    told = site.get(_TABLES[kind], {})
    return [NamedEntity(name, _joined([*_limits(one), _beyond(site, kind, name)])) for name, one in told.items()]


def beside(site: Mapping[str, TomlTable], kind: str, names: Iterable[NamedEntity]) -> list[NamedEntity]:
    """Return the names that the cluster has told, each with what only the profile knows of it."""
    if kind not in _TABLES:
        return list(names)
    return [NamedEntity(one.name, _joined([one.about, _beyond(site, kind, one.name)])) for one in names]


def _limits(one: TomlTable) -> list[str]:
    """Return what Slurm would tell itself."""
    gpus = [f"{count} {kind} a node" for kind, count in one.get("gpus", {}).items()]
    return [*gpus, f"at most {one['max_time']}" if "max_time" in one else ""]


def _beyond(site: Mapping[str, TomlTable], kind: str, name: str) -> str:
    """Return what Slurm does not know."""
    one = site.get(_TABLES[kind], {}).get(name, {})
    times = site.get("cost", {}).get("partitions", {}).get(name) if kind == "partition" else None
    cost = "" if times is None else f"an hour counts {times:g} times"
    return _joined([one.get("ask", ""), one.get("about", ""), cost])


def _joined(words: Iterable[str]) -> str:
    return ", ".join(filter(None, words))
