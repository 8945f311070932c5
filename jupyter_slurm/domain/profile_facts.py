"""Names of a cluster as its site's profile describes them.

The cluster takes precedence. The profile adds only facts that Slurm does not have (the purpose of a partition, its
cost, how to request a type of GPU). Before the cluster has answered, the profile is the only source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from jupyter_slurm.domain.cluster_facts import NamedEntity

if TYPE_CHECKING:
    from jupyter_slurm.domain.profile_tables import TomlTable

__all__ = ["has_gpus", "merge_profile_facts", "named_in"]

#: The profile's table for each kind of name.
_TABLES: Final = {
    "partition": "partitions",
    "account": "accounts",
    "qos": "qos",
    "gpu": "gpus",
    "gpu-of-node": "gpus",
    "feature": "gpus",
}
_OFFERED_KINDS: Final = ("partition", "account", "qos", "gpu", "gpu-of-node")  # a type need not also be a feature


def named_in(site: Mapping[str, TomlTable], kind: str) -> list[NamedEntity]:
    """Return the names of a kind in the profile, with their descriptions.

    Parameters
    ----------
    site : mapping
        ``partitions``, ``accounts``, ``qos``, ``gpus`` and ``cost`` of the profile.
    kind : str
        One of :data:`jupyter_slurm.domain.cluster_facts.NAMED_KINDS`.
    """
    if kind not in _OFFERED_KINDS:
        return []
    told = site.get(_TABLES[kind], {})
    return [NamedEntity(name, _joined([*_limits(one), _beyond(site, kind, name)])) for name, one in told.items()]


def has_gpus(site: Mapping[str, TomlTable]) -> bool:
    """Return whether the profile names GPUs: their types, or those of a partition."""
    return bool(site.get("gpus")) or any(one.get("gpus") for one in site.get("partitions", {}).values())


def merge_profile_facts(site: Mapping[str, TomlTable], kind: str, names: Iterable[NamedEntity]) -> list[NamedEntity]:
    """Return the names that the cluster reported, each with the description that only the profile has."""
    if kind not in _TABLES:
        return list(names)
    return [NamedEntity(one.name, _joined([one.about, _beyond(site, kind, one.name)])) for one in names]


def _limits(one: TomlTable) -> list[str]:
    """Return the facts that Slurm itself would report."""
    gpus = [f"{count} {kind} a node" for kind, count in one.get("gpus", {}).items()]
    return [*gpus, f"at most {one['max_time']}" if "max_time" in one else ""]


def _beyond(site: Mapping[str, TomlTable], kind: str, name: str) -> str:
    """Return the facts that Slurm does not have."""
    one = site.get(_TABLES[kind], {}).get(name, {})
    times = site.get("cost", {}).get("partitions", {}).get(name) if kind == "partition" else None
    cost = "" if times is None else f"an hour counts {times:g} times"
    return _joined([one.get("ask", ""), one.get("about", ""), cost])


def _joined(words: Iterable[str]) -> str:
    return ", ".join(filter(None, words))
