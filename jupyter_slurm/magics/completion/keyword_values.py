"""Completion of keyword values: variables of the notebook, jobs, allocations, environments."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from jupyter_slurm.client.allocations.allocation import Allocation
from jupyter_slurm.client.clusters import name_completion
from jupyter_slurm.client.jobs.job import Job
from jupyter_slurm.client.render import allocation_card
from jupyter_slurm.client.submission.dependencies import KINDS
from jupyter_slurm.domain.cluster_facts import NamedEntity
from jupyter_slurm.domain.containers.image_reference import RUNTIMES
from jupyter_slurm.domain.ranks import LAUNCHERS
from jupyter_slurm.domain.scripts.environments import AUTOMATIC_ENVIRONMENT
from jupyter_slurm.magics.cell_options import as_python

__all__ = ["Suggestion", "keyword_values"]


class Suggestion(NamedTuple):
    """A replacement of ``item``, the end of the unfinished word."""

    item: str
    names: Iterable[NamedEntity]


def keyword_values(text: str, value: str, shell: Any, cell: str) -> Suggestion | None:
    """Return the completions of a keyword's value; None if no values are known.

    Parameters
    ----------
    text : str
        ``in``, ``after`` …
    value : str
        The unfinished value.
    shell : InteractiveShell
        Shell whose variables are offered.
    cell : str
        The text below the line.
    """
    if text == "env":
        own = NamedEntity(AUTOMATIC_ENVIRONMENT, "imports of this notebook")
        return Suggestion(value, [*name_completion.names("environment"), own])
    if text == "where":
        return Suggestion(value, [NamedEntity("job", ""), NamedEntity("login", "on the login node")])
    if text == "on":
        return Suggestion(
            value, _unique([*_variables(shell, _is_open), *name_completion.names("allocation", "running")])
        )
    if text == "kernel":
        return Suggestion(value, name_completion.names("allocation"))
    if text == "launcher":
        return Suggestion(value, [NamedEntity(name, "") for name in LAUNCHERS])
    if text == "runtime":
        return Suggestion(value, [NamedEntity(name, "") for name in RUNTIMES])
    if text == "from":
        return (
            None
            if "/" in value
            else Suggestion(value, [NamedEntity("docker", "of the node"), NamedEntity("podman", "of the node")])
        )
    if text == "jupyter":
        return Suggestion(value, [NamedEntity("install", "with pip, if this Python has no Jupyter")])
    if text == "sweep":
        return None if ":" in value else Suggestion(value, _variables(shell, _is_table))
    *before, item = value.split(",")
    if text in KINDS:
        jobs = _variables(shell, lambda found: _is_of_kind(found, Job) and not isinstance(found, Allocation))
        names = [*jobs, *name_completion.names("job")]
    elif text == "in":
        names = _variables(shell, lambda found: True)
    elif text == "out":
        names = [NamedEntity(name, "of this cell") for name in _assigned(cell)]
    else:
        return None
    return Suggestion(item, [named for named in names if named.name not in before])


def _variables(shell: Any, is_meant: Callable[[Any], bool]) -> list[NamedEntity]:
    """Return the user's variables, with their types."""
    own: Mapping[str, object] = shell.user_ns
    return [
        NamedEntity(name, _describe_value(value))
        for name, value in own.items()
        if name[:1] != "_" and name not in shell.user_ns_hidden and is_meant(value)
    ]


def _describe_value(value: Any) -> str:
    return value.title if isinstance(value, Job) else type(value).__name__


def _is_of_kind(value: Any, kind: type) -> bool:
    """Return whether a value, or each element of a list, is of a type."""
    values = value if isinstance(value, list | tuple) else [value]
    return bool(values) and all(isinstance(one, kind) for one in values)


def _is_open(value: Any) -> bool:
    """Return whether a value is an open allocation, as last known: completion waits for no answer."""
    if not isinstance(value, Allocation):
        return False
    value._receive()
    return allocation_card.is_open(value._data)


def _is_table(value: Any) -> bool:
    is_frame = hasattr(value, "to_dict") and hasattr(value, "columns")
    return is_frame or isinstance(value, Mapping) or _is_of_kind(value, Mapping)


def _unique(names: Iterable[NamedEntity]) -> Iterator[NamedEntity]:
    seen: set[str] = set()
    for named in names:
        if named.name not in seen:
            seen.add(named.name)
            yield named


_ASSIGNING: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _assigned(cell: str) -> list[str]:
    """Return the names that a Python cell assigns, outside functions; none if it cannot be parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(as_python(cell))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found: dict[str, None] = {}
    left: list[ast.AST] = [*tree.body]
    while left:
        node = left.pop(0)
        if isinstance(node, _ASSIGNING):
            found[node.name] = None
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.id] = None
        if not isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            left.extend(ast.iter_child_nodes(node))
    return [name for name in found if name[0] != "_"]
