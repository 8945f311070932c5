"""Sweep of ``sweep=``: typed parameters, or a table of the notebook by its name."""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from jupyter_slurm.domain.scripts.sweep_parameters import Sweep, to_literal
from jupyter_slurm.errors import UsageError
from jupyter_slurm.runner.variables.definitions import suggest_name

__all__ = ["parse_sweep", "warn_hidden_functions"]

_HINT = "Use a list of dicts, a DataFrame, or a dict with the values of each parameter."


def parse_sweep(keywords: Mapping[str, str | None], namespace: Mapping[str, object]) -> Sweep | None:
    """Return the sweep that a magic line requests; None without one.

    Raises
    ------
    UsageError
        The sweep is not possible; the message says why.
    """
    text, zipped = keywords.get("sweep"), "zip" in keywords
    if text is None:
        if zipped:
            raise UsageError(
                "`zip` has no effect without sweep=.", hint="Add a sweep: `sweep=lr:1e-4,1e-3;gamma:0.9,1 zip`."
            )
        return None
    sweep = Sweep.typed(text, zipped=zipped) if ":" in text else _named(text, namespace, zipped=zipped)
    both = [name for name in (keywords.get("out") or "").split(",") if name.strip() in sweep.names]
    if both:
        raise UsageError(
            f"out={both[0]} is not possible: {both[0]} is a parameter of the sweep.",
            hint="Return the value under another name.",
        )
    return sweep


def warn_hidden_functions(sweep: Sweep, cell: str) -> None:
    """Warn about Python functions that a cell calls and whose names are parameters."""
    for name in sweep.names:
        if hasattr(builtins, name) and re.search(rf"(?<![\w.]){name}\s*\(", cell):
            sys.stderr.write(f"Warning: {name} is a parameter of the sweep: {name}(…) calls its value, not Python's.\n")


def _named(text: str, namespace: Mapping[str, object], *, zipped: bool) -> Sweep:
    if text not in namespace:
        name, equals, values = text.partition("=")
        if equals and name.isidentifier():
            raise UsageError(
                f"sweep={text}: the values of a parameter follow a colon.",
                hint=f"Write sweep={name}:{values or '1,2'}; several parameters: sweep=lr:1,2;gamma:0.9,1.",
            )
        said = suggest_name(text, namespace)
        raise UsageError(f"sweep={text}: There is no variable {text}.{said}", hint=_HINT)
    return _sweep_from_value(text, namespace[text], zipped=zipped)


def _sweep_from_value(name: str, value: Any, *, zipped: bool) -> Sweep:
    if isinstance(value, Mapping):
        columns = [
            (str(key), [to_literal(str(key), one) for one in _values(key, these)]) for key, these in value.items()
        ]
        return Sweep.from_columns(columns, zipped=zipped)
    if zipped:
        raise UsageError(f"sweep={name}: {name} already has rows, so `zip` has no effect.", hint="Omit `zip`.")
    if hasattr(value, "columns") and (hasattr(value, "to_dicts") or hasattr(value, "to_dict")):
        value = value.to_dicts() if hasattr(value, "to_dicts") else value.to_dict("records")  # polars; pandas
    if not isinstance(value, list | tuple) or not all(isinstance(row, Mapping) for row in value):
        raise UsageError(f"sweep={name}: {name} is a {type(value).__name__}, not a table.", hint=_HINT)
    return Sweep.from_rows(value)


def _values(name: Any, values: Any) -> Iterable[Any]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise UsageError(f"sweep=: {name} has no list of values.", hint=_HINT)
    return values
