"""Facts about a cluster that seldom change, and the names that a user may type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from typing import Final, NamedTuple

from jupyter_slurm.domain.queries.associations import Association, Qos, Reservation
from jupyter_slurm.domain.queries.cluster import Node, Partition
from jupyter_slurm.domain.slurm_values import duration_words, format_memory, format_time_limit

__all__ = ["NAMED_KINDS", "Facts", "NamedEntity", "NodeShape", "nearest", "some"]

NAMED_KINDS: Final = (
    *("partition", "account", "qos", "feature", "node", "gres", "gpu", "gpu-of-node", "memory", "time-limit"),
    *("reservation", "cluster"),
)
"""The kinds of names that :meth:`Facts.named` returns."""
_PARTITION_KINDS: Final = ("gres", "gpu", "gpu-of-node", "memory", "time-limit")
_USUAL_TIMES: Final = (600, 3600, 14400, 43200, 86400)  # seconds
_MIB: Final = 1 << 20

_MAX_LISTED_NAMES = 6
_MAX_GPU_COUNTS = 16  # of GPUs, offered one by one


class NodeShape(NamedTuple):
    """A kind of equal nodes: one example, and their number."""

    node: Node
    number: int


class NamedEntity(NamedTuple):
    """A name that may be typed in a line, with a description of a few words."""

    name: str
    about: str


@dataclass(frozen=True)
class Facts:
    """Facts that Slurm reported about a cluster.

    Parameters
    ----------
    collected_at : float
        Time of the answers, in seconds since the epoch.
    partitions, nodes, reservations
        All of the cluster. No nodes: the site hides them.
    config : mapping
        ``scontrol show config``.
    associations, qos : tuple, optional
        Associations of this user, and all QOS; ``None``: no accounting, or no answer from it.
    clusters : tuple of str
        Clusters that share one accounting database.
    groups : frozenset of str
        The user's groups on the submit host; empty: not requested.
    host : str
        Slurm's name of the submit host; empty: not requested.
    accounts : mapping, optional
        Parent of each account, in lower case; ``None``: not requested, or unknown.
    """

    collected_at: float
    partitions: tuple[Partition, ...] = ()
    nodes: tuple[Node, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    config: Mapping[str, str] = field(default_factory=dict)
    associations: tuple[Association, ...] | None = None
    qos: tuple[Qos, ...] | None = None
    clusters: tuple[str, ...] = ()
    groups: frozenset[str] = frozenset()
    host: str = ""
    accounts: Mapping[str, str] | None = None

    def setting_words(self, setting: str) -> frozenset[str]:
        """Return the words of a list setting (``AccountingStorageEnforce``), in lower case."""
        return frozenset(word.strip() for word in self.config.get(setting, "").lower().split(",") if word.strip())

    def lineage(self, account: str) -> list[str] | None:
        """Return an account and its ancestors, in lower case; ``None`` if not all of them are known."""
        found = [account.lower()]
        while above := (self.accounts or {}).get(found[-1]):
            if above in found:
                return None
            found.append(above)
        return found if found[-1] in (self.accounts or {}) else None

    @cached_property
    def default_partition(self) -> Partition | None:
        """Return the default partition."""
        return next((partition for partition in self.partitions if partition.is_default), None)

    @cached_property
    def shapes(self) -> list[NodeShape]:
        """Return the kinds of nodes. A cluster of ten thousand nodes has only a few kinds."""
        found: dict[object, NodeShape] = {}
        for node in self.nodes:
            key = (node.cpus, node.memory, node.gres, node.features, node.available, node.partitions)
            found[key] = NodeShape(node, found[key].number + 1 if key in found else 1)
        return list(found.values())

    @cached_property
    def shapes_in(self) -> dict[str, list[NodeShape]]:
        """Return the kinds of nodes of each partition."""
        found: dict[str, list[NodeShape]] = {partition.name: [] for partition in self.partitions}
        for shape in self.shapes:
            for name in shape.node.partitions:
                found.setdefault(name, []).append(shape)
        return found

    @cached_property
    def node_names(self) -> frozenset[str]:
        """Return the names of all nodes."""
        return frozenset(node.name for node in self.nodes)

    @cached_property
    def features(self) -> Counter[str]:
        """Return the number of nodes that have, or can have, each feature."""
        found = Counter[str]()
        for node, count in self.shapes:
            found.update(dict.fromkeys({*node.available, *node.features}, count))
        return found

    @cached_property
    def _names_by_kind(self) -> dict[tuple[str, ...], list[NamedEntity]]:
        return {}

    def named(self, kind: str, partitions: Iterable[str] = ()) -> list[NamedEntity]:
        """Return the names of a kind of :data:`NAMED_KINDS`, with their descriptions.

        If partitions are given and known, only their generic resources, GPUs, memory and time limits are returned.
        """
        known = sorted(self.shapes_in.keys() & {*partitions}) if kind in _PARTITION_KINDS else []
        if (kind, *known) not in self._names_by_kind:
            given = [known] if kind in _PARTITION_KINDS else []
            self._names_by_kind[kind, *known] = list(getattr(self, f"_named_{kind.replace('-', '_')}")(*given))
        return self._names_by_kind[kind, *known]

    def _places(self, partitions: Sequence[str]) -> list[list[NodeShape]]:
        """Return the kinds of nodes of each of these partitions; of all partitions if none is named."""
        return [self.shapes_in[name] for name in partitions] or [self.shapes]

    def _named_partition(self) -> Iterator[NamedEntity]:
        for one in (one for one in self.partitions if not one.is_hidden):
            said = ["default" if one.is_default else "", "" if one.state == "UP" else one.state]
            said += [_format_count(one.node_count, "node"), *_gpus(self.shapes_in[one.name])]
            said.append("no time limit" if one.max_time is None else f"at most {format_time_limit(one.max_time)}")
            yield NamedEntity(one.name, _joined(said))

    def _named_account(self) -> Iterator[NamedEntity]:
        seen: dict[str, str] = {}
        for one in self.associations or ():
            said = ["default" if one.is_default else "", f"QOS {', '.join(one.qos)}" if one.qos else ""]
            seen.setdefault(one.account, _joined(said))
        yield from (NamedEntity(*item) for item in seen.items())

    def _named_qos(self) -> Iterator[NamedEntity]:
        mine = {name for one in self.associations or () for name in one.qos}
        for one in self.qos or ():
            if not mine or one.name in mine:
                limit = "" if one.max_wall is None else f"at most {format_time_limit(one.max_wall)}"
                yield NamedEntity(one.name, limit)

    def _named_feature(self) -> Iterator[NamedEntity]:
        yield from (NamedEntity(name, _format_count(count, "node")) for name, count in sorted(self.features.items()))

    def _named_node(self) -> Iterator[NamedEntity]:
        for node in self.nodes:
            state = "+".join((node.state, *node.flags)).lower()
            yield NamedEntity(
                node.name,
                _joined([state, f"{node.cpus} CPUs", format_memory(node.memory), *_gpus([NodeShape(node, 1)])]),
            )

    def _named_gres(self, partitions: Sequence[str]) -> Iterator[NamedEntity]:
        for (name, kind), (most, nodes) in sorted(_resources(_together(self._places(partitions))).items()):
            yield from _counted(f"{name}:{kind}" if kind else name, most, nodes)

    def _named_gpu(self, partitions: Sequence[str]) -> Iterator[NamedEntity]:
        totals, places = Counter[str](), self._places(partitions)
        for shapes in places:  # the job runs in one of them
            here = Counter[str]()
            for node, count in shapes:
                here.update({gres.type: gres.count * count for gres in node.gres if gres.name == "gpu" and gres.type})
            totals |= here
        for kind, total in sorted(totals.items()):
            _, nodes = _resources(_together(places))["gpu", kind]
            yield from _counted(kind, total, nodes)

    def _named_gpu_of_node(self, partitions: Sequence[str]) -> Iterator[NamedEntity]:
        for (name, kind), (most, nodes) in sorted(_resources(_together(self._places(partitions))).items()):
            if name == "gpu":
                yield from _counted(kind, most, nodes)

    def _named_memory(self, partitions: Sequence[str]) -> Iterator[NamedEntity]:
        nodes = Counter[int]()
        for node, number in _together(self._places(partitions)):
            nodes[node.memory // _MIB] += number
        for size, number in sorted(nodes.items()):
            yield NamedEntity(format_memory(size * _MIB), f"all of {_format_count(number, 'node')}")
        yield NamedEntity("0", "all that its nodes have")

    def _named_time_limit(self, partitions: Sequence[str]) -> Iterator[NamedEntity]:
        default = [self.default_partition] if self.default_partition else self.partitions
        chosen = [one for one in self.partitions if one.name in partitions] or default
        limits = [one.max_time for one in chosen if one.max_time is not None]
        most = max(limits) if len(limits) == len(chosen) > 0 else None
        usual = [seconds for seconds in _USUAL_TIMES if most is None or seconds < most]
        found = {seconds: [duration_words(seconds)] for seconds in usual}
        for one in chosen:
            for seconds, about in ((one.default_time, "default of"), (one.max_time, "the most in")):
                if seconds is not None:
                    found.setdefault(seconds, []).append(f"{about} {one.name}")
        for seconds, said in sorted(found.items()):
            text = format_time_limit(seconds)
            yield NamedEntity(text if text.count(":") == 2 else f"0:{text}", _joined(said))  # to be typed: with hours

    def _named_reservation(self) -> Iterator[NamedEntity]:
        yield from (
            NamedEntity(one.name, _joined([one.state.lower(), one.partition, one.nodes])) for one in self.reservations
        )

    def _named_cluster(self) -> Iterator[NamedEntity]:
        yield from (
            NamedEntity(name, "this one" if name == self.config.get("ClusterName") else "") for name in self.clusters
        )


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the probably intended name as a sentence, else the possible names."""
    names = list(known)
    if near := get_close_matches(name, names, n=1):
        return f" Did you mean {near[0]}?"
    return f" Valid names: {some(names)}." if names else ""


