"""Resources of a cluster: nodes, partitions, configuration.

Sources: sinfo(1), scontrol(1) ``show partition`` and ``show config``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from jupyter_slurm.domain.queries.output_frames import decode, framed_records, long_format
from jupyter_slurm.domain.slurm_values import (
    Gres,
    parse_count,
    parse_epoch,
    parse_gres,
    parse_tres,
    present,
    read_time_limit,
)
from jupyter_slurm.errors import ParseError

__all__ = [
    "GPU_GRES",
    "MAX_HOSTS",
    "Node",
    "Partition",
    "config_argv",
    "count_hosts",
    "expand_hosts",
    "nodes_argv",
    "parse_config",
    "parse_nodes",
    "parse_partitions",
    "parse_version",
    "partitions_argv",
]

#: Slurm cannot have more nodes in a cluster (MAX_SLURM_NODES). A longer list is refused before it is expanded.
MAX_HOSTS: Final = 65_536

#: Generic resources that are GPUs or parts of them.
GPU_GRES: Final = ("gpu", "shard", "mps")

_MIB: Final = 1 << 20
_NODE_FIELDS: Final = (
    "nodelist",
    "nodehost",
    "nodeaddr",
    "partitionname",
    "statecomplete",
    "cpusstate",
    "memory",
    "allocmem",
    "gres",
    "gresused",
    "features_act",
    "features",
    "version",
    "timestamp",
    "reason",
)
_LOAD: Final = ("cpusload",)


@dataclass(frozen=True)
class Node:
    """A node of a cluster.

    Parameters
    ----------
    state : str
        Base state in upper case: ``IDLE``, ``MIXED``, ``ALLOCATED``, ``DOWN`` …
    flags : tuple of str
        ``DRAIN``, ``NOT_RESPONDING``, ``PLANNED``, ``POWERED_DOWN`` …
    cpus, cpus_used, cpus_idle : int
        A drained node has no idle CPU.
    memory, memory_used : int
        Bytes; used means allocated to jobs.
    gres, gres_used : tuple of Gres
    features : tuple of str
        Active features.
    available : tuple of str
        All possible features, active or not.
    partitions : tuple of str
    reason : str
        Why the node is down or drained, in an administrator's words.
    reason_time : int, optional
        Seconds since the epoch.
    load : float, optional
        Processes that run or wait for a CPU, averaged over a minute; ``None`` if not requested or unknown.
    """

    name: str
    hostname: str = ""
    address: str = ""
    state: str = "UNKNOWN"
    flags: tuple[str, ...] = ()
    cpus: int = 0
    cpus_used: int = 0
    cpus_idle: int = 0
    memory: int = 0
    memory_used: int = 0
    gres: tuple[Gres, ...] = ()
    gres_used: tuple[Gres, ...] = ()
    features: tuple[str, ...] = ()
    available: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    version: str = ""
    reason: str = ""
    reason_time: int | None = None
    load: float | None = None

    @property
    def is_up(self) -> bool:
        """Return whether jobs can start on the node."""
        bad = {"DRAIN", "NOT_RESPONDING", "FAIL", "MAINT", "MAINTENANCE", "INVALID_REG"}
        bad |= {"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POWER_DRAIN"}
        return self.state in ("IDLE", "MIXED", "ALLOCATED") and not bad.intersection(self.flags)


@dataclass(frozen=True)
class Partition:
    """A partition of a cluster.

    Parameters
    ----------
    max_time, default_time : int, optional
        Seconds; ``None`` is no limit. A default of ``None`` equals the limit.
    nodes : str
        Folded node list.
    tres : dict
        Total resources of its nodes; memory in bytes.
    allow_accounts, allow_qos : tuple of str, optional
        ``None``: all.
    fields : dict
        All fields of Slurm's answer, by Slurm's names.
    """

    name: str
    state: str = "UP"
    is_default: bool = False
    is_hidden: bool = False
    max_time: int | None = None
    default_time: int | None = None
    nodes: str = ""
    node_count: int | None = None
    cpus: int | None = None
    tres: dict[str, int] = field(default_factory=dict)
    allow_accounts: tuple[str, ...] | None = None
    allow_qos: tuple[str, ...] | None = None
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def qos(self) -> str:
        """Return the QOS whose limits all its jobs have, in lower case; empty if none."""
        return present(self.fields.get("QoS", "")).lower()


def nodes_argv(mark: str, *, has_load: bool = False) -> list[str]:
    """Return the query for all nodes (one REQUEST_NODE_INFO and one REQUEST_PARTITION_INFO).

    The load is requested only when the nodes are shown, since it changes often.
    """
    form = long_format(_NODE_FIELDS + _LOAD * has_load, mark)
    return ["sinfo", "--local", "--all", "--Node", "--noheader", "--noconvert", f"--Format={form}"]


def parse_nodes(output: bytes, mark: str, *, has_load: bool = False) -> list[Node]:
    """Parse the answer to :func:`nodes_argv`: one record for each node, even if it is in several partitions.

    Raises
    ------
    ParseError
        The answer is incomplete.
    """
    nodes: dict[str, Node] = {}
    fields = _NODE_FIELDS + _LOAD * has_load
    for row in framed_records(output, mark, len(fields)):
        node = _node(dict(zip(fields, row, strict=True)))
        known = nodes.get(node.name)
        if known is not None:
            node = replace(known, partitions=tuple(dict.fromkeys((*known.partitions, *node.partitions))))
        nodes[node.name] = node
    return list(nodes.values())


def _node(row: dict[str, str]) -> Node:
    state, *flags = row["statecomplete"].upper().split("+")
    used, idle, _, total = ([parse_count(part) or 0 for part in row["cpusstate"].split("/")] + [0] * 4)[:4]
    features = present(row["features_act"]) or present(row["features"])
    reason = present(row["reason"])
    return Node(
        name=row["nodelist"],
        hostname=present(row["nodehost"]),
        address=present(row["nodeaddr"]),
        state=state,
        flags=tuple(flags),
        cpus=total,
        cpus_used=used,
        cpus_idle=idle,
        memory=(parse_count(row["memory"]) or 0) * _MIB,
        memory_used=(parse_count(row["allocmem"]) or 0) * _MIB,
        gres=tuple(parse_gres(row["gres"])),
        gres_used=tuple(parse_gres(row["gresused"])),
        features=tuple(_split_fields(features)),
        available=tuple(_split_fields(present(row["features"]))),
        partitions=tuple(_split_fields(present(row["partitionname"]))),
        version=present(row["version"]),
        reason="" if reason == "none" else reason,
        reason_time=parse_epoch(row["timestamp"]),
        load=_load(row.get("cpusload", "")),
    )


def _load(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", text, re.ASCII) else None


def partitions_argv() -> list[str]:
    """Return the query for all partitions (one REQUEST_PARTITION_INFO). No field of the answer holds free text."""
    return ["scontrol", "--local", "--all", "--oneliner", "show", "partition"]


def parse_partitions(output: bytes) -> list[Partition]:
    """Parse the answer to :func:`partitions_argv`. Lines that name no partition are left out."""
    partitions = []
    for line in decode(output).split("\n"):
        row: dict[str, str] = {}
        for word in line.split():
            name, equals, value = word.partition("=")
            if equals:
                row[name] = value
            elif row:  # a group name may contain a blank
                row[[*row][-1]] += f" {word}"
        if row.get("PartitionName"):
            partitions.append(_partition(row))
    return partitions


def _partition(row: dict[str, str]) -> Partition:
    return Partition(
        name=row["PartitionName"],
        state=row.get("State", "UP"),
        is_default=row.get("Default") == "YES",
        is_hidden=row.get("Hidden") == "YES",
        max_time=read_time_limit(row.get("MaxTime", "")),
        default_time=read_time_limit(row.get("DefaultTime", "")),
        nodes=present(row.get("Nodes", "")),
        node_count=parse_count(row.get("TotalNodes", "")),
        cpus=parse_count(row.get("TotalCPUs", "")),
        tres=parse_tres(present(row.get("TRES", ""))),
        allow_accounts=_allowed(row.get("AllowAccounts", "ALL")),
        allow_qos=_allowed(row.get("AllowQos", "ALL")),
        fields=row,
    )


def _allowed(text: str) -> tuple[str, ...] | None:
    return None if text in ("ALL", "", "(null)") else tuple(_split_fields(text))


def _split_fields(text: str) -> Iterable[str]:
    return (word for word in text.split(",") if word)


def config_argv() -> list[str]:
    """Return ``scontrol show config`` (one REQUEST_BUILD_INFO; the command also pings the controller)."""
    return ["scontrol", "--local", "show", "config"]


_SETTING = re.compile(r"([A-Za-z][\w/\[\]]*)\s+= ?(.*)", re.ASCII)


def parse_config(output: bytes) -> dict[str, str]:
    """Parse the answer to :func:`config_argv`: names to values in Slurm's form, ``(null)`` as an empty string.

    If a name occurs twice (plugins print their own sections below), the first value counts.
    """
    settings: dict[str, str] = {}
    for line in decode(output).split("\n"):
        match = _SETTING.fullmatch(line.rstrip())
        if match:
            settings.setdefault(match[1], present(match[2]))
    return settings


def parse_version(text: str) -> tuple[int, int]:
    """Parse the version that a command prints with ``--version``: ``slurm-wlm 22.05.8`` gives ``(22, 5)``.

    Raises
    ------
    ParseError
        The text has no version.
    """
    match = re.search(r"\b(\d{2})\.(\d{2})(?:\.\d+)?", text, re.ASCII)
    if match is None:
        raise ParseError(f"{text[:80]!r} is not a version of Slurm.")
    return int(match[1]), int(match[2])


_HOST_RANGE = re.compile(r"\[([^\[\]]*)\]")
_NUMBERS = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?:/(\d{1,9}))?)?", re.ASCII)


def count_hosts(nodes: str) -> int:
    """Return an upper bound of the number of hosts in a folded list, without expanding it.

    Raises
    ------
    ParseError
        The text is not a list of hosts.
    """
    total = 0
    for group in _host_groups(nodes):
        product = 1
        for inside in _HOST_RANGE.findall(group):
            product *= sum(_range_size(piece, nodes) for piece in inside.split(","))
        total += product
    return total


def expand_hosts(nodes: str, limit: int = MAX_HOSTS) -> list[str]:
    """Expand ``dgx[01-02],login`` to its hosts.

    Raises
    ------
    ParseError
        The text is not a list of hosts, or it names more than `most` hosts. Then nothing was expanded.
    """
    if not nodes:
        return []
    if count_hosts(nodes) > limit:
        raise ParseError(f"The list of nodes {nodes[:80]!r} names more than {limit} nodes.")
    # Imported late: the import takes longer than the rest of this layer together.
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    try:
        # With a resolver, "@name" would read ClusterShell's own files of node groups.
        return list(NodeSet(nodes, resolver=RESOLVER_NOGROUP))
    except NodeSetException as error:
        raise ParseError(f"{nodes[:80]!r} is not a list of nodes.") from error


def _host_groups(nodes: str) -> Iterable[str]:
    if not re.fullmatch(r"[\w.\[\],/-]{1,65536}", nodes, re.ASCII):
        raise ParseError(f"{nodes[:80]!r} is not a list of nodes.")
    return re.findall(r"(?:[^,\[\]]|\[[^\[\]]*\])+", nodes)


def _range_size(piece: str, nodes: str) -> int:
    match = _NUMBERS.fullmatch(piece)
    if match is None:
        raise ParseError(f"{nodes[:80]!r} is not a list of nodes.")
    first = int(match[1])
    return max(1, int(match[2] or first) - first + 1)
