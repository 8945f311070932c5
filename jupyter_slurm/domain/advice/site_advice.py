"""Comparison of a job with its site's advice.

Slurm accepts a job that ignores the advice, but other users wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from jupyter_slurm.domain.options.request import Request

__all__ = ["advised"]

_DEFAULT: Final = "default"
_MEMORY: Final = ("mem", "mem-per-cpu", "mem-per-gpu")


def advised(advice: Mapping[str, object], request: Request) -> list[str]:
    """Return the points in which a job ignores the site's advice, as sentences.

    Parameters
    ----------
    advice : mapping
        From the profile: ``cpus_per_gpu``, a number or a table by type of GPU (and ``default``); ``memory``, the limit
        for jobs with GPUs.
    request : Request
        The options in force. Unset options are not compared.
    """
    gpus, types = _gpus(request)
    return [*_cpus(advice.get("cpus_per_gpu"), request, gpus, types), *_memory(advice.get("memory"), request, types)]


def _cpus(most: Any, request: Request, gpus: int | None, types: set[str]) -> Iterator[str]:
    table = most if isinstance(most, Mapping) else {_DEFAULT: most}
    known = [table[name] for name in sorted(types) if name in table]
    limit = max(known) if known else table.get(_DEFAULT)
    cpus = _total_cpus(request)
    each = request.number("cpus-per-gpu") or (cpus / gpus if cpus and gpus else None)
    if limit is None or each is None or each <= limit or not types:
        return
    others = ", ".join(f"{number} for {name}" for name, number in sorted(table.items()) if name != _DEFAULT)
    yield (
        f"These are {each:g} CPUs per GPU, but this site advises at most {limit}{(f' ({others})' if others else '')}, "
        "so that no GPU stays idle for lack of CPUs. Set the CPUs of a task with -c."
    )


def _memory(example: object, request: Request, types: set[str]) -> Iterator[str]:
    if example and types and not any(request.chosen.get(name) for name in _MEMORY):
        yield (
            f"Set --mem, for example --mem={example}. On this cluster, a job with GPUs and without --mem "
            "may wait although GPUs are free."
        )


def _tasks(request: Request) -> int | None:
    """Return the number of tasks of the job; None if unset."""
    if "ntasks" in request.chosen:
        return request.number("ntasks")
    nodes = request.nodes if "nodes" in request.chosen else (1, 1)
    if nodes is None or nodes[0] != nodes[1]:
        return None
    each = request.number("ntasks-per-node") if "ntasks-per-node" in request.chosen else 1
    return nodes[0] * each if each else None


def _total_cpus(request: Request) -> int | None:
    tasks = _tasks(request)
    if tasks is None or {"overcommit", "exclusive"} & request.chosen.keys():
        return None
    return tasks * (request.number("cpus-per-task") or 1)


def _gpus(request: Request) -> tuple[int | None, set[str]]:
    """Return the number of GPUs of the job (None: unset), and the types or features requested for them."""
    types = {gpus.type or "" for _, gpus in (*request.gpus, *request.gpus_per_node) if gpus.count}
    if types:
        types |= set(request.features[0])
    if request.gpus:
        return sum(gpus.count or 0 for _, gpus in request.gpus), types
    tasks = _tasks(request)
    nodes = request.nodes[0] if request.nodes else 1
    total = 0
    for written, gpus in request.gpus_per_node:
        if "socket" in written:
            return None, types
        times = tasks if "per-task" in written or "PER_TASK" in written else nodes
        if times is None:
            return None, types
        total += times * (gpus.count or 0)
    return total or None, types
