"""Free resources of a cluster: nodes, GPUs by type, other generic resources, partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, TypedDict, cast

from jupyter_slurm.domain.queries.cluster import GPU_GRES, Node, Partition
from jupyter_slurm.domain.queries.limits import Limit, Limits
from jupyter_slurm.domain.slurm_values import Gres, parse_count

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["Gpus", "Resources", "count_gpus", "count_other_gres", "gpus_by_type", "other_gres", "standing"]

_MIB: Final = 1 << 20
# Flags of a node that starts jobs (scontrol(1), "node state"). All others keep jobs away: the backfill scheduler keeps
# a planned node for another job, and newer versions of Slurm have more of them.
_OPEN_NODE_FLAGS: Final = frozenset(
    {"CLOUD", "DYNAMIC", "DYNAMIC_FUTURE", "DYNAMIC_NORM", "EXTERNAL", "REBOOT_CANCEL", "RESUME", "UNDRAIN"}
)
_COMPLETING: Final = "COMPLETING"
# Flags that matter more than other flags and than the base state.
_TELLING_NODE_FLAGS: Final = (
    *("DRAIN", "NOT_RESPONDING", "FAIL", "INVALID_REG", "MAINT", "MAINTENANCE", "RESERVED"),
    *("PLANNED", "BLOCKED", "COMPLETING"),
)


class Gpus(NamedTuple):
    """GPUs of a type (empty: no type) on some nodes: total, allocated, available to a job, largest number on a node.

    ``soon`` are those that become available within seconds, when Slurm has cleaned up an ended job on their node.
    """

    type: str
    total: int
    used: int
    free: int
    max_per_node: int
    soon: int = 0


class ReportedResources(TypedDict):
    """The API's ``Resources`` without the fields that Slurm does not have: whether Slurm answers, and the cost."""

    asked_at: float
    gpus: Sequence[api.Gpus]
    gres: Sequence[api.OtherGres]
    partitions: Sequence[api.ResourcesPartition]
    nodes: Sequence[api.ResourcesNode]
    use: Mapping[str, int] | None
    limits: Sequence[api.ResourcesLimit] | None


@dataclass(frozen=True)
class Resources:
    """Slurm's report of its nodes.

    Parameters
    ----------
    requested_at : float
        Time of the query, in seconds since the epoch.
    nodes : tuple of Node
        All nodes that the site shows.
    partitions : tuple of Partition
        Partitions that are not hidden. Their limits and states seldom change and may be some minutes older.
    limits : Limits, optional
        ``None``: unknown.
    """

    requested_at: float
    nodes: tuple[Node, ...] = ()
    partitions: tuple[Partition, ...] = ()
    limits: Limits | None = None

    @cached_property
    def gpus(self) -> list[Gpus]:
        """Return the GPUs of all nodes."""
        return count_gpus(self.nodes, self._least_memory)

    def as_dict(self, *, has_nodes: bool = True) -> ReportedResources:
        """Return the resources in the form of the API, memory in MiB; on request without the nodes."""
        return {
            "asked_at": self.requested_at,
            "gpus": [_told(one) for one in self.gpus],
            "gres": count_other_gres(self.nodes, self._least_memory),
            "partitions": [self._partition(one) for one in self.partitions],
            "nodes": [_node(one) for one in self.nodes] if has_nodes else [],
            "use": None if self.limits is None else dict(self.limits.use),
            "limits": None if self.limits is None else [_limit(one) for one in self.limits.limits],
        }

    def _partition(self, partition: Partition) -> api.ResourcesPartition:
        nodes, least_memory = self._nodes_by_partition.get(partition.name, []), _default_memory(partition)
        least = {node.name: least_memory for node in nodes}
        return {
            "name": partition.name,
            "is_default": partition.is_default,
            "state": partition.state,
            "time_limit": partition.max_time,
            "default_time": partition.default_time,
            "nodes": dict(Counter(standing(node) for node in nodes)),
            "cpus": sum(node.cpus for node in nodes),
            "cpus_free": sum(node.cpus_idle for node in nodes if _starts_jobs(node, least_memory)),
            "gpus": [_told(one) for one in count_gpus(nodes, least)],
            "gres": count_other_gres(nodes, least),
        }

    @cached_property
    def _least_memory(self) -> dict[str, int | None]:
        """Return by node the memory that a job with one CPU gets by default, in bytes: the least of its partitions.

        None: no partition of the node starts jobs, or each of them is hidden.
        """
        least = {one.name: _default_memory(one) for one in self.partitions}
        of_unknown = None if least else 0  # no partition is known before the first facts
        found = {}
        for node in self.nodes:
            of_node = [least.get(name, of_unknown) for name in node.partitions] or [of_unknown]
            found[node.name] = min((memory for memory in of_node if memory is not None), default=None)
        return found

    @cached_property
    def _nodes_by_partition(self) -> dict[str, list[Node]]:
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in node.partitions:
                found.setdefault(name, []).append(node)
        return found


