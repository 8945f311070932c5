"""Numbers of a job that waits: what it requests, what is free of it, and the job that is expected to end next.

A shortage is named only if the numbers show it. GPUs that are free on a node without free memory count as a shortage of
memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from jupyter_slurm.domain.free_resources import gpus_by_type, other_gres
from jupyter_slurm.domain.queries.all_jobs import RunningJob
from jupyter_slurm.domain.queries.associations import Reservation
from jupyter_slurm.domain.queries.cluster import Node, count_hosts, expand_hosts
from jupyter_slurm.domain.queries.job_detail import WaitingRequest
from jupyter_slurm.domain.slurm_values import counted, format_memory
from jupyter_slurm.errors import ParseError

__all__ = ["Shortage", "completing_words", "next_to_end", "reserved_nodes", "shortages"]

_MAX_NAMED_NODES: Final = 4
_MAX_EXPANDED_NODES: Final = 200_000  # names, of all jobs: an answer of a few bytes may name millions

# Flags under which a node that is up starts no ordinary job now. A node that is planned for a job counts as free, since
# it may be planned for this one.
_CLOSED_FLAGS: Final = frozenset(
    {*("RESERVED", "MAINT", "MAINTENANCE", "BLOCKED", "POWERING_UP", "POWER_UP", "REBOOT"), "REBOOT_ISSUED"}
)
# Flags of the nodes of a reservation, which the jobs in it may use.
_RESERVATION_FLAGS: Final = frozenset({"RESERVED", "MAINT", "MAINTENANCE"})


@dataclass(frozen=True)
class Shortage:
    """A resource of which less is free than a job requests.

    Attributes
    ----------
    kind : str
        ``gpu``, ``gres``, ``cpu``, ``memory`` or ``node``.
    text : str
        A sentence with the numbers.
    type : str
        Type of the GPUs.
    """

    kind: str
    text: str
    type: str = ""


@dataclass(frozen=True)
class _Free:
    """Free resources of one node; memory is ``math.inf`` if the node configures none."""

    gpus: Mapping[str, int]
    cpus: int
    memory: float
    is_idle: bool
    is_open: bool


def reserved_nodes(request: WaitingRequest, nodes: Iterable[Node], reservations: Iterable[Reservation]) -> list[Node]:
    """Return the nodes of the reservation of a job, without the flags that keep other jobs away.

    Parameters
    ----------
    request : WaitingRequest
        A job with a reservation, or with several of which one suffices.
    nodes : iterable of Node
        Nodes of the cluster.
    reservations : iterable of Reservation
        Known reservations.

    Returns
    -------
    list of Node
        Empty if the nodes are not known: a reservation is unknown, or its jobs may use other nodes (FLEX).
    """
    known, names = {one.name: one for one in reservations}, set[str]()
    for name in request.reservation.split(","):
        if (one := known.get(name)) is None or "FLEX" in one.flags:
            return []
        if not one.nodes:  # of licences, for example
            return list(nodes)
        try:
            names.update(expand_hosts(one.nodes))
        except ParseError:
            return []
    return [
        replace(node, flags=tuple(flag for flag in node.flags if flag not in _RESERVATION_FLAGS))
        for node in nodes
        if node.name in names
    ]


def shortages(request: WaitingRequest, nodes: Iterable[Node]) -> list[Shortage]:
    """Return what is short for a job; nothing if its resources seem to be free.

    Parameters
    ----------
    request : WaitingRequest
        The job.
    nodes : iterable of Node
        Nodes of the cluster, with their use.
    """
    candidates = request.candidates(nodes)
    if not candidates:
        return []
    free = [_free(node) for node in candidates]
    found = [
        *_gpus(request, candidates, free),
        *_other_gres(request, candidates, free),
        *_cpus(request, candidates, free),
        *_memory(request, free),
        *_nodes(request, free),
    ]
    return found or _together(request, free)


def completing_words(request: WaitingRequest, nodes: Iterable[Node]) -> str:
    """Return the nodes that could run a job once Slurm has cleaned up an ended job there; empty if there are none."""
    names = sorted(node.name for node in request.candidates(nodes) if "COMPLETING" in node.flags and node.is_up)
    if not names:
        return ""
    shown = ", ".join(names[:_MAX_NAMED_NODES]) + " …" * (len(names) > _MAX_NAMED_NODES)
    return f"Waits until Slurm has cleaned up an ended job on {shown} (COMPLETING), usually for seconds."


def next_to_end(
    request: WaitingRequest,
    nodes: Iterable[Node],
    short: Sequence[Shortage],
    running: Iterable[RunningJob],
    now: float,
) -> RunningJob | None:
    """Return the running job that ends first and has what a job waits for.

    Parameters
    ----------
    request : WaitingRequest
        The waiting job.
    nodes : iterable of Node
        Nodes of the cluster.
    short : sequence of Shortage
        What is short for the job.
    running : iterable of RunningJob
        All running jobs that are visible.
    now : float
        Seconds since the epoch.
    """
    names = {node.name for node in request.candidates(nodes)}
    types = {one.type for one in short if one.kind == "gpu"}
    is_gpu = bool(types) and all(one.kind == "gpu" for one in short)

    def helps(job: RunningJob) -> bool:
        gpus = [kind for kind, count in job.gpus.items() if count]
        return not is_gpu or any("" in types or kind in types or not kind for kind in gpus)

    later = sorted((job for job in running if job.end_time > now), key=lambda job: (job.end_time, job.id))
    expanded = 0
    for job in filter(helps, later):
        try:
            expanded += count_hosts(job.nodes)
            if expanded > _MAX_EXPANDED_NODES:
                return None
            if names.intersection(expand_hosts(job.nodes)):
                return job
        except ParseError:
            continue
    return None


def _free(node: Node) -> _Free:
    is_open = node.is_up and not _CLOSED_FLAGS.intersection(node.flags)
    memory = max(0, node.memory - node.memory_used) if node.memory > 1 << 20 else math.inf
    gpus = {kind: (has - used) * is_open for kind, (has, used) in gpus_by_type(node).items()}
    idle = max(0, node.cpus - node.cpus_used) * is_open
    return _Free(gpus, idle, memory * is_open if is_open else 0, is_open and node.cpus_used == 0, is_open)


def _count(gpus: Mapping[str, int], kind: str) -> int:
    """Return the number of GPUs of a type; one without a type may be of any."""
    return sum(gpus.values()) if not kind else gpus.get(kind, 0) + gpus.get("", 0)


def _gpus(request: WaitingRequest, nodes: Sequence[Node], free: Sequence[_Free]) -> list[Shortage]:
    found = []
    for kind, asked in request.gpus.items():
        total = sum(_count({name: has for name, (has, _) in gpus_by_type(node).items()}, kind) for node in nodes)
        there = [_count(one.gpus, kind) for one in free]
        noun = f"{kind} GPUs" if kind else "GPUs"
        if asked > sum(there):
            text = f"Waits for {counted(asked, noun)}; {_of(sum(there), total)} free."
            found.append(Shortage("gpu", text, kind))
        elif (each := request.gpus_per_node) and sum(number >= each for number in there) < request.nodes:
            where = "on one node" if request.nodes == 1 else f"on each of {request.nodes} nodes"
            text = f"Waits for {counted(each, noun)} {where}; at most {_of(max(there), None)} free on a node."
            found.append(Shortage("gpu", text, kind))
    return found


def _other_gres(request: WaitingRequest, nodes: Sequence[Node], free: Sequence[_Free]) -> list[Shortage]:
    """Return the generic resources other than GPUs that are short: each node of the job needs the number."""
    found = []
    for (name, kind), asked in request.other_gres.items():
        there = []
        for node, one in zip(nodes, free, strict=True):
            of_node = [numbers for key, numbers in other_gres(node).items() if key == (name, kind or key[1])]
            there.append(sum(has - used for has, used in of_node) * one.is_open)
        if sum(number >= asked for number in there) < request.nodes:
            noun = f"{asked} {name}{f' {kind}' if kind else ''}"
            where = "on a node" if request.nodes == 1 else f"on each of {request.nodes} nodes"
            found.append(Shortage("gres", f"Waits for {noun} {where}; at most {_of(max(there), None)} free on a node."))
    return found


def _cpus(request: WaitingRequest, nodes: Sequence[Node], free: Sequence[_Free]) -> list[Shortage]:
    total, there = sum(node.cpus for node in nodes), [one.cpus for one in free]
    if request.cpus > sum(there):
        return [Shortage("cpu", f"Waits for {counted(request.cpus, 'CPUs')}; {_of(sum(there), total)} free.")]
    if request.tasks == 1 and request.nodes == 1 and request.cpus > max(there):
        text = f"Waits for {counted(request.cpus, 'CPUs')} on one node; at most {_of(max(there), None)} free on a node."
        return [Shortage("cpu", text)]
    return []


def _memory(request: WaitingRequest, free: Sequence[_Free]) -> list[Shortage]:
    each = request.memory // max(1, request.nodes)
    most = max(one.memory for one in free)
    if each > most:
        text = f"Waits for {format_memory(each)} of memory on a node; at most {_size(most)} is free on one."
        return [Shortage("memory", text)]
    return []


def _nodes(request: WaitingRequest, free: Sequence[_Free]) -> list[Shortage]:
    """Return a shortage of whole nodes: for a job that shares them with no other, or one of several nodes."""
    usable = sum(one.is_idle if request.is_exclusive else one.cpus > 0 for one in free)
    if usable >= request.nodes or not (request.is_exclusive or request.nodes > 1):
        return []
    noun = "whole nodes" if request.is_exclusive else "nodes"
    return [Shortage("node", f"Waits for {counted(request.nodes, noun)}; {_of(usable, len(free))} free.")]


def _together(request: WaitingRequest, free: Sequence[_Free]) -> list[Shortage]:
    """Return the resource that is free only on nodes without the others."""
    if request.tasks > 1 and request.nodes == 1:
        return []  # the tasks may be divided in many ways
    cpus, memory = math.ceil(request.cpus / request.nodes), request.memory // request.nodes
    gpus = {kind: request.gpus_per_node or math.ceil(asked / request.nodes) for kind, asked in request.gpus.items()}

    def fitting(without: str = "") -> list[_Free]:
        return [
            one
            for one in free
            if (without == "cpu" or one.cpus >= cpus)
            and (without == "memory" or one.memory >= memory)
            and (without == "gpu" or all(_count(one.gpus, kind) >= number for kind, number in gpus.items()))
        ]

    if len(fitting()) >= request.nodes:
        return []
    if memory and len(others := fitting("memory")) >= request.nodes:
        most = max(one.memory for one in others)
        having = "GPUs and CPUs" if gpus else "CPUs"
        text = (
            f"Waits for {format_memory(memory)} of memory; at most {_size(most)} is free on a node with free {having}."
        )
        return [Shortage("memory", text)]
    if len(others := fitting("cpu")) >= request.nodes:
        having = "GPUs and memory" if gpus else "memory"
        most = max(one.cpus for one in others)
        text = f"Waits for {counted(cpus, 'CPUs')}; at most {_of(most, None)} free on a node with free {having}."
        return [Shortage("cpu", text)]
    if gpus and len(fitting("gpu")) >= request.nodes:
        kind, number = max(gpus.items(), key=lambda item: item[1])
        noun = f"{kind} GPUs" if kind else "GPUs"
        return [Shortage("gpu", f"Waits for {counted(number, noun)} on a node with enough free CPUs and memory.", kind)]
    return []


def _of(number: int, total: int | None) -> str:
    verb = "is" if number == 1 else "are"
    return f"{number} {verb}" if total is None else f"{number} of {total} {verb}"


def _size(size: float) -> str:
    return format_memory(int(size)) if math.isfinite(size) else "all"
