"""Comparison of a request with the capacity of its partitions: nodes, CPUs, memory, GPUs, features.

The capacity of a node is what is configured. A node that is down counts, since it may come back.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from jupyter_slurm.domain.cluster_facts import Facts, NodeShape, nearest, some
from jupyter_slurm.domain.options.request import Request
from jupyter_slurm.domain.queries.cluster import Node, Partition, parse_version
from jupyter_slurm.domain.slurm_values import Gres, counted, format_memory, parse_count
from jupyter_slurm.errors import ParseError

__all__ = ["FeasibilityWarning", "size_warnings"]

_MIB: Final = 1 << 20
_CPUS: Final = "cpus-per-task"


class FeasibilityWarning(NamedTuple):
    """A reason why a job could not run.

    Attributes
    ----------
    text : str
        A sentence, with a request that would fit.
    is_about_names : bool
        Whether the warning is void if sbatch accepts the job: the name was created meanwhile.
    option : str
        Long name of the option of sbatch that the reason is about, for a form that shows it beside that field; empty:
        several, or one that no form has.
    scope : str
        Owner of the limit that the value exceeds: ``partition``, ``node`` or ``qos``; empty: the value exceeds none.
    limit : str
        That limit as sbatch takes it; of GPUs, their number.
    """

    text: str
    is_about_names: bool = False
    option: str = ""
    scope: str = ""
    limit: str = ""


def size_warnings(
    facts: Facts, request: Request, partitions: Sequence[Partition], *, is_moved: bool = False
) -> list[FeasibilityWarning]:
    """Return warnings about the size of a job.

    Parameters
    ----------
    facts : Facts
        Facts of the cluster.
    request : Request
        Request of the job.
    partitions : sequence of Partition
        Partitions of the job. One partition with enough resources suffices.
    is_moved : bool
        Whether these are all partitions, because the site chooses one.
    """
    found = [*_unknown_features(facts, request), *_miscounted(facts, request), *_unknown_gres(facts, request)]
    lists = [facts.shapes_in[one.name] for one in partitions]
    # If the site hides nodes, the largest node is unknown.
    counts = [sum(count for _, count in each) for each in lists]
    if found or not all(counts) or counts != [one.node_count for one in partitions]:
        return found
    nodes = [node for each in lists for node, _ in each]
    names = [one.name for one in partitions]
    where = "on this cluster" if is_moved else f"in partition {names[0]}" if len(names) == 1 else f"in {some(names)}"
    found += _features(facts, request, nodes, where)
    found += _node_count(request, partitions, where)
    found += _cpus(request, nodes, lists, where)
    found += [*_memory(request, nodes, where)] or _allowed_memory(facts, request, partitions, where)
    for written, gres in request.gpus_per_node:
        found += _gpus(facts, nodes, written, gres, where)
    for written, gres in request.gpus:
        found += _gpus(facts, nodes, written, gres, where, of_all=max(lists, key=lambda each: _total(each, gres.type)))
    found += _other_gres(facts, request, nodes, where)
    if not any(one.option == "gpus" for one in found):
        found += _gpus_of_few_nodes(request, nodes, where)
    return found


def _unknown_features(facts: Facts, request: Request) -> Iterator[FeasibilityWarning]:
    names, _ = request.features
    if facts.nodes:
        for name in names:
            if name not in facts.features:
                yield FeasibilityWarning(f"No node has the feature {name}.{nearest(name, facts.features)}", True)


def _miscounted(facts: Facts, request: Request) -> Iterator[FeasibilityWarning]:
    with contextlib.suppress(ParseError):
        if parse_version(facts.config.get("SLURM_VERSION", "")) >= (24, 11):
            return  # it takes ``=`` for a colon
    for option in ("gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"):
        if found := re.search(r"([^:=,]+)=(\d+)(?=,|\Z)", request.chosen.get(option) or "", re.ASCII):
            text = f"{request.written(option)}: write the number after a colon, {found[1]}:{found[2]}."
            yield FeasibilityWarning(text, True)


def _unknown_gres(facts: Facts, request: Request) -> Iterator[FeasibilityWarning]:
    nodes = [node for node, _ in facts.shapes]
    known = facts.setting_words("GresTypes") | {gres.name.lower() for node in nodes for gres in node.gres}
    for gres in request.gres:
        if known and gres.name.lower() not in known:
            text = f"There is no generic resource {gres.name}.{nearest(gres.name, sorted(known))}"
            yield FeasibilityWarning(text, True)
    types = {gres.type for node in nodes for gres in node.gres if gres.name == "gpu" and gres.type}
    is_typed = all(gres.type for node in nodes for gres in node.gres if gres.name == "gpu")
    for _, asked in (*request.gpus_per_node, *request.gpus):
        if asked.type and types and is_typed and asked.type not in types:
            instead = nearest(asked.type, sorted(types))
            if asked.type.lower() in known - {"gpu"}:
                instead = f" Request that generic resource with --gres={asked.type}:{asked.count}."
            yield FeasibilityWarning(f"No node has GPUs of the type {asked.type}.{instead}", True, "gpus")


def _features(facts: Facts, request: Request, nodes: Sequence[Node], partition: str) -> Iterator[FeasibilityWarning]:
    names, is_all = request.features
    wanted = {*names}
    if wanted and is_all and not any(wanted <= {*node.available, *node.features} for node in nodes):
        having = [node for node, _ in facts.shapes if wanted <= {*node.available, *node.features}]
        yield FeasibilityWarning(
            f"No node {partition} has the features of {request.written('constraint')}.{_instead(having)}"
        )


def _node_count(request: Request, partitions: Sequence[Partition], partition: str) -> Iterator[FeasibilityWarning]:
    if request.nodes is None:
        return
    asked, most = request.nodes[0], max(one.node_count or 0 for one in partitions)
    if asked > most:
        has = f"the number of nodes {partition} is {most}" if len(partitions) == 1 else f"at most {most} {partition}"
        yield FeasibilityWarning(f"{request.written('nodes')} asks for {asked} nodes, but {has}.")


def _cpus(
    request: Request, nodes: Sequence[Node], lists: Sequence[Sequence[NodeShape]], partition: str
) -> Iterator[FeasibilityWarning]:
    most = max(node.cpus for node in nodes)
    total = max(sum(node.cpus * count for node, count in each) for each in lists)
    if request.cpus_per_node is not None and request.cpus_per_node > most:
        text = f"The job needs {request.cpus_per_node} CPUs on one node, but no node {partition} has more than {most}."
        yield FeasibilityWarning(text, False, _CPUS, "node", str(most))
    elif request.cpus is not None and request.cpus > total:
        text = f"The job needs {request.cpus} CPUs, but there are {total} {partition}."
        yield FeasibilityWarning(text, False, _CPUS, "partition", str(total))
    elif request.cpus is not None and request.nodes is not None:
        limit = request.nodes[1]
        if limit is not None and request.cpus > limit * most:
            has = f"no node {partition} has more than {most}"
            text = f"The job needs {request.cpus} CPUs on {counted(limit, 'nodes')}, but {has}."
            yield FeasibilityWarning(text, False, _CPUS, "node", str(most))


def _memory(request: Request, nodes: Sequence[Node], partition: str) -> Iterator[FeasibilityWarning]:
    most = max(node.memory for node in nodes)
    if request.memory_per_node is not None and most > _MIB:  # 1 MiB: the default if no memory is configured
        written, size = request.memory_per_node
        if size > most:
            text = f"{written} is more than any node {partition} has: at most {format_memory(most)}."
            yield FeasibilityWarning(text, False, "mem", "node", format_memory(most))


def _allowed_memory(
    facts: Facts, request: Request, partitions: Sequence[Partition], partition: str
) -> Iterator[FeasibilityWarning]:
    """Compare memory with the limit for a job on a node, which may be less than the node has."""
    limits = [limit for one in partitions if (limit := _memory_limit(facts, one)) is not None]
    if request.memory_per_node is not None and len(limits) == len(partitions):
        written, size = request.memory_per_node
        if size > max(limits):
            most = format_memory(max(limits))
            text = f"{written} is more than a job may have on a node {partition}: at most {most}."
            yield FeasibilityWarning(text, False, "mem", "node", most)


def _memory_limit(facts: Facts, partition: Partition) -> int | None:
    """Return the bytes that a job may have on a node. With a limit for each CPU, Slurm gives the job more CPUs."""
    for settings in (partition.fields, facts.config):
        for name in ("MaxMemPerNode", "MaxMemPerCPU"):
            if most := parse_count(settings.get(name, "")):
                cpus = max(node.cpus for node, _ in facts.shapes_in[partition.name]) if name == "MaxMemPerCPU" else 1
                return most * cpus * _MIB
    return None


def _gpus(
    facts: Facts,
    nodes: Sequence[Node],
    written: str,
    requested: Gres,
    partition: str,
    *,
    of_all: Sequence[NodeShape] | None = None,
) -> Iterator[FeasibilityWarning]:
    """Compare GPUs with those of a node, or with those of all nodes of the largest partition."""
    if requested.type and any(gres.name == "gpu" and not gres.type for node in nodes for gres in node.gres):
        return  # a GPU configured without a type may still have the type
    most = max(_node_gpus(node, requested.type) for node in nodes) if of_all is None else _total(of_all, requested.type)
    if requested.count <= most:
        return
    needed = requested.count if of_all is None else 1
    enough = [node for node, _ in facts.shapes if _node_gpus(node, requested.type) >= needed]
    kind = f"{requested.type} " * bool(requested.type) + ("GPU" if most == 1 else "GPUs")
    scope, limit = "node" if of_all is None else "partition", str(most)
    if not most:
        text = f"{written}: no node {partition} has {kind}.{_instead(enough)}"
    elif of_all is None:
        text = f"{written} is more than any node {partition} has: at most {most} {kind}.{_instead(enough)}"
    else:
        text = f"{written} is more than all nodes {partition} have: {most} {kind}."
    yield FeasibilityWarning(text, False, "gpus", scope, limit)


def _other_gres(facts: Facts, request: Request, nodes: Sequence[Node], where: str) -> Iterator[FeasibilityWarning]:
    """Compare generic resources other than GPUs (NPUs, parts of GPUs …) with those of a node."""

    def of_node(node: Node, asked: Gres) -> int:
        return sum(one.count for one in node.gres if one.name == asked.name and asked.type in (None, one.type))

    for asked in (one for one in request.gres if one.name != "gpu"):
        most = max(of_node(node, asked) for node in nodes)
        name = " ".join(filter(None, (asked.name, asked.type)))
        enough = [node for node, _ in facts.shapes if of_node(node, asked) >= asked.count]
        if not most:
            text = f"{request.written('gres')}: no node {where} has {name}.{_instead(enough)}"
            yield FeasibilityWarning(text, False, "gres", "node", "0")
        elif asked.count > most:
            text = (
                f"{request.written('gres')} is more than any node {where} has: at most {most} {name}.{_instead(enough)}"
            )
            yield FeasibilityWarning(text, False, "gres", "node", str(most))


def _gpus_of_few_nodes(request: Request, nodes: Sequence[Node], partition: str) -> Iterator[FeasibilityWarning]:
    """Compare GPUs of a job with those that so many nodes can have."""
    limit = request.nodes[1] if request.nodes is not None else None
    for written, gres in request.gpus if limit else ():
        assert limit is not None
        most = max(_node_gpus(node, gres.type) for node in nodes)
        is_typed = all(each.type for node in nodes for each in node.gres if each.name == "gpu")
        if 0 < limit * most < gres.count and (is_typed or not gres.type):
            text = (
                f"{written} is more than {counted(limit, 'nodes')} {partition} can have: at most {limit * most} GPUs."
            )
            yield FeasibilityWarning(text, False, "gpus", "node", str(limit * most))


def _node_gpus(node: Node, kind: str | None) -> int:
    return sum(gres.count for gres in node.gres if gres.name == "gpu" and (not kind or gres.type == kind))


def _total(shapes: Iterable[NodeShape], kind: str | None) -> int:
    return sum(_node_gpus(node, kind) * count for node, count in shapes)


def _instead(nodes: Iterable[Node]) -> str:
    """Name the partitions that have suitable nodes."""
    names = Counter(name for node in nodes for name in node.partitions)
    return f" There are such nodes in: {some(names)}." if names else ""