def standing(node: Node) -> str:
    """Return the state of a node in one of Slurm's words: its base state, or a flag that matters more."""
    kept = sorted(
        (flag for flag in node.flags if flag not in _OPEN_NODE_FLAGS),
        key=lambda flag: (*_TELLING_NODE_FLAGS, flag).index(flag),
    )
    return kept[0] if kept else node.state


def count_gpus(nodes: Iterable[Node], least_memory: Mapping[str, int | None] | None = None) -> list[Gpus]:
    """Return the GPUs of nodes by type, those without a type last.

    A GPU is free if it is not allocated, no part of it is, and a job could start on its node: up, not kept for another
    job, in a partition that is up, with a free CPU and with memory.

    Parameters
    ----------
    nodes : iterable of Node
    least_memory : mapping, optional
        Bytes that a job on a node needs at least, by the node's name. None: its partitions start no jobs.
    """
    total, used, free, most = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    soon = Counter[str]()
    for node in nodes:
        there, memory = gpus_by_type(node), (least_memory or {}).get(node.name, 0)
        for kind, (has, taken) in there.items():
            total[kind] += has
            used[kind] += taken
            free[kind] += (has - taken) * _starts_jobs(node, memory)
            soon[kind] += (has - taken) * _starts_jobs_soon(node, memory)
            most[kind] = max(most[kind], has)
    return [
        Gpus(kind, total[kind], used[kind], free[kind], most[kind], soon[kind])
        for kind in sorted(total, key=lambda kind: (not kind, kind))
    ]


def count_other_gres(nodes: Iterable[Node], least_memory: Mapping[str, int | None]) -> list[api.OtherGres]:
    """Return the generic resources of nodes that are not GPUs (NPUs, TPUs …) by name and type, as :func:`count_gpus`.

    Parameters
    ----------
    nodes : iterable of Node
    least_memory : mapping
        Bytes that a job on a node needs at least, by the node's name. None: its partitions start no jobs.
    """
    found: dict[tuple[str, str], api.OtherGres] = {}
    for node in nodes:
        memory = least_memory.get(node.name, 0)
        is_open, is_open_soon = _starts_jobs(node, memory), _starts_jobs_soon(node, memory)
        for (name, kind), (has, taken) in other_gres(node).items():
            new: api.OtherGres = {"name": name, "type": kind, "total": 0, "used": 0, "free": 0, "most": 0, "soon": 0}
            one = found.setdefault((name, kind), new)
            one["total"] += has
            one["used"] += taken
            one["free"] += (has - taken) * is_open
            one["soon"] = one.get("soon", 0) + (has - taken) * is_open_soon
            one["most"] = max(one["most"], has)
    return [found[key] for key in sorted(found)]


def other_gres(node: Node) -> dict[tuple[str, str], tuple[int, int]]:
    """Return by name and type the numbers of a node's generic resources that are not GPUs, and of the allocated ones.

    Parts of GPUs (shard, mps) are left out: until 23.02, Slurm reports the GPUs of parts in use instead of the parts.
    """
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for one in node.gres:
        if one.name not in GPU_GRES and one.count:
            key = (one.name, one.type or "")
            taken = sum(used.count for used in node.gres_used if (used.name, used.type or "") == key)
            has = found.get(key, (0, 0))[0] + one.count
            found[key] = (has, min(taken, has))
    return found