def some(names: Collection[str]) -> str:
    """Return some of the names, up to a limit."""
    shown = list(names)[:_MAX_LISTED_NAMES]
    return ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")


def _together(places: Iterable[Iterable[NodeShape]]) -> list[NodeShape]:
    """Return the kinds of nodes of several partitions, each once."""
    return list({id(shape): shape for shapes in places for shape in shapes}.values())


def _resources(shapes: Iterable[NodeShape]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return for each generic resource and type the most that a node has, and the number of nodes that have it."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for node, number in shapes:
        for gres in node.gres:
            most, count = found.get((gres.name, gres.type or ""), (0, 0))
            found[gres.name, gres.type or ""] = max(most, gres.count), count + number
    return found


def _counted(name: str, limit: int, nodes: int) -> Iterator[NamedEntity]:
    where = _format_count(nodes, "node")
    if name:
        yield NamedEntity(name, f"{where}, up to {limit}")
    counts = range(1, min(limit, _MAX_GPU_COUNTS) + 1)
    yield from (NamedEntity(f"{name}:{count}" if name else str(count), where) for count in counts)


def _gpus(shapes: Iterable[NodeShape]) -> list[str]:
    most = {key: found[0] for key, found in _resources(shapes).items() if key[0] == "gpu"}
    return [
        f"{count} {kind or 'GPU'}{'' if kind or count == 1 else 's'} a node"
        for (_, kind), count in sorted(most.items())
    ]


def _format_count(count: int | None, noun: str) -> str:
    return "" if count is None else f"{count} {noun}{'' if count == 1 else 's'}"


def _joined(words: Iterable[str]) -> str:
    return ", ".join(filter(None, words))
