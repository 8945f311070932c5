"""Limits that a waiting job meets, in numbers: of QOS and accounts, partitions, features, licences and reservations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from jupyter_slurm.domain.advice.reasons import resource_in_use
from jupyter_slurm.domain.cluster_facts import Facts
from jupyter_slurm.domain.queries.cluster import Node, Partition
from jupyter_slurm.domain.queries.job_detail import WaitingRequest
from jupyter_slurm.domain.queries.limits import Limit
from jupyter_slurm.domain.slurm_values import counted, format_memory, format_time_limit, parse_count

__all__ = [
    "availability_words",
    "licence_words",
    "limit_words",
    "parse_licences",
    "partition_words",
    "reservation_words",
]

_LIMITED: Final = {"cpu": "CPUs", "node": "nodes", "gres/gpu": "GPUs"}
_UNLIMITED: Final = ("", "UNLIMITED", "0")


def limit_words(
    reason: str, request: WaitingRequest, limits: Iterable[Limit], partitions: Iterable[Partition] = ()
) -> str:
    """Return a limit that a job would exceed, in numbers; empty if the known limits do not show it.

    Parameters
    ----------
    reason : str
        Slurm's reason: ``QOSMaxGRESPerUser``, ``AssocGrpCpuLimit`` …
    request : WaitingRequest
        The waiting job.
    limits : iterable of Limit
        Limits of the user, with their use.
    partitions : iterable of Partition
        Known partitions: those of the job may have a QOS of their own.
    """
    of_partitions = {one.qos for one in partitions if one.name in request.partitions and one.qos}
    asked: dict[str, int] = {
        "cpu": request.cpus,
        "node": request.nodes,
        "mem": request.memory,
        "gres/gpu": sum(request.gpus.values()),
        **{f"gres/gpu:{kind}": count for kind, count in request.gpus.items() if kind},
    }
    for limit in sorted(limits, key=lambda one: one.name not in of_partitions):  # they override those of the job's QOS
        is_qos = limit.scope.startswith("qos")
        if not _is_meant(reason, limit) or (is_qos and request.qos and limit.name not in {request.qos, *of_partitions}):
            continue
        if not is_qos and request.account and limit.name != request.account:
            continue
        if limit.partition and limit.partition not in request.partitions:
            continue
        amount = 1 if limit.kind in ("jobs", "submitted") else asked.get(limit.resource, 0)
        if amount and (limit.used or 0) + amount > limit.maximum:
            return _limit_sentence(limit, amount)
    return ""


def _is_meant(reason: str, limit: Limit) -> bool:
    """Return whether a reason may be about a limit."""
    if reason.startswith("Assoc" if limit.scope.startswith("qos") else "QOS"):
        return False
    if "Job" in reason.replace("PerJob", "") and "Submit" not in reason:
        return limit.kind == "jobs"
    words, resource = {"cpu": "cpu", "node": "node", "mem": "mem", "gres": "gres/gpu"}, resource_in_use(reason)
    named = next((name for word, name in words.items() if word in resource), None)
    return limit.kind == "in-use" and named is not None and limit.resource.split(":")[0] == named


def _limit_sentence(limit: Limit, amount: int) -> str:
    owner = f"The QOS {limit.name}" if limit.scope.startswith("qos") else f"Your account {limit.name}"
    if limit.kind in ("jobs", "submitted"):
        most = counted(limit.maximum, "jobs")
        return f"{owner} allows {most} at a time, counting each array task; {limit.used or 0} run."
    if limit.resource == "mem":
        most, used, more = (format_memory(size) for size in (limit.maximum, limit.used or 0, amount))
        return f"{owner} allows {most} of memory at a time; {used} are in use, and this job requests {more}."
    kind, verb = limit.resource.partition(":")[2], "is" if limit.used == 1 else "are"
    noun = f"{kind} GPUs" if kind else _LIMITED.get(limit.resource, limit.resource)
    return (
        f"{owner} allows {counted(limit.maximum, noun)} at a time; {limit.used or 0} {verb} in use, "
        f"and this job requests {amount}."
    )


def partition_words(reason: str, request: WaitingRequest, facts: Facts, time_limit: int | None) -> str:
    """Return the limit of its partitions that a job exceeds, in numbers; empty if the facts do not show it.

    Parameters
    ----------
    reason : str
        ``PartitionTimeLimit`` or ``PartitionNodeLimit``.
    request : WaitingRequest
        The waiting job.
    facts : Facts
        Facts of the cluster.
    time_limit : int, optional
        Time limit of the job, in seconds.
    """
    known = [one for one in facts.partitions if one.name in request.partitions]
    if reason == "PartitionTimeLimit" and time_limit:
        asked, most = format_time_limit(time_limit), {one.name: one.max_time for one in known}
        return " ".join(
            f"It requests {asked}; partition {name} allows {format_time_limit(limit)}."
            for name, limit in most.items()
            if limit is not None and time_limit > limit
        )
    if reason == "PartitionNodeLimit":
        most_nodes = {one.name: one.fields.get("MaxNodes", "") for one in known}
        return " ".join(
            f"It requests {counted(request.nodes, 'nodes')}; partition {name} allows {limit}."
            for name, limit in most_nodes.items()
            if limit not in _UNLIMITED and (allowed := parse_count(limit)) is not None and request.nodes > allowed
        )
    return ""


def availability_words(request: WaitingRequest, nodes: Iterable[Node]) -> str:
    """Return how many of the nodes with the requested names or features can start jobs; empty if all can.

    Parameters
    ----------
    request : WaitingRequest
        The waiting job.
    nodes : iterable of Node
        Nodes of the cluster.
    """
    known = list(nodes)
    there = [node for node in known if {*node.partitions} & {*request.partitions}]
    candidates = request.candidates(known)
    if request.features and there and len(candidates) < request.nodes:
        having = f"{len(candidates)} of {counted(len(there), 'nodes')} have {' and '.join(request.features)}"
        return f"It requests {counted(request.nodes, 'nodes')}; {having}."
    up = [node.name for node in candidates if node.is_up]
    if not candidates or len(up) >= len(candidates):
        return ""
    named = "requested nodes" if request.node_list else "nodes that could run it"
    down = sorted(node.name for node in candidates if not node.is_up)
    names = ", ".join(down[:4]) + (" …" if len(down) > 4 else "")
    return f"{len(up)} of {len(candidates)} {named} can start jobs. Not available: {names}."


def licence_words(request: WaitingRequest, licences: Mapping[str, tuple[int, int]]) -> str:
    """Return the licences that are short, in numbers; empty if none is.

    Parameters
    ----------
    request : WaitingRequest
        The waiting job.
    licences : mapping
        Total and free number by name.
    """
    said = []
    for name, number in request.licenses.items():
        total, free = licences.get(name, (0, number))
        if free < number:
            said.append(f"Waits for {counted(number, 'licences')} of {name}; {free} of {total} are free.")
    return " ".join(said)


def reservation_words(request: WaitingRequest, facts: Facts) -> str:
    """Return the state of the reservation of a job, with its nodes; empty if it is not known.

    Parameters
    ----------
    request : WaitingRequest
        The waiting job.
    facts : Facts
        Facts of the cluster.
    """
    known = next((one for one in facts.reservations if one.name == request.reservation), None)
    if known is None:
        return ""
    nodes = f" of {known.nodes}" if known.nodes else ""
    begun = "has begun" if known.state == "ACTIVE" else "has not begun"
    return f"Waits for its reservation {known.name}{nodes}, which {begun}."


def parse_licences(output: str) -> dict[str, tuple[int, int]]:
    """Parse ``scontrol --oneliner show licenses``: total and free number by name.

    Parameters
    ----------
    output : str
        Answer of the command.
    """
    found = {}
    for line in output.splitlines():
        words = {name: value for name, sign, value in (word.partition("=") for word in line.split()) if sign}
        total, free = parse_count(words.get("Total", "")), parse_count(words.get("Free", ""))
        if words.get("LicenseName") and total is not None and free is not None:
            found[words["LicenseName"]] = (total, free)
    return found