def _told(gpus: Gpus) -> api.Gpus:
    return {
        "type": gpus.type,
        "total": gpus.total,
        "used": gpus.used,
        "free": gpus.free,
        "most": gpus.max_per_node,
        "soon": gpus.soon,
    }


def _limit(limit: Limit) -> api.ResourcesLimit:
    fields = asdict(limit)
    fields["most"] = fields.pop("maximum")
    return cast("api.ResourcesLimit", fields)


def _starts_jobs(node: Node, least_memory: int | None = 0) -> bool:
    """Return whether a job with one CPU and some memory, in bytes, could start on a node now."""
    if least_memory is None:
        return False
    is_open = node.is_up and _OPEN_NODE_FLAGS.issuperset(node.flags)
    has_memory = not node.memory or node.memory - node.memory_used >= max(least_memory, 1)
    return is_open and node.cpus_idle > 0 and has_memory


def _starts_jobs_soon(node: Node, least_memory: int | None = 0) -> bool:
    """Return whether a job could start on a node when Slurm has cleaned up an ended job there."""
    others = tuple(flag for flag in node.flags if flag != _COMPLETING)
    return len(others) < len(node.flags) and _starts_jobs(replace(node, flags=others), least_memory)


def _default_memory(partition: Partition) -> int | None:
    """Return the memory of a job with one CPU that asks for none, in bytes; 0 if unknown or all of the node.

    None: the partition starts no jobs (DOWN, DRAIN, INACTIVE).
    """
    if partition.state != "UP":
        return None
    for name in ("DefMemPerCPU", "DefMemPerNode"):
        if (default := parse_count(partition.fields.get(name, ""))) is not None:
            return default * _MIB
    return 0


def gpus_by_type(node: Node) -> dict[str, tuple[int, int]]:
    """Return by type the numbers of a node's GPUs and of the allocated ones.

    If a plugin detected the types itself, the use may have types that the node's own line does not name.
    """
    has, taken = _counted(node.gres), _counted(node.gres_used)
    _add_shared(node, has, taken)
    found = {kind: min(taken[kind], number) for kind, number in has.items()}
    left = sum(taken.values()) - sum(found.values())
    for kind, number in has.items():
        more = min(left, number - found[kind])
        found[kind], left = found[kind] + more, left - more
    return {kind: (number, found[kind]) for kind, number in has.items() if number}


def _add_shared(node: Node, has: Counter[str], taken: Counter[str]) -> None:
    """Count GPUs of which a job has a part as allocated: the use of GPUs does not include them.

    If Slurm does not name them, as many as there are parts in use.
    """
    for one in node.gres_used:
        if one.name in GPU_GRES and one.name != "gpu" and one.count:
            kind = one.type if one.type and one.type in has else next(iter(has), "")
            # A node gives out parts of one GPU by MPS at a time.
            number = len(one.indices) or one.devices_in_use or (1 if one.name == "mps" else one.count)
            taken[kind] = min(has[kind], taken[kind] + number)


def _counted(gres: Sequence[Gres]) -> Counter[str]:
    found = Counter[str]()
    for one in gres:
        if one.name == "gpu":
            found[one.type or ""] += one.count
    return found


def _node(node: Node) -> api.ResourcesNode:
    return {
        "name": node.name,
        "state": node.state,
        "flags": list(node.flags),
        "is_up": node.is_up,
        "partitions": list(node.partitions),
        "cpus": node.cpus,
        "cpus_used": node.cpus_used,
        "memory": node.memory // _MIB,
        "memory_used": node.memory_used // _MIB,
        "load": node.load,
        "gpus": [
            {"type": kind, "total": has, "used": used} for kind, (has, used) in sorted(gpus_by_type(node).items())
        ],
        "gres": [
            {"name": name, "type": kind, "total": has, "used": used}
            for (name, kind), (has, used) in sorted(other_gres(node).items())
        ],
        "features": list(node.features),
        "reason": node.reason.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
    }
